"""Groups of several members: classic members that join, restart, fall silent and leave, some of
them static; members of KIP-848's protocol that share partitions; and a static member of that
protocol.

The leader of a generation writes a random number and the member's id into each assignment. So a
member notices an assignment that is from another leader or generation, or for another member.
At the end of a run the members only join and send heartbeats, and each group must settle
(`peace.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.marks import reached
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.simulation.groups import AGAIN, GONE
from tests.simulation.network import Broken
from tests.simulation.peace import Peace
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.session import Session
    from tests.simulation.story import Story

MEMBERS = 3
SESSION_MS, REBALANCE_MS = 6000, 3000
SILENT_SECONDS = 8.0
RETENTION = "offsets.retention.minutes"
PROTOCOLS = ("range", "roundrobin")
EMPTY = b"\0\1\0\0\0\0\0\0\0\0"
"""A subscription without topics."""
AWAY = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND}
STALE = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


class Together(Peace):
    """A classic group, with the leader and the assignments of each generation as its members know
    them."""

    def __init__(self, story: Story, group_id: str, forgotten: bool, stays: bool) -> None:
        """With `forgotten`, an empty group expires, and begins again with generation 1. With
        `stays`, the coordinator does not move, so no former coordinator answers from outdated
        state."""
        super().__init__(story, group_id, MEMBERS)
        self.forgotten, self.stays = forgotten, stays
        self.newest = -1
        """The newest generation in which a member has received its assignment. This generation is
        certainly in the log."""
        self.led_by: dict[int, bytes] = {}
        self.assigned: dict[tuple[int, bytes], str] = {}
        self.gone: dict[str, int] = {}
        """For each member id that is not used any more, the last generation that it was in."""
        self.told: dict[int, set[str]] = {}
        """The members of each generation according to its leader; static members by instance id."""

    def __repr__(self) -> str:
        each = [(member.instance or member.id, member.generation) for member in self.members]
        known = self.told.get(self.members[0].generation)
        return f"members with their generations {each}, members that the leader knows {known}"

    def is_whole(self) -> bool:
        """Whether all remaining members, and no others, are in one generation."""
        generation = self.members[0].generation
        return generation >= 0 and (
            all(each.generation == generation for each in self.members)
            and self.told.get(generation) == {each.instance or each.id for each in self.members}
        )

    def note(self, generation: int, assignment: bytes, member: ClassicMember) -> None:
        """Check the assignment that a member has received. The assignments of a generation come
        from one leader, and each is for one member. A static member may receive an assignment that
        was made for another member id of its instance. This happens if the answer with that id was
        lost, and the instance then joined the stable group again."""
        leader, _, assigned = assignment.partition(b" ")
        name, ids = member.name, member.ids
        same = member.instance is not None and assigned.startswith(f"{member.instance}-".encode())
        if assigned.decode() not in ids and not same:
            raise Violation(
                f"member {name!r} was assigned {assignment!r}, but its ids were {sorted(ids)}"
            )
        if self.forgotten:
            return
        self.newest = max(self.newest, generation)
        if self.led_by.setdefault(generation, leader) != leader:
            raise Violation(
                f"group {self.group_id!r}: two leaders made assignments in generation {generation}"
            )
        if self.assigned.setdefault((generation, assignment), name) != name:
            raise Violation(f"member {name!r} and another member were both assigned {assignment!r}")


    def joined(self, generation: int, newest: int, name: str, members: Iterable[str]) -> None:
        """Check an answer to JoinGroup. The generation must not be older than `newest`, which was
        the newest known generation when the request was sent. Only the leader's answer has
        `members`. None of them may be an id that was given up after an earlier generation."""
        if generation < newest and self.stays and not self.forgotten:
            raise Violation(
                f"member {name!r} joins generation {generation} of group {self.group_id!r}, which"
                f" was already in generation {newest}"
            )
        for each in members:
            if self.gone.get(each, generation) < generation:
                raise Violation(
                    f"member id {each!r} is in generation {generation} of group {self.group_id!r},"
                    f" though it was given up after generation {self.gone[each]}"
                )


class ClassicMember:
    """One member of a classic group."""

    def __init__(self, story: Story, together: Together, number: int, static: bool) -> None:
        self.story, self.together, self.number = story, together, number
        self.name = f"{together.group_id}{number}"
        self.session: Session = story.session(self.name)
        self.chance = Random(f"member {self.name} {story.world.seed}")
        self.instance = f"i{number}" if static else None
        self.id, self.generation = "", -1
        self.ids: set[str] = set()
        self.joined_in = -1
        self.unclear = ""
        """A member id whose last JoinGroup was not answered; the request may be served later."""
        self.protocols = PROTOCOLS
        self.leaves = False
        """Whether the member leaves for good, and does not ask for an assignment any more."""
        together.members.append(self)

    async def work(self) -> None:
        """Act until the run is over."""
        while not self.story.over:
            await asyncio.sleep(self.chance.expovariate(0.3 / self.story.pace))
            try:
                await (self._join() if self.generation < 0 else self._act())
            except Broken:
                pass
        if self.number == self.together.leaver:
            await self._retire()
        else:
            await self.together.rest(self, self._stay)

    async def _stay(self) -> None:
        """Send a heartbeat. If the answer says that the group rebalances, do what a client does."""
        if self.generation >= 0:
            await self._beat()
        if self.generation < 0:
            await self._join()

    async def _retire(self) -> None:
        """Join with the protocols in another order, so that the group rebalances. Then leave for
        good, possibly while the leader is computing assignments."""
        self.leaves, before = True, self.joined_in
        self.protocols = self.protocols[::-1]
        for _ in range(4):
            with contextlib.suppress(Broken):
                await self._join()
            if self.joined_in != before:
                reached("a member of a classic group left while its leader assigned, perhaps")
                break
            await asyncio.sleep(0.1)
        leaving = self.id
        self._forget()
        await self.together.leave(self, lambda: self._leave(leaving))

    async def _leave(self, member_id: str) -> bool:
        """Send LeaveGroup; returns whether the member has certainly left."""
        made = LeaveGroupRequest
        answer = await self.session.call(made(group_id=self.together.group_id, members=[
            made.Member(member_id=member_id, group_instance_id=self.instance)
        ]), 3)
        return answer.error_code not in AGAIN

    async def _join(self) -> None:
        made, newest = JoinGroupRequest, self.together.newest
        before, self.unclear = self.unclear, self.id
        answer = await self.session.call(made(
            group_id=self.together.group_id, session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS, member_id=self.id, group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[made.Protocol(name=each, metadata=EMPTY) for each in self.protocols],
        ), 5)
        self.unclear, code = before, ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
        elif code in AWAY:
            self.id = ""
        elif code is ErrorCode.NONE:
            self.id = answer.member_id
            self.ids.add(self.id)
            self.joined_in = answer.generation_id
            members = [each.member_id for each in answer.members]
            if members:
                self.together.told[self.joined_in] = {
                    each.group_instance_id or each.member_id for each in answer.members
                }
            self.together.joined(self.joined_in, newest, self.name, members)
            if not self.leaves:
                await self._sync(self.joined_in, members)
        elif code not in AGAIN and code not in STALE:
            raise Violation(f"JoinGroup of member {self.name!r} is answered {code.name}")

    async def _sync(self, generation: int, members: list[str]) -> None:
        made, term = SyncGroupRequest, self.chance.getrandbits(40)
        answer = await self.session.call(made(
            group_id=self.together.group_id, generation_id=generation, member_id=self.id,
            group_instance_id=self.instance, assignments=[
                made.Assignment(member_id=each, assignment=f"{term} {each}".encode())
                for each in members
            ],
        ), 3)
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            if len(members) > 1:
                reached("a leader assigned for several members")
            self.together.note(generation, answer.assignment, self)
            self.generation = generation
        elif code in AWAY:
            self.id = ""

    async def _act(self) -> None:
        chosen = self.chance.random()
        if chosen < 0.05:                   # a restart: a static member keeps its instance id
            self._forget()
            self.protocols = PROTOCOLS[:: self.chance.choice((1, -1))]
        elif chosen < 0.08:
            await asyncio.sleep(SILENT_SECONDS)
        elif chosen < 0.12:
            leaving = self.id
            self._forget()
            await self._leave(leaving)
        elif chosen < 0.16:
            await self._sync_late()
        else:
            await self._beat()

    async def _beat(self) -> None:
        answer = await self.session.call(HeartbeatRequest(
            group_id=self.together.group_id, generation_id=self.generation, member_id=self.id,
            group_instance_id=self.instance,
        ), 3)
        code = ErrorCode(answer.error_code)
        if code in AWAY or code in STALE:
            self.generation = -1
            self.id = "" if code in AWAY else self.id

    def _forget(self) -> None:
        """Give up the member id. Record it in `gone`, unless it belongs to a static member or a
        JoinGroup with this id may still be served."""
        if self.instance is None and self.id not in ("", self.unclear):
            self.together.gone[self.id] = self.joined_in
        self.id, self.generation = "", -1

    async def _sync_late(self) -> None:
        """Send a SyncGroup of an earlier generation, as if it had been delayed. It must get no
        assignment."""
        old = self.together.newest - 1
        if old < 1 or self.together.forgotten or not self.together.stays:
            return
        answer = await self.session.call(SyncGroupRequest(
            group_id=self.together.group_id, generation_id=old, member_id=self.id,
            group_instance_id=self.instance, assignments=[],
        ), 3)
        if answer.error_code == 0:
            raise Violation(
                f"member {self.name!r} syncs generation {old} after generation {old + 1}, and is"
                f" assigned {answer.assignment!r}"
            )


def classic_members(story: Story) -> list[ClassicMember]:
    """The members of one classic group; every second member is static."""
    forgotten = RETENTION in story.options.settings
    together = Together(story, "together", forgotten, story.coordinators_stay)
    return [ClassicMember(story, together, at, at % 2 == 1) for at in range(MEMBERS)]


async def be_static(story: Story, name: str) -> None:
    """Act as a static member of KIP-848's protocol that sometimes leaves temporarily and comes
    back, often with another member id. Its heartbeats must not fail with an unexpected error."""
    session, chance = story.session(name), Random(f"static {name} {story.world.seed}")
    made, group, lives, epoch = ConsumerGroupHeartbeatRequest, f"s-{name}", 0, 0
    while not story.over:
        await asyncio.sleep(chance.expovariate(0.3 / story.pace))
        member, chosen = f"{name}-{lives}", chance.random()
        leaves = epoch > 0 and chosen < 0.15
        try:
            answer = await session.call(made(
                group_id=group, member_id=member, member_epoch=-2 if leaves else epoch,
                instance_id=name, rebalance_timeout_ms=300_000 if epoch == 0 else -1,
                subscribed_topic_names=["a", "b"] if epoch == 0 else None,
                topic_partitions=[] if epoch == 0 else None,
            ), 1)
        except Broken:
            continue
        code = ErrorCode(answer.error_code)
        if leaves and code is ErrorCode.NONE:
            lives, epoch = lives + (chosen < 0.1), 0
        elif code is ErrorCode.NONE:
            epoch = answer.member_epoch
        elif code in (*AWAY, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNRELEASED_INSTANCE_ID):
            epoch = 0
        elif code not in AGAIN and code not in GONE:
            raise Violation(
                f"a heartbeat of member {name!r} is answered {code.name} {answer.error_message}"
            )


Owned = set[tuple[bytes, int]]
SHARED = ("a", "b", "t")
"""The topics to which the members of the KIP-848 group subscribe."""


class Sharers(Peace):
    """A group of KIP-848's protocol, with the partitions that its members believe they own."""

    def __init__(self, story: Story, group_id: str) -> None:
        super().__init__(story, group_id, MEMBERS)

    def __repr__(self) -> str:
        each = [(member.name, member.epoch, len(member.held)) for member in self.members]
        count = self.story.partitions_of(SHARED)
        return f"members with their epochs and numbers of partitions {each}, {count} partitions"

    def is_whole(self) -> bool:
        """Whether the remaining members have the same epoch and together own all partitions."""
        epoch, members = self.members[0].epoch, self.members
        held = [partition for each in members for partition in each.held]
        return epoch > 0 and len(held) == len({*held}) == self.story.partitions_of(SHARED) and (
            all(each.epoch == epoch and each.held == each.given for each in members)
        )

    def take(self, member: Sharer, wanted: Owned) -> None:
        """Check the partitions that a member is given, and add them to those that it owns. Another
        member whose session has not expired must not own one of them any more, because a member
        gives up a partition before another member gets it."""
        for other in self.members:
            both = other.held & wanted
            if both and other is not member and self.story.is_heard(other.heard_at):
                raise Violation(
                    f"member {member.name!r} is given the partitions {sorted(both)}, which member"
                    f" {other.name!r} still owns"
                )
        if len(self.members) > 1 and wanted:
            reached("a partition of a KIP-848 group went to one of several members")
        member.held |= wanted


