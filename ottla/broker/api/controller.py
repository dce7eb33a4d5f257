"""Requests of brokers to the controller: Envelope (key 58), BrokerHeartbeat (63),
AllocateProducerIds (67), AlterPartition (56), AssignReplicasToDirs (73).

They are served only on the inter-broker listener of a cluster, and require CLUSTER_ACTION if there
is an authorizer.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.cluster.metadata_log import NotController
from ottla.broker.dispatch import handles, serve_inside
from ottla.broker.peers.envelopes import decode_address, decode_principal, names_code
from ottla.broker.request_context import RequestContext
from ottla.broker.security.client import Client
from ottla.broker.security.decisions import on_cluster
from ottla.broker.threads.slices import Slices
from ottla.replication.controller.access import Operation
from ottla.replication.controller.brokers import StaleBrokerEpoch, controlled_shutdown
from ottla.replication.controller.directories import assign_replicas
from ottla.replication.controller.isr import alter_partitions
from ottla.replication.controller.producer_ids import allocate_producer_ids
from ottla.wire.apis import FORWARDED, FORWARDED_AFTER_CHECK, ApiKey
from ottla.wire.errors import ErrorCode, InvalidRequest, MalformedMessage
from ottla.wire.headers import RequestHeader, encode_response_header
from ottla.wire.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    EnvelopeRequest,
    EnvelopeResponse,
)
from ottla.wire.parts import EncodedInParts, is_long

PART_SIZE = 1 << 14
"""A long response is encoded in parts of this many bytes."""


def require_controller(context: RequestContext) -> None:
    """Raise NotController if this broker is not the controller."""
    if not context.broker.role.decides():
        raise NotController("this broker is not the controller")


@handles(ApiKey.ENVELOPE, access=on_cluster(Operation.CLUSTER_ACTION))
async def envelope(request: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse:
    """Serve a request that another broker forwards on behalf of its client (KIP-590)."""
    require_controller(context)
    try:
        header, size = RequestHeader.decode(request.request_data)
        if header.api_key not in FORWARDED | FORWARDED_AFTER_CHECK:
            raise InvalidRequest(f"brokers do not forward requests with API key {header.api_key}")
        principal = decode_principal(request.request_principal or b"")
        host = decode_address(request.client_host_address)
    except ValueError as error:
        raise InvalidRequest(f"the envelope cannot be read: {error}") from error
    asking = context.client
    client = Client(host, asking.listener, asking.connection_id, principal).named(header.client_id)
    inside = RequestContext(context.broker, header.api_key, header.version, client)
    inside.forwarded = True
    try:
        response: Any = await serve_inside(inside, request.request_data[size:])
    except MalformedMessage as error:
        raise InvalidRequest(f"the request in the envelope is not supported: {error}") from error
    slices = Slices()
    if await names_code(response, ErrorCode.NOT_CONTROLLER, slices):
        # This broker is no longer the controller: the forwarding broker asks the next controller.
        raise NotController("this broker is no longer the controller")
    if inside.throttle_ms > 0:
        response.throttle_time_ms = inside.throttle_ms      # the forwarding broker throttles
    head = encode_response_header(header.api_key, header.version, header.correlation_id)
    return EnvelopeResponse(response_data=head + await encoded(response, header.version, slices))


async def encoded(response: Any, version: int, slices: Slices) -> bytes:
    """The bytes of a response. A long response is encoded in parts, so that other requests are
    served in between."""
    if is_long(response, version):
        response = EncodedInParts(response, version)
        while not response.encode_part(PART_SIZE):
            if slices.over:
                await slices.pause()
    data: bytes = response.encode(version)
    return data


@handles(ApiKey.BROKER_HEARTBEAT, access=on_cluster(Operation.CLUSTER_ACTION))
async def broker_heartbeat(
    request: BrokerHeartbeatRequest, context: RequestContext
) -> BrokerHeartbeatResponse:
    """Move leadership away from a broker that wants to stop, and report when it may stop. Other
    heartbeats change nothing, since ZooKeeper decides whether a broker is alive."""
    require_controller(context)
    metadata = context.broker.metadata_log
    # Look into `decided`, since the requesting broker may already know a newer image than `image`.
    known = metadata.decided.brokers.get(request.broker_id)
    if known is None or known.epoch != request.broker_epoch:
        raise StaleBrokerEpoch(
            f"broker {request.broker_id} is not registered with broker epoch {request.broker_epoch}"
        )
    done = False
    if request.want_shut_down:
        done = await metadata.decide(controlled_shutdown, request.broker_id, request.broker_epoch)
    return BrokerHeartbeatResponse(
        is_caught_up=request.current_metadata_offset >= metadata.image.offset,
        is_fenced=False,
        should_shut_down=done,
    )


@handles(ApiKey.ALLOCATE_PRODUCER_IDS, access=on_cluster(Operation.CLUSTER_ACTION))
async def allocate_producer_ids_api(
    request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    """Allocate a block of producer ids to a broker, if its epoch in the request is current."""
    require_controller(context)
    block = await context.broker.metadata_log.decide(
        allocate_producer_ids, request.broker_id, request.broker_epoch
    )
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))


@handles(ApiKey.ALTER_PARTITION, access=on_cluster(Operation.CLUSTER_ACTION))
async def alter_partition(
    request: AlterPartitionRequest, context: RequestContext
) -> AlterPartitionResponse:
    """Change the in-sync sets of partitions that the requesting broker leads (KIP-497)."""
    require_controller(context)
    return await context.broker.metadata_log.decide(alter_partitions, request)


@handles(ApiKey.ASSIGN_REPLICAS_TO_DIRS, access=on_cluster(Operation.CLUSTER_ACTION))
async def assign_replicas_to_dirs(
    request: AssignReplicasToDirsRequest, context: RequestContext
) -> AssignReplicasToDirsResponse:
    """Record which replicas of the requesting broker are in failed log directories (KIP-858)."""
    require_controller(context)
    return await context.broker.metadata_log.decide(assign_replicas, request)
