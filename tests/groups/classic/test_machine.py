"""Whatever members do, and however often the broker dies: no partition has two owners,
and a committed offset never goes back (classic protocol)."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.messages import Join, Joined, Leaving, NewMemberId, Sync, Synced
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.wire.errors import ErrorCode, ProtocolError, StorageFailed
from tests.groups.bench import Workbench

PARTITIONS = 5


class Client:
    """A consumer: what it knows about the group from the answers it has received."""

    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name, self.instance_id = name, instance_id
        self.member_id = ""
        self.generation = -1
        self.waits = False
        self.joined: Joined | None = None
        self.owned: set[int] = set()

    def lost(self) -> None:
        """Note that the client has learnt that it is no longer a member of this generation."""
        self.generation, self.joined, self.owned = -1, None, set()


class ClassicMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Workbench(
            group_initial_rebalance_delay_ms=100, offsets_topic_num_partitions=1
        )
        self.clients = [Client("a", None), Client("b", None), Client("c", "i"), Client("d", "i")]
        self.given: dict[tuple[int, int], str] = {}
        self.generations: dict[int, tuple[str, str | None]] = {}
        self.committed: dict[int, int] = {}
        self.next_offset = 0

    def change(self, operation: Any, heard: Any) -> None:
        try:
            self.bench.runtime.change("g", lambda s, r: operation(s, r, heard))
        except ProtocolError as error:
            heard(error)

    @rule(who=st.integers(0, 3))
    def join(self, who: int) -> None:
        client = self.clients[who]
        if client.waits:
            return
        request = Join(
            "g", client.member_id, client.instance_id, client.name, "/h", 10_000, 20_000,
            "consumer", (("range", b"\0\0\0\0\0\0\xff\xff\xff\xff"),),
        )
        client.lost()
        client.waits = True

        def heard(reply: Any) -> None:
            client.waits = False
            if isinstance(reply, NewMemberId):
                client.member_id = reply.member_id
            elif isinstance(reply, ProtocolError):
                client.member_id = ""
            else:
                self.hear_joined(client, reply)

        self.change(lambda s, r, a: s.join(request, a, r), heard)

    def hear_joined(self, client: Client, reply: Joined) -> None:
        client.member_id, client.generation, client.joined = (
            reply.member_id, reply.generation, reply,
        )
        if reply.members:
            # Only the leader gets the members, and a generation has one leader. A static leader may
            # return with another member id; it then skips the assignment.
            known = self.generations.setdefault(reply.generation, (reply.leader, reply.protocol))
            assert known == (reply.leader, reply.protocol) or reply.skip_assignment

    @rule(who=st.integers(0, 3))
    def sync(self, who: int) -> None:
        client = self.clients[who]
        if client.waits or client.joined is None:
            return
        assignments: tuple[tuple[str, bytes], ...] = ()
        if client.joined.members and not client.joined.skip_assignment:
            ids = [member.member_id for member in client.joined.members]
            assignments = tuple(
                (member_id, bytes(range(position, PARTITIONS, len(ids))))
                for position, member_id in enumerate(ids)
            )
        request = Sync(
            "g", client.generation, client.member_id, client.instance_id, "consumer", "range",
            assignments,
        )
        client.waits = True
        generation, member_id = client.generation, client.member_id

        def heard(reply: Any) -> None:
            client.waits = False
            if isinstance(reply, Synced):
                client.owned = set(reply.assignment)
                for partition in reply.assignment:
                    owner = self.given.setdefault((generation, partition), client.name)
                    # Clients c and d have the same instance id, so one may take the other's place.
                    same_instance = {owner, client.name} == {"c", "d"}
                    assert owner == client.name or same_instance, (generation, member_id)
            else:
                client.lost()

        self.change(lambda s, r, a: s.sync(request, a, r), heard)

    @rule(who=st.integers(0, 3))
    def heartbeat(self, who: int) -> None:
        client = self.clients[who]
        if client.waits or client.generation < 0:
            return
        try:
            self.bench.shard().heartbeat(
                "g", client.generation, client.member_id, client.instance_id,
                self.bench.runtime.tick_ms(),
            )
        except ProtocolError:
            client.lost()
            client.member_id = ""

    @rule(who=st.integers(0, 3))
    def leave(self, who: int) -> None:
        client = self.clients[who]
        if client.waits or not client.member_id:
            return
        leaving = [Leaving(client.member_id, client.instance_id)]
        self.change(lambda s, r, a: r.reply(a, s.leave("g", leaving, r)), lambda reply: None)
        client.lost()
        client.member_id = ""

    @rule(who=st.integers(0, 3), partition=st.integers(0, PARTITIONS - 1))
    def commit(self, who: int, partition: int) -> None:
        client = self.clients[who]
        if client.waits or partition not in client.owned:
            return
        self.next_offset += 1
        offset = self.next_offset
        request = Commit(
            "g", [OffsetToCommit("t", partition, offset, -1, "")], client.member_id,
            client.instance_id, client.generation,
        )

        def heard(reply: Any) -> None:
            if reply == [ErrorCode.NONE]:
                self.committed[partition] = offset

        self.change(lambda s, r, a: r.reply(a, s.commit(request, r)), heard)

    @rule(ms=st.sampled_from([50, 100, 3_000, 9_000, 21_000]))
    def wait(self, ms: int) -> None:
        self.bench.wait(ms)

    @rule(is_full=st.booleans())
    def fill_disk(self, is_full: bool) -> None:
        self.bench.refusal = StorageFailed("disk full") if is_full else None

    @rule(seed=st.none() | st.integers(0, 2**32))
    def crash(self, seed: int | None) -> None:
        if seed is None:
            self.bench.crash()
        else:
            self.bench.compact(seed)
        for client in self.clients:
            client.waits = False  # its connection broke
        # A generation that was not recorded is lost. Its number is assigned again, to members with
        # other ids.
        group = self.bench.shard().groups.get("g")
        last = group.generation if isinstance(group, ClassicGroup) else 0
        self.generations = {g: told for g, told in self.generations.items() if g <= last}
        self.given = {key: owner for key, owner in self.given.items() if key[0] <= last}

    @rule()
    def slow_disk(self) -> None:
        self.bench.hold_commits = True

    @precondition(lambda self: self.bench.hold_commits)
    @rule()
    def disk_catches_up(self) -> None:
        self.bench.hold_commits = False
        self.bench.commit_all()

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        for partition, offset in self.committed.items():
            found = self.bench.shard().offsets.find("g", "t", partition)
            assert found is not None and found.offset >= offset


ClassicMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestClassicGroups = ClassicMachine.TestCase
