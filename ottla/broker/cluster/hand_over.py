"""Hands over a stopping member's leadership to other brokers."""

from __future__ import annotations

import asyncio
import logging

from ottla.broker.cluster.cluster_session import ClusterSession
from ottla.broker.cluster.metadata_log import NotController
from ottla.broker.peers.envelopes import Forwarding
from ottla.replication.controller.brokers import controlled_shutdown
from ottla.replication.coordination import CoordinationError
from ottla.replication.records import UnreadableMetadata
from ottla.wire.errors import ErrorCode, ProtocolError, RequestTimedOut
from ottla.wire.messages import BrokerHeartbeatRequest

log = logging.getLogger("ottla.member")

HAND_OVER_SECONDS = 30.0
HAND_OVER_ASK_SECONDS = 0.5
HAND_OVER_AGAIN_SECONDS = 0.02
HEARTBEAT_VERSION = 0


async def hand_over(session: ClusterSession, forwarding: Forwarding) -> None:
    """Hand over leadership before this broker stops, within HAND_OVER_SECONDS."""
    if session.broker_epoch < 0 or session.broken:
        return
    try:
        async with asyncio.timeout(HAND_OVER_SECONDS):
            while not await _may_stop(session, forwarding):
                await asyncio.sleep(HAND_OVER_AGAIN_SECONDS)
            await session.metadata.catch_up()
    except TimeoutError:
        log.warning(
            "leadership could not be handed over within %d s: no controller answers, or the"
            " controller does not reach ZooKeeper. Other brokers take over once they notice that"
            " this broker is gone",
            HAND_OVER_SECONDS,
        )
    except (ProtocolError, CoordinationError, UnreadableMetadata) as error:
        log.warning("leadership could not be handed over: %r", error)


async def _may_stop(session: ClusterSession, forwarding: Forwarding) -> bool:
    metadata, node_id, epoch = session.metadata, session.node_id, session.broker_epoch
    if metadata.is_controller:
        try:
            done: bool = await metadata.decide(controlled_shutdown, node_id, epoch)
        except NotController:
            return False                    # ask the next controller
        return done
    try:
        answer = await forwarding.ask(
            BrokerHeartbeatRequest(
                broker_id=node_id, broker_epoch=epoch,
                current_metadata_offset=metadata.image.offset, want_fence=False,
                want_shut_down=True,
            ),
            HEARTBEAT_VERSION,
            HAND_OVER_ASK_SECONDS,
        )
    except RequestTimedOut:
        return False                        # try again: this broker may be the controller now
    if answer.error_code:
        raise ProtocolError(
            "the controller refused this broker's request to stop", ErrorCode(answer.error_code))
    return bool(answer.should_shut_down)
