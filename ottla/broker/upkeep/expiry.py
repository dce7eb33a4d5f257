"""Removes what has expired: idle producers from the logs, and delegation tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.threads.slices import Slices
from ottla.replication.controller.tokens import has_expired_tokens, remove_expired_tokens

if TYPE_CHECKING:
    from ottla.broker.cluster.metadata_log import Metadata
    from ottla.broker.role import Role
    from ottla.log.files.clock import Clock
    from ottla.replication.partition import Partition

log = logging.getLogger("ottla.housekeeping")


async def expire_producers(partitions: Iterable[Partition]) -> None:
    """Have each log forget the producers that have been idle for producer.id.expiration.ms."""
    slices = Slices()
    for partition in partitions:
        partition.log.remove_expired_producers()
        if slices.over:
            await slices.pause()


async def expire_tokens(role: Role, metadata: Metadata, clock: Clock) -> None:
    """Remove expired delegation tokens; in a cluster, only the controller removes them."""
    now_ms = clock.now_ms()
    if role.decides() and has_expired_tokens(metadata.image, now_ms):
        removed = await metadata.decide(remove_expired_tokens, now_ms)
        log.info("%d expired delegation tokens were removed", removed)
