"""The features of this code (KIP-584) with their levels, and what each level promises.

| feature | level | promise |
| --- | --- | --- |
| group.version | 1 | consumer groups of KIP-848 |
| metadata.version | 30 | the admin surface of Apache Kafka 4.3; Ottla's own records have one form |
| transaction.version | 1 | nothing of its own: the records are readable by both |
| | 2 | KIP-890: clients add partitions by producing and get a new epoch with each EndTxn |

An upgrade or downgrade takes effect at once: clients follow the levels in ApiVersions, and consumer
groups are refused with group.version 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage

GROUP_VERSION = "group.version"
SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    GROUP_VERSION: (0, 1),
    "metadata.version": (30, 30),
    "transaction.version": (0, 2),
}


def default_levels() -> dict[str, int]:
    """The levels of a new cluster: the highest of every feature."""
    return {name: high for name, (_, high) in SUPPORTED_FEATURES.items()}


def finalised(image: MetadataImage) -> dict[str, int]:
    """The finalised features with their levels."""
    return {name: level for name, level in image.features.items() if level > 0}
