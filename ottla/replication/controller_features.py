"""Which features are finalised, and at which level (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.replication.metadata import Decision, FeatureSet, MetadataImage


def finalise_features(image: MetadataImage, levels: Mapping[str, int]) -> Decision[None]:
    """Finalise features that the cluster has no level of yet; those that it has stay."""
    return Decision(
        [FeatureSet(name, level) for name, level in levels.items() if name not in image.features],
        None,
    )
