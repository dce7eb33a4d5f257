"""Clients of groups. They commit and delete offsets, and join groups of both protocols as
members."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.simulation.model import COMMITTED, LIVE, UNKNOWN, GroupOffset, OffsetKey, TopicModel
from tests.simulation.network import Broken
from tests.simulation.producers import AGAIN, GONE
from tests.simulation.session import Session
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.model import Transaction
    from tests.simulation.story import Story

NONE = -1
RETENTION_MS = 60_000
"""The time after which offsets expire, in runs in which they do."""


@dataclass
class Pending:
    """An offset that was committed in an open transaction. The commit was requested at `asked_ms`
    by the wall clock. `cleared` is true if a deletion may have removed the offset."""

    transaction: Transaction
    asked_ms: int
    cleared: bool = False
    written: bool = False
    """Whether the commit of the offset was answered."""
    overtaken: bool = False
    """Whether a deletion was requested after the answer to the commit."""
    ended: bool = False
    """Whether the end of the transaction was requested."""
    gone: bool = False
    """Whether the deletion was answered before the end of the transaction was requested. Then the
    offset must be gone."""
    overwriting: bool = False
    """Whether another commit of the same offset was requested after the answer to this one."""
    overwritten: bool = False
    """Whether that other commit was answered before the end of the transaction was requested. Then
    the other commit wins, whenever the transaction's marker is written."""


