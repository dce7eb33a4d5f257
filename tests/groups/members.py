"""Consumers of a group as a broker sees them: classic, eager or cooperative, or KIP-848.

Each consumer follows its assignment at once. It keeps its partitions until it learns that it has
lost them, or until its session must have ended. Commits of lost partitions may still arrive later,
as from a zombie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.groups.classic.messages import Join, Joined, Leaving, NewMemberId, Sync, Synced
from ottla.groups.classic.subscription import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.wire.errors import ErrorCode, ProtocolError
from tests.groups.bench import Workbench

TOPIC, GROUP = "t", "g"
CLASSIC_SESSION_MS, MODERN_SESSION_MS = 10_000, 45_000
CLASSIC_REBALANCE_MS, MODERN_REBALANCE_MS = 20_000, 60_000
"""Longer than the sessions: before a rebalance ends without a member, it has given up."""


@dataclass(frozen=True)
class Zombie:
    """Commits that are still to arrive, of partitions that the member has lost."""

    member_id: str
    epoch: int
    positions: dict[int, int]


class Member:
    """One consumer; `modern` speaks KIP-848, the others agree on one classic `protocol`."""

    def __init__(self, bench: Workbench, name: str, modern: bool, protocol: str) -> None:
        self.bench, self.name, self.modern, self.protocol = bench, name, modern, protocol
        self.present = self.waits = self.rejoins = self.told_all = False
        self.member_id = ""
        self.epoch = -1
        self.joined: Joined | None = None
        self.positions: dict[int, int] = {}
        self.silent_ms = 0
        self.zombies: list[Zombie] = []

    @property
    def owned(self) -> set[int]:
        """The partitions that it reads."""
        return set(self.positions)

    def own(self, partitions: set[int], epoch: int) -> None:
        """Own exactly these partitions, at this epoch. Partitions that the member did not own are
        read from their committed offsets."""
        lost = {p: at for p, at in self.positions.items() if p not in partitions}
        if lost:
            self.zombies.append(Zombie(self.member_id, self.epoch, lost))
        self.epoch = epoch
        offsets = self.bench.shard().offsets
        found = {p: offsets.find(GROUP, TOPIC, p) for p in partitions - self.owned}
        kept = {p: at for p, at in self.positions.items() if p in partitions}
        self.positions = kept | {p: 0 if at is None else at.offset for p, at in found.items()}

    def give_up(self) -> None:
        """Give up all partitions: the consumer knows, or must assume, that it is no longer a
        member."""
        self.own(set(), -1)
        self.member_id, self.joined = "", None
        self.rejoins = self.told_all = False

    def pass_time(self, ms: int) -> None:
        """Let time pass. A consumer without a pending request gives up after a session timeout
        without an answer."""
        self.silent_ms = 0 if self.waits else self.silent_ms + ms
        if self.silent_ms >= (MODERN_SESSION_MS if self.modern else CLASSIC_SESSION_MS):
            self.give_up()

    def disconnect(self) -> None:
        """Break the consumer's connection: a pending answer never arrives."""
        if self.waits:
            self.waits, self.rejoins = False, True
        self.told_all = False

    def step(self, lose_reply: bool = False) -> None:
        """Do what the consumer does next: join, sync, or send a heartbeat."""
        self.present = True
        if self.modern:
            self.beat(lose_reply)
        elif self.waits:
            pass
        elif self.joined is not None:
            self.sync()
        elif self.epoch < 0 or self.rejoins:
            self.join()
        else:
            self.heartbeat()

    def leave(self) -> None:
        """Leave the group. The consumer may return later, with the other protocol."""
        if self.waits:
            return
        if self.modern and self.epoch > 0:
            request = Heartbeat(GROUP, self.member_id, -1)
            self.bench.ask(lambda s, r: s.beat(request, r))
        elif not self.modern and self.member_id:
            leaving = [Leaving(self.member_id)]
            self._change(lambda s, r, a: r.reply(a, s.leave(GROUP, leaving, r)), lambda _: None)
        self.give_up()
        self.present = False

    def _change(self, operation: Any, heard: Any) -> None:
        try:
            self.bench.runtime.change(GROUP, lambda s, r: operation(s, r, heard))
        except ProtocolError as error:
            heard(error)

    # KIP-848

    def beat(self, lose_reply: bool) -> None:
        if self.epoch <= 0:
            self.member_id = self.member_id or self.bench.new_id()
            self.epoch, self.told_all = 0, False
        told = frozenset((self.bench.cluster.topics[TOPIC].topic_id, p) for p in self.positions)
        full = not self.told_all
        request = Heartbeat(
            GROUP, self.member_id, self.epoch, None, None, MODERN_REBALANCE_MS if full else -1,
            frozenset({TOPIC}) if full else None, None, None, told, "client", "/h",
        )
        reply = self.bench.ask(lambda s, r: s.beat(request, r))
        if not isinstance(reply, HeartbeatReply):
            self.give_up()
        elif lose_reply:
            self.told_all, self.silent_ms = False, 0
        else:
            self.told_all, self.silent_ms = True, 0
            told_to = reply.assignment
            owned = self.owned if told_to is None else {index for _, index in told_to}
            self.own(owned, reply.member_epoch)

    # The classic protocol

    def join(self) -> None:
        if self.protocol == "range":
            self.own(set(), self.epoch)  # eager: all partitions are revoked first
        data = write_subscription(
            Subscription((TOPIC,), owned={TOPIC: tuple(sorted(self.owned))}), 1
        )
        request = Join(
            GROUP, self.member_id, None, self.name, "/h", CLASSIC_SESSION_MS, CLASSIC_REBALANCE_MS,
            "consumer", ((self.protocol, data),),
        )
        self.waits, self.rejoins, self.silent_ms = True, False, 0
        self._change(lambda s, r, a: s.join(request, a, r), self.hear_join)

    def hear_join(self, reply: Any) -> None:
        self.waits, self.silent_ms = False, 0
        if isinstance(reply, NewMemberId):
            self.member_id = reply.member_id
            self.rejoins = True
        elif isinstance(reply, Joined):
            self.member_id, self.joined = reply.member_id, reply
        else:
            self.give_up()

    def sync(self) -> None:
        joined, self.joined = self.joined, None
        assert joined is not None
        assignments = ()
        if joined.members and not joined.skip_assignment:
            partitions = self.bench.cluster.topics[TOPIC].partitions
            assignments = assign(joined, partitions)
        request = Sync(
            GROUP, joined.generation, self.member_id, None, "consumer", self.protocol, assignments
        )
        self.waits = True
        self._change(
            lambda s, r, a: s.sync(request, a, r),
            lambda reply: self.hear_sync(joined.generation, reply),
        )

    def hear_sync(self, generation: int, reply: Any) -> None:
        self.waits, self.silent_ms = False, 0
        if isinstance(reply, Synced):
            given = set(read_assignment(reply.assignment).get(TOPIC, ()))
            # Cooperative: a member that revokes partitions joins again, so that others may get
            # them.
            self.rejoins = bool(self.owned - given)
            self.own(given, generation)
        elif reply.code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoins = True
        else:
            self.give_up()

    def heartbeat(self) -> None:
        try:
            code = self.bench.heartbeat(GROUP, self.epoch, self.member_id, None)
        except ProtocolError as error:
            code = error.code
        self.silent_ms = 0
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif code != ErrorCode.NONE:
            self.give_up()

    # Offsets

    def commit(self, partition: int) -> int | None:
        """Read one record and commit; returns the offset if the commit was acknowledged."""
        if self.waits or self.joined is not None or partition not in self.positions:
            return None
        self.positions[partition] += 1
        offset = self.positions[partition]
        code = self._commit(self.member_id, self.epoch, partition, offset)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.give_up()
        return offset if code is ErrorCode.NONE else None

    def haunt(self) -> None:
        """Let the newest delayed commits arrive.

        If the member still has the epoch of these commits, drop them: the coordinator would accept
        them, as Apache Kafka does. (A KIP-848 member keeps its epoch while it has more partitions
        to revoke.)
        """
        zombie = self.zombies.pop()
        group = self.bench.shard().groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            member = group.members.get(zombie.member_id)
            if member is not None and member.epoch == zombie.epoch:
                return
        for partition, offset in zombie.positions.items():
            self._commit(zombie.member_id, zombie.epoch, partition, offset)

    def _commit(self, member_id: str, epoch: int, partition: int, offset: int) -> ErrorCode:
        commits = [OffsetToCommit(TOPIC, partition, offset, -1, "")]
        request = Commit(GROUP, commits, member_id, None, epoch)
        told: list[Any] = []
        self._change(lambda s, r, a: r.reply(a, s.commit(request, r)), told.append)
        reply = told[0]
        code: ErrorCode = reply[0] if isinstance(reply, list) else reply.code
        return code


def assign(joined: Joined, partitions: int) -> tuple[tuple[str, bytes], ...]:
    """The assignments that a leader makes: partitions are spread evenly, and members keep as many
    of their partitions as possible. A partition moves only after its owner has revoked it."""
    owned: dict[str, set[int]] = {}
    for member in joined.members:
        subscription = read_subscription(member.metadata)
        assert subscription is not None
        owned[member.member_id] = set(subscription.owned.get(TOPIC, ()))
    most = -(-partitions // len(owned))
    given = {who: set(sorted(has)[:most]) for who, has in owned.items()}
    for partition in set(range(partitions)) - set().union(*owned.values()):
        given[min(given, key=lambda who: len(given[who]))].add(partition)
    return tuple((who, write_assignment({TOPIC: has})) for who, has in given.items())
