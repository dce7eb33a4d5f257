"""ApiVersions (key 18): the APIs that this broker serves, in the versions of their schemas."""

from __future__ import annotations

import re

from ottla.broker.cluster.feature_levels import SUPPORTED_FEATURES, finalised
from ottla.broker.dispatch import HANDLERS, handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.decisions import everybody
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, InvalidRequest, ProtocolError
from ottla.wire.messages import ApiVersionsRequest, ApiVersionsResponse

TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
SERVED: dict[tuple[bool, bool], list[ApiVersionsResponse.ApiKey]] = {}
"""Cached lists of APIs, by two facts: whether the listener is the inter-broker listener, and
whether the list includes the telemetry APIs."""
SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiKey.API_VERSIONS, access=everybody)
def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Report versions and features; refuse an invalid client software name or version (KIP-511)."""
    if context.version >= 3:
        for name in (request.client_software_name, request.client_software_version):
            if not SOFTWARE_NAME.fullmatch(name):
                raise InvalidRequest("the client's software name or version has invalid characters")
        context.client.introduce(request.client_software_name, request.client_software_version)
    if context.version >= 5:
        _check_expected_node(request, context)
    image = context.broker.image
    levels = finalised(image)
    # List the telemetry APIs only if there is a subscription: clients that see these APIs call them
    # at each connect, and librdkafka logs the calls.
    collects_metrics = any(kind == "client-metrics" for kind, _ in image.configs)
    return ApiVersionsResponse(
        api_keys=_served(context, collects_metrics),
        supported_features=[
            ApiVersionsResponse.SupportedFeature(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        finalized_features_epoch=image.offset if levels else -1,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeature(
                name=name, min_version_level=level, max_version_level=level
            )
            for name, level in levels.items()
        ],
    )


def _served(context: RequestContext, collects_metrics: bool) -> list[ApiVersionsResponse.ApiKey]:
    """The APIs that this client may use. The lists are cached, since every client asks when it
    connects."""
    inside = context.broker.role.listener == context.client.listener
    known = SERVED.get((inside, collects_metrics))
    if known is None:
        known = SERVED[inside, collects_metrics] = [
            ApiVersionsResponse.ApiKey(
                api_key=key,
                min_version=handler.versions.start,
                max_version=handler.versions.stop - 1,
            )
            for key, handler in sorted(HANDLERS.items())
            if handler.serves(context) and (key not in TELEMETRY or collects_metrics)
        ]
    return known


def _check_expected_node(request: ApiVersionsRequest, context: RequestContext) -> None:
    """Refuse a client that expected another cluster or node (KIP-1242)."""
    broker = context.broker
    wrong_cluster = request.cluster_id is not None and request.cluster_id != broker.image.cluster_id
    if wrong_cluster or request.node_id not in (-1, broker.node_id):
        raise ProtocolError(
            f"this is broker {broker.node_id} of cluster {broker.image.cluster_id}: the request"
            " expects another broker or cluster", ErrorCode.REBOOTSTRAP_REQUIRED,
        )