class Offsets:
    """The possible offsets of every group. A client holds an offset while it writes it, so that
    each offset has one writer at a time. Only `commit_twice` and `overwrite` commit an offset that
    is held."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.known = story.model.offsets
        self.held: set[OffsetKey] = set()
        self.pending: dict[OffsetKey, Pending] = {}
        self.blurred: set[tuple[str, str, int]] = set()
        self.going: set[str] = set()
        """Groups with a DeleteGroups request that is under way, or whose outcome is unknown."""
        self.deleting: set[str] = set()
        self.haunted: set[OffsetKey] = set()
        """Offsets with a deletion that is under way, or whose outcome is unknown."""
        self.clearings: Counter[OffsetKey] = Counter()
        """By offset, how many deletions were requested."""
        self.commits: Counter[OffsetKey] = Counter()
        """By offset, how many commits were answered."""
        self.values = count(5000)
        """The numbers to commit; each is committed once in a run."""
        self.on_end: Callable[[], object] = lambda: None
        """Called when the end of a transaction is requested."""

    def blur(self, key: OffsetKey) -> None:
        """Accept any value of this offset from now on. A request by the topic's name was concurrent
        with the topic's deletion, so it may apply to the next topic of this name."""
        self.blurred.add((key[0], key[1].name, key[2]))

    def may_be(self, key: OffsetKey, offset: int) -> bool:
        """Whether OffsetFetch may return this offset."""
        if (key[0], key[1].name, key[2]) in self.blurred:
            return True
        known = self.of(key)
        if offset == NONE and "offsets.retention.minutes" in self.story.options.settings:
            latest_ms = max(self.story.model.wall_ms_most, self.story.world.wall_ms())
            return NONE in known.possible or latest_ms - known.committed_ms >= RETENTION_MS
        return offset in known.possible

    def in_doubt(self, key: OffsetKey, clearings: int) -> bool:
        """Whether a deletion may have been executed after a commit. `clearings` is the number of
        deletions of the offset that had been requested when the commit was sent. This is
        possible if a deletion is under way, or if its outcome is unknown. It is also possible if a
        deletion was requested after the commit was sent, even if the deletion was answered
        first."""
        return key in self.haunted or key[0] in self.going or self.clearings[key] != clearings

    def of(self, key: OffsetKey) -> GroupOffset:
        return self.known.setdefault(key, GroupOffset())

    def reserve(self, key: OffsetKey, transaction: Transaction) -> bool:
        """Hold an offset for a transaction until its outcome is known. False if it is held
        already."""
        if key in self.held:
            return False
        self.held.add(key)
        in_doubt = key[0] in self.going or key in self.haunted
        self.pending[key] = Pending(transaction, self.story.world.wall_ms(), in_doubt)
        return True

    async def delete_group(self, session: Session, group: str) -> None:
        """Send DeleteGroups for one group, unless such a request is under way."""
        if group in self.deleting:
            return
        self.deleting.add(group)
        try:
            keys = self.clearing(group, None, None)
            answer = await session.call(DeleteGroupsRequest(groups_names=[group]), 2)
            self.going.discard(group)
            if answer.results[0].error_code == 0:
                self.cleared(keys)
        finally:
            self.deleting.discard(group)

    def wrote(self, key: OffsetKey) -> None:
        """Note that the commit of an offset in a transaction was answered. Does nothing if the
        transaction has ended meanwhile."""
        if key in self.pending:
            self.pending[key].written = True

    def ends(self, transaction: Transaction) -> None:
        """Note that the end of a transaction is requested."""
        self.on_end()
        for key, _ in transaction.offsets:
            if key in self.pending:
                self.pending[key].ended = True

    def decided(self, transaction: Transaction) -> None:
        """Note that a transaction has ended. Called again when an unknown outcome becomes known; by
        then another transaction may hold the offsets."""
        for key, offset in transaction.offsets:
            pending = self.pending.get(key)
            if pending is None or pending.transaction is not transaction:
                continue
            del self.pending[key]
            self.held.discard(key)
            known = self.of(key)
            if pending.gone:
                known.possible = {NONE}
            elif pending.overwritten:
                continue
            elif transaction.fate == COMMITTED and not (pending.cleared or pending.overwriting):
                known.possible, known.committed_ms = {offset}, pending.asked_ms
            elif transaction.fate in (COMMITTED, UNKNOWN):
                # The outcome is unknown; or a deletion or another commit was requested while the
                # transaction was open, and it is unknown which was executed last.
                known.possible = known.possible | {offset}
                if pending.cleared:
                    known.possible.add(NONE)

    async def overwrite(self, session: Session, key: OffsetKey) -> None:
        """Commit an offset that an open transaction holds, outside of this transaction."""
        pending = self.pending.get(key)
        if pending is None or not pending.written or pending.cleared:
            return
        pending.overwriting = True
        code = await commit(self.story, session, key, next(self.values), shared=True)
        pending.overwritten = code is ErrorCode.NONE and not pending.cleared

    def clearing(
        self, group: str, topic: TopicModel | None, index: int | None
    ) -> dict[OffsetKey, tuple[set[int], int]]:
        """Note that a deletion is requested: of one offset, or of all offsets of a group. From now
        on these offsets may be gone. Returns for each of them the possible values and the number of
        answered commits, for `cleared`."""
        keys = [
            key for key in {**self.known, **self.pending}
            if key[0] == group and topic in (None, key[1]) and index in (None, key[2])
        ]
        if topic is None or index is None:
            self.going.add(group)
        elif (group, topic, index) not in keys:
            keys.append((group, topic, index))      # it may be committed meanwhile
        for key in keys:
            self.of(key).possible.add(NONE)
            self.haunted.add(key)
            self.clearings[key] += 1
            if key in self.pending:
                self.pending[key].cleared = True
                self.pending[key].overtaken = self.pending[key].written
        return {key: (set(self.of(key).possible), self.commits[key]) for key in keys}

    def cleared(self, keys: dict[OffsetKey, tuple[set[int], int]]) -> None:
        """Note that the deletion was executed. If an offset was committed meanwhile, the commit may
        have been executed after the deletion."""
        for key, (before, commits) in keys.items():
            self.haunted.discard(key)
            pending = self.pending.get(key)
            if pending is not None and pending.overtaken and not pending.ended:
                pending.gone = True
            unchanged = self.of(key).possible == before and self.commits[key] == commits
            if key not in self.held and unchanged:
                self.of(key).possible = {NONE}