class Sharer:
    """A member that gives up partitions some heartbeats after the coordinator asks for them."""

    def __init__(self, story: Story, group: Sharers, number: int) -> None:
        self.story, self.group, self.name = story, group, f"{group.group_id}{number}"
        self.number = number
        self.session: Session = story.session(self.name)
        self.chance = Random(f"sharer {self.name} {story.world.seed}")
        self.epoch, self.lives, self.heard_at = 0, 0, 0.0
        self.held: Owned = set()
        self.given: Owned = set()
        group.members.append(self)

    async def work(self) -> None:
        """Act until the run is over."""
        while not self.story.over:
            await asyncio.sleep(self.chance.expovariate(0.3 / self.story.pace))
            chosen = self.chance.random()
            try:
                if chosen < 0.04 and self.epoch > 0:
                    self.held.clear()
                    await self.beat(-1)
                    self.leave()
                elif chosen < 0.08:
                    self.leave()            # a restart: the old id stays until its session ends
                else:
                    await self.beat(self.epoch)
            except Broken:
                pass
        for life in range(self.lives if self.group.tidy else 0):
            await self._bury(life)
        if self.number == self.group.leaver:
            self.held.clear()
            await self.group.leave(self, lambda: self.beat(-1))
        else:
            await self.group.rest(self, lambda: self.beat(self.epoch))

    async def _bury(self, life: int) -> None:
        """Have an earlier member id of this member leave the group, if the group still has it."""
        made, code = ConsumerGroupHeartbeatRequest, ErrorCode.NOT_COORDINATOR
        while code in AGAIN:
            with contextlib.suppress(Broken):
                code = ErrorCode((await self.session.call(made(
                    group_id=self.group.group_id, member_id=f"{self.name}-{life}", member_epoch=-1,
                ), 1)).error_code)

    def leave(self) -> None:
        """Use another member id from now on."""
        self.lives, self.epoch = self.lives + 1, 0
        self.held, self.given = set(), set()

    async def beat(self, epoch: int) -> bool:
        """Send a heartbeat and follow its answer; returns whether the coordinator has served it."""
        made, joins, asked_at = ConsumerGroupHeartbeatRequest, epoch == 0, self.story.world.now
        if self.chance.random() < 0.7:
            self.held &= self.given         # give up partitions before reporting this
        topics: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(self.held):
            topics.setdefault(topic_id, []).append(index)
        answer = await self.session.call(made(
            group_id=self.group.group_id, member_id=f"{self.name}-{self.lives}", member_epoch=epoch,
            rebalance_timeout_ms=300_000, subscribed_topic_names=[*SHARED],
            topic_partitions=[] if joins else [
                made.TopicPartition(topic_id=each, partitions=of) for each, of in topics.items()
            ],
        ), 1)
        code = ErrorCode(answer.error_code)
        if epoch < 0:
            return code not in AGAIN
        if code is ErrorCode.NONE:
            if answer.member_epoch < epoch:
                raise Violation(
                    f"member {self.name!r} goes from member epoch {epoch} back to"
                    f" {answer.member_epoch}"
                )
            self.epoch, self.heard_at = answer.member_epoch, asked_at
            if answer.assignment is not None:
                self.given = {
                    (part.topic_id, index)
                    for part in answer.assignment.topic_partitions for index in part.partitions
                }
                self.group.take(self, self.given - self.held)
        elif code in (*AWAY, ErrorCode.FENCED_MEMBER_EPOCH):
            self.leave()
        elif code not in AGAIN and code not in GONE:
            raise Violation(
                f"a heartbeat of member {self.name!r} is answered {code.name}"
                f" {answer.error_message}"
            )
        return code not in AGAIN


def sharers(story: Story) -> list[Sharer]:
    """The members of the KIP-848 group."""
    group = Sharers(story, "shared")
    return [Sharer(story, group, at) for at in range(MEMBERS)]
