"""Checks the transactions and groups of a cluster as the one-broker simulation does."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import ListTransactionsRequest, OffsetCommitRequest
from tests.simulation.checker import check_partition, check_soundness
from tests.simulation.contenders import read_at_last
from tests.simulation.groups import check_offset, fetch_offset
from tests.simulation.model import ABORTED, COMMITTED
from tests.simulation.network import Broken
from tests.simulation.reading import Content, Missing, fetch, take
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.cluster.router import Router
    from tests.simulation.cluster.story import ClusterStory

COMMITTERS = "offsets"
TRANSACTION_SECONDS = 60.0
"""Longer than any transaction may be open."""
ROUNDS = 3
"""The check ends after this many consecutive rounds in which no coordinator lists an open
transaction."""


async def read_along(story: ClusterStory, session: Router) -> None:
    """A read_committed consumer that reads while clients write. It must see no aborted record.
    Whenever it reads an offset, it must see the same record."""
    chance = story.random
    while not story.over:
        await story.rest(2.0)
        partition = chance.choice(chance.choice(story.model.live()).partitions)
        known = [batch.base_offset for batch in partition.batches if batch.base_offset >= 0]
        offset = chance.choice([0, *known])
        try:
            part = await fetch(session, partition, offset, 1, chance)   # type: ignore[arg-type]
        except (Broken, Missing):
            continue
        if part.error_code:
            continue
        seen = Content(offset, offset)
        take(seen, part, offset, 1, partition)
        check_soundness(partition, seen)
        for record in seen.data:
            batch, _ = partition.topic.by_value[record.value or b""]
            if batch.transaction and batch.transaction.fate == ABORTED:
                raise Violation(
                    f"partition {partition!r}: an aborted record was read with read_committed:"
                    f" {record}"
                )


@dataclass
class Ascending:
    """What is known of a group's committed offset, if clients commit ascending offsets."""

    top: int = 0
    """The highest offset whose commit was acknowledged, or that was read."""
    unclear: set[int] = field(default_factory=set)
    """Offsets whose commit got no answer or an error. The commit may take effect at any later
    time."""


async def commit_ascending(story: ClusterStory, group: str, known: Ascending) -> None:
    """Commit ascending offsets of a group."""
    session, made = story.session(f"{group}, commits"), OffsetCommitRequest
    topic = story.model.live()[0]
    while not story.over:
        await story.rest(2.0)
        value = known.top + 1
        again = value in known.unclear
        known.unclear.add(value)
        with contextlib.suppress(Broken):
            answer = await session.call(made(group_id=group, topics=[made.Topic(
                name=topic.name, partitions=[made.Topic.Partition(
                    partition_index=0, committed_offset=value, committed_metadata="",
                )],
            )]), 8)
            if answer.topics[0].partitions[0].error_code == 0:
                known.top = max(known.top, value)
                if not again:
                    known.unclear.discard(value)


async def read_ascending(story: ClusterStory, group: str, known: Ascending) -> None:
    """Read the group's offset, and check that it never goes back, even if another broker becomes
    coordinator."""
    session, topic = story.session(f"{group}, reads"), story.model.live()[0]
    while not story.over:
        await story.rest(1.0)
        before = known.top
        with contextlib.suppress(Broken):
            code, offset = await fetch_offset(
                story, session, group, topic, 0             # type: ignore[arg-type]
            )
            if code is ErrorCode.NONE:
                if max(offset, 0) < before and offset not in known.unclear:
                    raise Violation(
                        f"group {group!r} had the committed offset {before}, and has the earlier"
                        f" one {offset} again"
                    )
                known.top = max(known.top, offset)


async def check_transactional(story: ClusterStory) -> None:
    """Check that all transactions end. Then check every partition of the topics with
    transactions."""
    for transaction in story.model.transactions:
        if transaction.offsets and transaction.fate not in (COMMITTED, ABORTED):
            story.offsets.decided(transaction)
        if transaction.fate == "to abort":
            transaction.fate = ABORTED
    await all_end(story)
    jumped_ms = sum(max(hours, 0) for _, hours in story.options.clock_jumps) * 3_600_000
    story.model.wall_ms_most = story.world.wall_ms() + jumped_ms
    session = story.session("checker")
    for topic in story.model.live():
        for partition in topic.partitions:
            try:
                await check_partition(story, session, partition)    # type: ignore[arg-type]
            except Missing as answer:
                raise Violation(f"partition {partition!r} cannot be read: {answer}") from answer


async def all_end(story: ClusterStory) -> None:
    """Check that no coordinator lists an open transaction after the time-outs of all transactions
    have passed."""
    client, end, clean = story.admin, story.world.now + TRANSACTION_SECONDS, 0
    states = ["Ongoing", "PrepareCommit", "PrepareAbort"]
    while True:
        left = []
        for machine in story.world.brokers:
            answer = await client.call(
                machine.node_id, ListTransactionsRequest(state_filters=states), 1
            )
            left += answer.transaction_states
            if answer.error_code:           # a coordinator that is loading lists nothing
                left.append(answer)
        clean = 0 if left else clean + 1
        # While a partition of the internal topic changes brokers, nobody lists its transactions.
        if clean == ROUNDS:
            return
        if story.world.now > end:
            raise Violation(f"transactions have not ended: {left}")
        await asyncio.sleep(story.options.haste)


async def check_coordinators(story: ClusterStory) -> None:
    """Check that every committed offset is one of the possible offsets. Read the offsets of
    contenders, so that their histories include them."""
    session = story.session("checker")
    for topic in story.model.live():
        for group in ("s0", "s1"):
            for index in range(len(topic.partitions)):
                with contextlib.suppress(Broken):
                    await check_offset(
                        story, session, (group, topic, index)       # type: ignore[arg-type]
                    )
    if story.options.contenders:
        with contextlib.suppress(Broken):
            await read_at_last(story, session)              # type: ignore[arg-type]