async def commit_simply(story: Story, name: str) -> None:
    """Commit, fetch and delete offsets of groups without members."""
    session, random, offsets = story.session(name), story.random, story.offsets
    other = story.session(f"{name}2")
    while not story.over:
        await asyncio.sleep(random.expovariate(0.5 / story.pace))
        topics = story.model.live()
        if not topics:
            continue
        topic, group = random.choice(topics), f"s{random.randrange(2)}"
        index = random.randrange(len(topic.partitions))
        key = group, topic, index
        chosen = random.random()
        try:
            if chosen < 0.2:
                # The broker gathers the commits of one turn of its loop in a batch.
                keys = [(f"s{at}", topic, index) for at in range(2) for topic in topics
                        for index in range(len(topic.partitions))]
                done = await asyncio.gather(*(
                    commit(story, session, each, random.randrange(1000, 2000))
                    for each in random.sample(keys, min(len(keys), 4))
                ), return_exceptions=True)
                for each in done:
                    if isinstance(each, BaseException):
                        raise each
            elif chosen < 0.3:
                await commit_twice(story, (session, other), key)
            elif chosen < 0.6:
                await commit(story, session, key, random.randrange(1000, 2000))
            elif chosen < 0.8:
                await check_offset(story, session, key)
            elif chosen < 0.9:
                unclear = (group, topic.name, index) in offsets.blurred
                # Until the deletion is answered it may apply to this topic or to the next one.
                offsets.blur(key)
                keys = offsets.clearing(group, topic, index)
                made = OffsetDeleteRequest
                answer = await session.call(made(group_id=group, topics=[
                    made.Topic(name=topic.name, partitions=[
                        made.Topic.Partition(partition_index=index)
                    ])
                ]), 0)
                done = answer.error_code == 0 and answer.topics[0].partitions[0].error_code == 0
                if topic.state == LIVE and (done or not unclear):
                    offsets.blurred.discard((group, topic.name, index))
                if done:
                    offsets.cleared(keys)
            else:
                await offsets.delete_group(session, group)
        except Broken:
            pass


async def commit_twice(
    story: Story, sessions: tuple[Session, Session], key: OffsetKey
) -> None:
    """Have two clients commit one offset at the same time. Either commit may be the last one, but
    every reader must see the same one."""
    offsets = story.offsets
    group = key[0]
    if key in offsets.held or key in offsets.haunted or group in offsets.going:
        return
    wanted = story.random.sample(range(1000, 2000), 2)
    offsets.held.add(key)
    try:
        await told_alike(story, sessions, key, wanted)
    finally:
        offsets.held.discard(key)


async def told_alike(
    story: Story, sessions: tuple[Session, Session], key: OffsetKey, wanted: list[int]
) -> None:
    """Commit these two offsets concurrently, and check that both sessions then read the same
    one."""
    offsets, (group, topic, index) = story.offsets, key
    before, clearings = set(offsets.of(key).possible), offsets.clearings[key]
    codes = await asyncio.gather(*(
        commit(story, session, key, offset, shared=True)
        for session, offset in zip(sessions, wanted, strict=True)
    ), return_exceptions=True)
    known = offsets.of(key)
    known.possible |= before | set(wanted)
    if any(code is not ErrorCode.NONE for code in codes) or topic.state != LIVE:
        return
    haunted = offsets.in_doubt(key, clearings)
    known.possible = {*wanted, *((NONE,) if haunted else ())}
    code, offset = await fetch_offset(story, sessions[0], group, topic, index)
    haunted = haunted or offsets.in_doubt(key, clearings)
    if code == ErrorCode.NONE and not haunted and topic.state == LIVE:
        if not offsets.may_be(key, offset):
            raise Violation(
                f"group {group!r}: the offsets {wanted} of partition {topic.partitions[index]!r}"
                f" were committed at the same time, but OffsetFetch gives {offset}"
            )
        known.possible = {offset}


async def commit(
    story: Story, session: Session, key: OffsetKey, offset: int,
    generation: int = -1, member: str = "", shared: bool = False,
) -> ErrorCode:
    """Send one commit, and apply its effect to the model. `shared`: another commit of the same
    offset is sent at the same time. Otherwise, nothing is sent if another client holds the
    offset."""
    offsets = story.offsets
    group, topic, index = key
    if not shared:
        if key in offsets.held:
            return ErrorCode.NONE
        offsets.held.add(key)
    known, clearings = offsets.of(key), offsets.clearings[key]
    haunted = offsets.in_doubt(key, clearings)
    known.possible.add(offset)
    made, asked_ms = OffsetCommitRequest, story.world.wall_ms()
    try:
        answer = await session.call(
            made(
                group_id=group, generation_id_or_member_epoch=generation, member_id=member,
                topics=[made.Topic(name=topic.name, partitions=[
                    made.Topic.Partition(
                        partition_index=index, committed_offset=offset, committed_metadata="m"
                    )
                ])],
            ),
            # Version 9 is the first that members of the KIP-848 protocol may use.
            story.random.choice((7, 8, 9)),
        )
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        offsets.commits[key] += 1
        if code == ErrorCode.NONE:
            # If a deletion was requested meanwhile, it may have been executed last.
            haunted = haunted or offsets.in_doubt(key, clearings)
            known.possible = {offset, NONE} if haunted else {offset}
            known.committed_ms = min(asked_ms, story.world.wall_ms())
        if topic.state != LIVE:
            offsets.blur(key)
        return code
    except Broken:
        offsets.blur(key)
        raise
    finally:
        if not shared:
            offsets.held.discard(key)


