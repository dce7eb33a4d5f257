"""However offsets are committed (in transactions or not) and deleted, a group sees the offset that
was committed last since the last deletion. It is told which offsets an open transaction may still
change."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.groups.result import TimerKey
from ottla.groups.shard import EXPIRE
from ottla.wire.errors import ErrorCode
from tests.groups.bench import Workbench

GROUPS, TOPICS, PRODUCERS = ["g", "h"], ["t", "u"], [7, 8]
Index = tuple[str, str]
"""A group and a topic, whose partition 0 is meant."""
RETENTION_MS = 3_600_000


@dataclass
class Committed:
    """An offset in the log. `producer_id` is the producer of its transaction, or -1 if it was
    committed without a transaction."""

    offset: int
    producer_id: int
    is_open: bool = False
    counts: bool = True
    at_ms: int = 0


class OffsetsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Workbench(
            offsets_topic_num_partitions=1, offsets_retention_minutes=RETENTION_MS // 60_000
        )
        for topic in TOPICS:
            self.bench.cluster.make(topic, 1)
        self.log: dict[Index, list[Committed]] = {(g, t): [] for g in GROUPS for t in TOPICS}
        """What was committed since the last deletion."""
        self.next_offset = 0

    groups, topics = st.sampled_from(GROUPS), st.sampled_from(TOPICS)
    producers = st.sampled_from(PRODUCERS)

    @rule(group=groups, topic=topics, producer_id=st.sampled_from([-1, *PRODUCERS]))
    def commit(self, group: str, topic: str, producer_id: int) -> None:
        self.next_offset += 1
        offset = self.next_offset
        offsets = [OffsetToCommit(topic, 0, offset, -1, "", topic.encode().ljust(16, b"."))]
        request = Commit(group, offsets, transactional=producer_id >= 0)
        answer = self.bench.ask(lambda s, r: s.commit(request, r), group, producer_id)
        assert answer == [ErrorCode.NONE]
        now_ms = self.bench.clock.elapsed_ms
        made = Committed(offset, producer_id, producer_id >= 0, producer_id < 0, now_ms)
        self.log[group, topic].append(made)

    @rule(producer_id=producers, commits=st.booleans())
    def end(self, producer_id: int, commits: bool) -> None:
        self.bench.end_transaction("g", producer_id, commits)
        for commits_of_index in self.log.values():
            for each in commits_of_index:
                if each.is_open and each.producer_id == producer_id:
                    each.is_open, each.counts = False, commits

    @rule(group=groups)
    def delete_group(self, group: str) -> None:
        self.bench.ask(lambda s, r: s.delete_group(group, r), group)
        assert group not in self.bench.shard().groups
        for topic in TOPICS:
            self.log[group, topic].clear()

    @rule(group=groups, topic=topics)
    def delete_offset(self, group: str, topic: str) -> None:
        self.bench.ask(lambda s, r: s.delete_offsets(group, [(topic, 0)], r), group)
        self.log[group, topic].clear()

    @rule(topic=topics, anew=st.booleans())
    def delete_topic(self, topic: str, anew: bool) -> None:
        self.bench.cluster.drop(topic)
        self.bench.runtime.change_all(lambda s, r: s.forget_topics(frozenset({topic}), r))
        self.bench.cluster.make(topic, 1)
        for group in GROUPS:
            self.log[group, topic].clear()

    @rule(ms=st.sampled_from([1_000, RETENTION_MS // 2, RETENTION_MS + 600_000]))
    def wait(self, ms: int) -> None:
        """Let time pass. Offsets expire unless a transaction may still change them."""
        self.bench.wait(ms)
        self.bench.runtime.change("g", lambda s, r: s.fire(TimerKey(EXPIRE, ""), r))
        for commits in self.log.values():
            seen = self.seen(commits)
            is_held = any(each.is_open for each in commits)
            if seen and not is_held and self.age_of(seen[-1]) >= RETENTION_MS:
                commits.clear()

    def age_of(self, commit: Committed) -> int:
        return self.bench.clock.elapsed_ms - commit.at_ms

    @rule()
    def crash(self) -> None:
        self.bench.crash()

    @rule(seed=st.integers(0, 2**32))
    def compact(self, seed: int) -> None:
        self.bench.compact(seed)

    @staticmethod
    def seen(commits: list[Committed]) -> list[Committed]:
        return [each for each in commits if each.counts]

    @invariant()
    def everybody_sees_the_last_commit_that_counts(self) -> None:
        shard = self.bench.shard()
        for (group, topic), commits in self.log.items():
            seen = self.seen(commits)
            (found,) = shard.fetch_offsets(group, [(topic, 0)], False)
            assert (found.value and found.value.offset) == (seen[-1].offset if seen else None)
            (stable,) = shard.fetch_offsets(group, [(topic, 0)], True)
            is_held = any(each.is_open for each in commits)
            assert (stable.code is ErrorCode.UNSTABLE_OFFSET_COMMIT) == is_held
            if seen or is_held:
                assert group in shard.groups


OffsetsMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestOffsets = OffsetsMachine.TestCase
