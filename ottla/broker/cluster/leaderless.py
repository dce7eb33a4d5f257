"""Writes to the controller's log which partitions have no leader, whenever this list changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.broker.threads.slices import Slices
from ottla.replication.metadata import NO_LEADER, MetadataImage
from ottla.wire.wording import counted

log = logging.getLogger("ottla.controller")

LOOK_SECONDS = 5.0
NAMED_MAX = 10
PARTITIONS_AT_ONCE = 1000


async def tell_leaderless(image: Callable[[], MetadataImage]) -> None:
    """Look for partitions without a leader while this broker is the controller."""
    told, seen = list[str](), None
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if image().topics is seen:
            continue
        seen = image().topics
        partitions = await leaderless(image())
        if partitions and partitions != told:
            others = len(partitions) - NAMED_MAX
            more = f" and {counted(others, 'other')}" if others > 0 else ""
            log.warning(
                "%s no leader until a replica with all committed records returns: %s%s",
                counted(len(partitions), "partition has", "partitions have"),
                ", ".join(partitions[:NAMED_MAX]), more,
            )
        elif told and not partitions:
            log.info("all partitions have a leader again")
        told = partitions


async def leaderless(image: MetadataImage) -> list[str]:
    """The partitions without a leader, each with its in-sync set."""
    partitions, slices = [], Slices()
    for topic in image.topics.values():
        for at in range(0, len(topic.partitions), PARTITIONS_AT_ONCE):
            for index, state in enumerate(topic.partitions[at : at + PARTITIONS_AT_ONCE], at):
                if state.leader == NO_LEADER:
                    in_sync = ",".join(map(str, state.isr))
                    partitions.append(f"{topic.name}-{index} (in sync: {in_sync})")
            if slices.over:
                await slices.pause()
    return partitions