async def fetch_offset(
    story: Story, session: Session, group: str, topic: TopicModel, index: int
) -> tuple[ErrorCode, int]:
    """Send OffsetFetch for one partition, by the topic's name. Returns the error and the offset. In
    a cluster the request asks for stable offsets (KIP-447), as consumers do: after EndTxn was
    answered, the marker of the committed transaction may not have been written yet."""
    made, stable = OffsetFetchRequest, not story.coordinators_stay
    while True:
        answer = await session.call(
            made(
                groups=[made.Group(group_id=group, topics=[
                    made.Group.Topic(name=topic.name, partition_indexes=[index])
                ])],
                require_stable=stable,
            ),
            8,
        )
        found = answer.groups[0]
        code = ErrorCode(found.error_code)
        if code in AGAIN:
            await asyncio.sleep(0.1)
            continue
        if code != ErrorCode.NONE:
            return code, NONE
        part = found.topics[0].partitions[0]
        if part.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
            await asyncio.sleep(0.1)
            continue
        return ErrorCode(part.error_code), part.committed_offset


async def check_offset(story: Story, session: Session, key: OffsetKey) -> None:
    """Check that the committed offset is one of the possible offsets."""
    group, topic, index = key
    if key in story.offsets.held:
        return
    story.offsets.held.add(key)
    try:
        code, offset = await fetch_offset(story, session, group, topic, index)
        if code != ErrorCode.NONE or topic.state != LIVE:
            return
        if not story.offsets.may_be(key, offset):
            raise Violation(
                f"group {group!r} has the committed offset {offset} of partition"
                f" {topic.partitions[index]!r}; possible are only"
                f" {sorted(story.offsets.of(key).possible)}"
            )
    finally:
        story.offsets.held.discard(key)


async def be_classic(story: Story, name: str) -> None:
    """A member of the classic protocol, alone in its group."""
    session, random, group = story.session(name), story.random, f"c-{name}"
    member, generation, heard_at = "", -1, 0.0
    made = JoinGroupRequest
    while not story.over:
        await asyncio.sleep(random.expovariate(0.3 / story.pace))
        try:
            if generation < 0:
                answer = await session.call(made(
                    group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=5000,
                    member_id=member, protocol_type="consumer",
                    protocols=[made.Protocol(name="range", metadata=b"\0\1\0\0\0\0\0\0\0\0")],
                ), 5)
                code = ErrorCode(answer.error_code)
                if code == ErrorCode.MEMBER_ID_REQUIRED:
                    member = answer.member_id
                elif code == ErrorCode.UNKNOWN_MEMBER_ID:
                    member = ""
                elif code == ErrorCode.NONE:
                    member, wanted = answer.member_id, answer.generation_id
                    asked_at = story.world.now
                    answer = await session.call(SyncGroupRequest(
                        group_id=group, generation_id=wanted, member_id=member,
                        assignments=[SyncGroupRequest.Assignment(
                            member_id=member, assignment=b"mine"
                        )],
                    ), 3)
                    if answer.error_code == 0:
                        if answer.assignment != b"mine":
                            raise Violation(
                                f"member {name!r}, alone in its group, was assigned"
                                f" {answer.assignment!r}"
                            )
                        generation, heard_at = wanted, asked_at
                continue
            chosen, asked_at = random.random(), story.world.now
            if chosen < 0.1:
                leaving, member, generation = member, "", -1
                await session.call(LeaveGroupRequest(group_id=group, member_id=leaving), 2)
            elif chosen < 0.6:
                answer = await session.call(HeartbeatRequest(
                    group_id=group, generation_id=generation, member_id=member
                ), 3)
                code = ErrorCode(answer.error_code)
                if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                    story.member_lost(name, code, heard_at)
                    member, generation = "", -1
                elif code == ErrorCode.REBALANCE_IN_PROGRESS:
                    generation = -1
                elif code == ErrorCode.NONE:
                    heard_at = asked_at
            elif story.model.live():
                topic = random.choice(story.model.live())
                key = group, topic, random.randrange(len(topic.partitions))
                code = await commit(
                    story, session, key, random.randrange(2000, 3000), generation, member
                )
                if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                    story.member_lost(name, code, heard_at)
                    member, generation = "", -1
                elif code == ErrorCode.NONE:
                    heard_at = asked_at
        except Broken:
            pass


