"""Client metrics: GetTelemetrySubscriptions (key 71), PushTelemetry (72); KIP-714.

Apache Kafka serves these APIs only with a plug-in that receives the metrics. Ottla lists them in
ApiVersions only while there is a subscription (the tool `kafka-client-metrics` creates one). So
without a subscription, clients save a request at each connect. The received metrics are in /metrics
and, at debug level, in the log.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass, field
from uuid import uuid4

from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.decisions import everybody
from ottla.broker.telemetry.client_instances import ClientInstance, check_push
from ottla.broker.telemetry.otlp import BadPayload, Point, decode_points
from ottla.wire.apis import ApiKey
from ottla.wire.compression import Codec, decompress
from ottla.wire.errors import ErrorCode, InvalidRequest, ProtocolError
from ottla.wire.messages import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

log = logging.getLogger("ottla.telemetry")

ZERO_ID = bytes(16)
RESERVED_IDS = (ZERO_ID, bytes(15) + b"\x01")
PAYLOAD_SIZE_MAX = 8 << 20
"""The most bytes that a push may have after decompression. `telemetry.max.bytes` limits the size of
the push as the client sends it."""


@handles(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, access=everybody)
def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    """Report the metrics to push, and how often. At its first request, a client gets an id."""
    broker = context.broker
    instance_id = request.client_instance_id
    if instance_id == ZERO_ID:
        instance_id = uuid4().bytes
    instances = broker.client_telemetry.made_instances()
    instance = instances.instance(instance_id, _attributes(instance_id, context), broker.image)
    if not instance.may_ask(instances.now_ms()):
        raise ProtocolError(
            "Request from the client arrived before the next push interval time.",
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        )
    instance.newest_error = ErrorCode.NONE
    wanted = instance.wanted
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=[Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY],
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=broker.config.telemetry_max_bytes,
        # Clients push totals since their start, so that a lost push loses no counts.
        delta_temporality=False,
        requested_metrics=list(wanted.metrics),
    )


@handles(ApiKey.PUSH_TELEMETRY, access=everybody)
async def push_telemetry(
    request: PushTelemetryRequest, context: RequestContext
) -> PushTelemetryResponse:
    """Accept a client's metrics."""
    broker, instance_id = context.broker, request.client_instance_id
    if instance_id in RESERVED_IDS:
        raise InvalidRequest(
            f"Invalid request from the client [{_text(instance_id)}],"
            " invalid client instance id"
        )
    instances = broker.client_telemetry.made_instances()
    instance = instances.instance(instance_id, _attributes(instance_id, context), broker.image)
    payload = bytes(request.metrics)
    try:
        check_push(
            instance, request.subscription_id, request.compression_type, request.terminating,
            len(payload), broker.config.telemetry_max_bytes, instances.now_ms(),
        )
        push = Push(payload, request.compression_type)
        if payload:
            await broker.workers.run(push.decode)
        if push.error:
            raise ProtocolError(push.error, ErrorCode.INVALID_RECORD)
    except ProtocolError as error:
        instance.newest_error = error.code
        log.debug("refused a push of metrics by %s: %s", _said(instance), error.message)
        raise
    finally:
        instance.terminating = request.terminating
    instances.keep(instance, push.points, push.dropped)
    instance.newest_error = ErrorCode.NONE
    _report(instance, push)
    return PushTelemetryResponse()


@dataclass(slots=True)
class Push:
    """A payload and, once a thread has decoded it, its points or the error in it."""

    payload: bytes
    codec: int
    points: list[Point] = field(default_factory=list)
    dropped: int = 0
    error: str = ""

    def decode(self) -> None:
        """Decompress and decode; may run in any thread."""
        try:
            data = decompress(self.codec, self.payload, PAYLOAD_SIZE_MAX)
            self.points, self.dropped = decode_points(data)
        except (ProtocolError, BadPayload) as error:
            self.error = f"the metrics cannot be read: {error}"


def _text(instance_id: bytes) -> str:
    """A client instance id in Kafka's text form."""
    return base64.urlsafe_b64encode(instance_id).rstrip(b"=").decode()


def _attributes(instance_id: bytes, context: RequestContext) -> dict[str, str]:
    """The attributes that subscriptions may match."""
    client = context.client
    return {
        "client_instance_id": _text(instance_id),
        "client_id": client.client_id or "",
        "client_software_name": client.software_name or "",
        "client_software_version": client.software_version or "",
        "client_source_address": client.host,
        "client_source_port": client.peer().rpartition(":")[2],
    }


def _said(instance: ClientInstance) -> str:
    attributes = instance.attributes
    return f"client {attributes['client_id']!r} ({attributes['client_instance_id']})"


def _report(instance: ClientInstance, push: Push) -> None:
    if log.isEnabledFor(logging.DEBUG):
        log.debug(
            "%s pushed metrics: %d values were stored and %d were dropped; the push had %d bytes"
            " and compression type %d",
            _said(instance),
            len(push.points), push.dropped, len(push.payload), push.codec,
        )
        for point in push.points:
            log.debug("%s: %s %s %s", _said(instance), point.name, point.value, point.labels)
