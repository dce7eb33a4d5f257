"""The features of this code (KIP-584) with their levels, and what each level promises.

| feature | level | promise |
| --- | --- | --- |
| group.version | 1 | consumer groups of KIP-848 |
| metadata.version | 30 | the admin surface of Apache Kafka 4.3 |
| | 33 | the admin surface of Apache Kafka 4.4 |
| transaction.version | 1 | nothing new: behavior and record format are those of level 0 |
| | 2 | KIP-890: clients add partitions by producing and get a new epoch with each EndTxn |

Ottla writes metadata records in the same format at every level of metadata.version, so the level
can be lowered. An exception is an ACL whose host is a network: while one exists, the level cannot
be set below 4.4-IV1 (32).

An upgrade or downgrade takes effect at once: clients follow the levels in ApiVersions. While
group.version is 0, consumer groups of KIP-848 are refused.

In a cluster, levels apply to all brokers. A broker whose code does not support the finalised levels
does not start, and the controller raises no level above what a registered broker supports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage

GROUP_VERSION = "group.version"
SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    GROUP_VERSION: (0, 1),
    "metadata.version": (30, 33),
    "transaction.version": (0, 2),
}


def default_levels() -> dict[str, int]:
    """The levels of a new cluster: the highest of every feature."""
    return {name: high for name, (_, high) in SUPPORTED_FEATURES.items()}


def finalised(image: MetadataImage) -> dict[str, int]:
    """The finalised features with their levels."""
    return {name: level for name, level in image.features.items() if level > 0}


def why_unsupported(
    image: MetadataImage, supported: Mapping[str, tuple[int, int]]
) -> str | None:
    """Why code with these levels cannot be a member of the cluster; None if it can."""
    for name, level in finalised(image).items():
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            known = f"supports levels {low} to {high}" if name in supported else "does not know it"
            return (
                f"the cluster uses the feature {name} at level {level}, but this Ottla {known}:"
                " install the version that the other brokers have"
            )
    return None