async def be_new(story: Story, name: str) -> None:
    """A member of the KIP-848 protocol, alone in its group. It owns all partitions of the topics to
    which it subscribes."""
    session, random, group = story.session(name), story.random, f"n-{name}"
    member, epoch, lost, heard_at = f"{name}-member", 0, 0, 0.0
    owned: list[tuple[bytes, tuple[int, ...]]] = []
    wanted, whole = ["a", "b"], True        # `whole`: send all fields, after an error or no answer
    made, chance = ConsumerGroupHeartbeatRequest, Random(f"{name} {story.world.seed}")
    while not story.over:
        await asyncio.sleep(random.expovariate(0.3 / story.pace))
        joining, told = epoch == 0, random.random() < story.options.restless
        # The timeout is long, because an idle member may be silent for minutes before it gives up a
        # partition. If only the timeout changes, the broker writes a new record of the member, but
        # no new record of its assignment.
        patience = chance.choice((300_000, 400_000)) if chance.random() < 0.3 else -1
        if told:
            wanted = random.choice((["a"], ["a", "b"], ["b", "c"]))
        asked_at = story.world.now
        try:
            answer = await session.call(made(
                group_id=group, member_id=member, member_epoch=epoch,
                rebalance_timeout_ms=max(patience, 300_000) if joining or whole else patience,
                subscribed_topic_names=wanted if joining or whole or told else None,
                topic_partitions=[] if joining else [
                    made.TopicPartition(topic_id=topic_id, partitions=list(indexes))
                    for topic_id, indexes in owned
                ],
            ), 1)
        except Broken:
            lost += 1
            whole = True
            continue
        code = ErrorCode(answer.error_code)
        whole = code != ErrorCode.NONE
        if code == ErrorCode.NONE:
            if not joining and answer.member_epoch < epoch:
                raise Violation(
                    f"member {name!r} goes from member epoch {epoch} back to {answer.member_epoch}"
                )
            epoch, heard_at, lost = answer.member_epoch, asked_at, 0
            if answer.assignment is not None:
                owned = [
                    (part.topic_id, tuple(part.partitions))
                    for part in answer.assignment.topic_partitions
                ]
        elif code in (
            ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            if not joining and not lost:
                # After a lost answer, the broker may have a higher epoch than this member.
                story.member_lost(name, code, heard_at)
            epoch, owned, lost = 0, [], 0
            await asyncio.sleep(0.5)
        elif code not in AGAIN and code not in GONE:
            raise Violation(
                f"a heartbeat of member {name!r} is answered {code.name} {answer.error_message}"
            )
        if story.options.rivals and epoch > 0 and not lost and chance.random() < 0.2:
            await commit_as_member(story, session, group, (member, epoch))
        if random.random() < 0.03 and epoch > 0:
            try:
                await session.call(made(group_id=group, member_id=member, member_epoch=-1), 1)
            except Broken:
                pass
            epoch, owned, lost = 0, [], 0
            await asyncio.sleep(0.5)


async def commit_as_member(
    story: Story, session: Session, group: str, member: tuple[str, int]
) -> None:
    """Commit an offset with the member's id and epoch."""
    topics = story.model.live()
    if topics:
        topic = story.random.choice(topics)
        key = group, topic, story.random.randrange(len(topic.partitions))
        name, epoch = member
        with contextlib.suppress(Broken):
            await commit(story, session, key, story.random.randrange(3000, 4000), epoch, name)
