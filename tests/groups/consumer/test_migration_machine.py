"""Classic and KIP-848 members are in one group, which is upgraded and downgraded. No partition has
two owners, and committed offsets never go back. When nothing changes any more, every partition is
read.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.wire.errors import StorageFailed
from tests.groups.bench import Workbench
from tests.groups.members import GROUP, TOPIC, Member

MEMBERS = 4
QUIET_ROUNDS = 120
"""With one second for each round, this is longer than any session and any rebalance."""


class MigrationMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Workbench(
            group_initial_rebalance_delay_ms=100, offsets_topic_num_partitions=1
        )
        self.members: list[Member] = []
        self.acknowledged: dict[int, int] = {}
        self.seen: dict[int, int] = {}

    @initialize(
        partitions=st.integers(1, 6),
        modern=st.lists(st.booleans(), min_size=MEMBERS, max_size=MEMBERS),
        protocol=st.sampled_from(["range", "cooperative-sticky"]),
    )
    def begin(self, partitions: int, modern: list[bool], protocol: str) -> None:
        self.bench.cluster.make(TOPIC, partitions)
        self.members = [
            Member(self.bench, name, kind, protocol)
            for name, kind in zip("abcd", modern, strict=True)
        ]

    who = st.integers(0, MEMBERS - 1)

    @rule(who=who, lose_reply=st.booleans())
    def step(self, who: int, lose_reply: bool) -> None:
        self.members[who].step(lose_reply)

    @rule(rounds=st.integers(1, 5))
    def run_rounds(self, rounds: int) -> None:
        for _ in range(rounds):
            for member in self.members:
                if member.present:
                    member.step()
                    self.nothing_has_two_owners()
            self.wait(150)

    @rule(who=who, modern=st.booleans())
    def leave(self, who: int, modern: bool) -> None:
        member = self.members[who]
        member.leave()
        if not member.present:
            member.modern = modern

    @rule()
    def all_commit(self) -> None:
        for member in self.members:
            for partition in sorted(member.owned):
                offset = member.commit(partition)
                if offset is not None:
                    self.acknowledged[partition] = offset

    @precondition(lambda self: any(member.zombies for member in self.members))
    @rule()
    def haunt(self) -> None:
        next(member for member in self.members if member.zombies).haunt()

    @rule(ms=st.sampled_from([100, 3_000, 9_000, 21_000, 46_000]))
    def wait(self, ms: int) -> None:
        for member in self.members:
            member.pass_time(ms)
        self.bench.wait(ms)

    @rule(is_full=st.booleans())
    def fill_disk(self, is_full: bool) -> None:
        self.bench.refusal = StorageFailed("disk full") if is_full else None

    @rule()
    def crash(self) -> None:
        self.bench.crash()
        for member in self.members:
            member.disconnect()

    @rule(seed=st.integers(0, 2**32))
    def compact(self, seed: int) -> None:
        self.bench.compact(seed)
        for member in self.members:
            member.disconnect()

    @invariant()
    def nothing_has_two_owners(self) -> None:
        owned = [partition for member in self.members for partition in member.owned]
        assert len(owned) == len(set(owned)), {m.name: m.owned for m in self.members}

    @invariant()
    def committed_offsets_never_go_back(self) -> None:
        for partition, offset in self.acknowledged.items():
            found = self.bench.shard().offsets.find(GROUP, TOPIC, partition)
            assert found is not None
            assert found.offset >= max(offset, self.seen.get(partition, 0))
            self.seen[partition] = found.offset

    def teardown(self) -> None:
        """Let all live members follow their assignments until each partition is read by exactly
        one of them."""
        if not self.members:
            return
        self.bench.refusal = None
        for member in self.members[:1]:
            member.present = True
        there = [member for member in self.members if member.present]
        everything = list(range(self.bench.cluster.topics[TOPIC].partitions))
        quiet = 0
        for _ in range(QUIET_ROUNDS):
            for member in there:
                member.step()
                self.nothing_has_two_owners()
            self.bench.wait(1_000)
            settled = sorted(p for member in there for p in member.owned) == everything
            quiet = quiet + 1 if settled else 0
            if quiet == 3:
                break
        assert quiet, {m.name: (m.modern, m.epoch, m.waits, m.owned) for m in there}
        self.committed_offsets_never_go_back()


MigrationMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None
)
TestMigration = MigrationMachine.TestCase
