"""Which features are finalised, and at which level (KIP-584).

Level 0 means that the cluster has decided not to use a feature. A feature without a level gets one
at the start of a standalone broker, or when a new cluster elects its first controller; a feature of
level 0 stays at level 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.replication.controller.access import NETWORKS_FROM
from ottla.replication.metadata import Decision, FeatureSet, MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError

Levels = Mapping[str, tuple[int, int]]
"""The features that the code knows, each with its lowest and its highest level."""


class InvalidUpdateVersion(ProtocolError):
    """A feature cannot be set to this level."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class UpgradeType(IntEnum):
    """What an update may do to a level."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A level that a client wants. `upgrade_type` is as the client sent it."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def finalise_features(image: MetadataImage, levels: Mapping[str, int]) -> Decision[None]:
    """Finalise features that have no level in the cluster yet; existing levels stay."""
    return Decision(
        [FeatureSet(name, level) for name, level in levels.items() if name not in image.features],
        None,
    )


def update_features(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    supported: Levels,
    validate_only: bool = False,
    members: Mapping[int, Levels] | None = None,
) -> Decision[None]:
    """Change features' levels, all or none. Raises InvalidUpdateVersion.

    In a cluster, `members` maps each broker's id to the levels that the broker supports.
    """
    for update in updates:
        _check(image.features.get(update.name, 0), update, supported)
        _check_networks(image, update)
        for node_id, levels in sorted((members or {}).items()):
            _check_member(update, node_id, levels)
    changed = {
        update.name: FeatureSet(update.name, update.level)
        for update in updates
        if image.features.get(update.name, 0) != update.level
    }
    return Decision([] if validate_only else list(changed.values()), None)


def _check(level: int, update: FeatureUpdate, supported: Levels) -> None:
    if update.upgrade_type not in tuple(UpgradeType):
        raise _refused(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _refused(update, "A feature version cannot be less than 0.")
    if update.name not in supported:
        ranges = ", ".join(f"{name} {low}-{high}" for name, (low, high) in supported.items())
        raise _refused(update, f"This broker does not support this feature. It supports {ranges}.")
    low, high = supported[update.name]
    if not low <= update.level <= high:
        raise _refused(update, f"This broker only supports versions {low}-{high}")
    if update.level < level and update.upgrade_type == UpgradeType.UPGRADE:
        raise _refused(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to"
            " either safe or unsafe downgrade.",
        )


def _check_networks(image: MetadataImage, update: FeatureUpdate) -> None:
    """While an ACL for a network exists, refuse a level at which brokers ignore such ACLs."""
    if update.name != "metadata.version" or update.level >= NETWORKS_FROM:
        return
    hosts = sorted({rule.host for rule in image.rules if "/" in rule.host})
    if hosts:
        raise _refused(
            update,
            "At this level, brokers ignore ACLs with networks as hosts. Remove the ACLs with these"
            f" hosts first: {hosts[0]}"
            + (f" and {len(hosts) - 1} more." if len(hosts) > 1 else "."),
        )


def _check_member(update: FeatureUpdate, node_id: int, levels: Levels) -> None:
    if update.level == 0:
        return
    if update.name not in levels:
        raise _refused(update, f"Broker {node_id} does not support this feature.")
    low, high = levels[update.name]
    if not low <= update.level <= high:
        raise _refused(update, f"Broker {node_id} only supports versions {low}-{high}")


def _refused(update: FeatureUpdate, reason: str) -> InvalidUpdateVersion:
    return InvalidUpdateVersion(
        "The update failed for all features since the following feature had an error: Invalid"
        f" update version {update.level} for feature {update.name}. {reason}"
    )
