"""UpdateFeatures (key 57): changes the levels of the cluster's features (KIP-584)."""

from __future__ import annotations

from ottla.broker.cluster.feature_levels import SUPPORTED_FEATURES
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.decisions import on_cluster
from ottla.replication.controller.access import Operation
from ottla.replication.controller.features import FeatureUpdate, UpgradeType, update_features
from ottla.wire.apis import ApiKey
from ottla.wire.messages import UpdateFeaturesRequest, UpdateFeaturesResponse


@handles(ApiKey.UPDATE_FEATURES, access=on_cluster(Operation.ALTER))
async def update_features_api(
    request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    """Upgrade and downgrade features: all of them, or none if one is refused. ApiVersions then
    reports the new levels."""
    version = context.version
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, _upgrade_type(each, version))
        for each in request.feature_updates
    ]
    validate_only = request.validate_only if version >= 1 else False
    await context.broker.metadata_log.decide(
        update_features, updates, SUPPORTED_FEATURES, validate_only,
        context.broker.role.supported_features(),
    )
    response = UpdateFeaturesResponse(error_code=0, error_message=None)
    if version <= 1:
        response.results = [
            UpdateFeaturesResponse.Result(feature=each.name, error_code=0, error_message="NONE")
            for each in updates
        ]
    return response


def _upgrade_type(update: UpdateFeaturesRequest.FeatureUpdate, version: int) -> int:
    if version >= 1:
        return update.upgrade_type
    return int(UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE)
