"""However many offsets are deleted, other clients are served between two slices, and no commit that
is made meanwhile is lost."""

from __future__ import annotations

from itertools import count
from unittest import mock

import pytest

from ottla.groups.cluster_view import Topic
from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply
from ottla.groups.offset_requests import Commit, OffsetToCommit, has_expired
from ottla.groups.records import CommittedOffset
from ottla.groups.sweeps import LOOKS_MAX
from ottla.wire.errors import ErrorCode
from tests.groups.bench import Workbench

MANY = 5 * LOOKS_MAX
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16
RETENTION_MS = 3_600_000


@pytest.fixture
def bench() -> Workbench:
    return Workbench(
        offsets_topic_num_partitions=1, offsets_retention_minutes=RETENTION_MS // 60_000
    )


def commit(
    bench: Workbench, partitions: range, topic_id: bytes = OLD_ID, group: str = "g", who: int = -1
) -> None:
    offsets = [OffsetToCommit("t", index, 5, -1, "", topic_id) for index in partitions]
    request = Commit(group, offsets, transactional=who >= 0)
    answer = bench.ask(lambda s, r: s.commit(request, r), group, who)
    assert answer == [ErrorCode.NONE] * len(partitions)


def left(bench: Workbench, group: str = "g") -> set[int]:
    """The partitions for which the group still has an offset."""
    return {index for _, index in bench.shard().offsets.of_group(group)}


def longest_append(bench: Workbench) -> int:
    return max(len(records) for records in bench.appends)


def test_many_offsets_expire_in_slices_and_what_is_committed_in_between_stays(
    bench: Workbench,
) -> None:
    commit(bench, range(MANY))
    commit(bench, range(3), group="h")
    bench.appends.clear()
    bench.clock.elapsed_ms += 2 * RETENTION_MS
    bench.runtime.fire()
    assert MANY - LOOKS_MAX <= len(left(bench)) < MANY, "one slice is done"
    assert bench.runtime.next_timer_ms() == bench.clock.elapsed_ms + 1
    assert longest_append(bench) <= LOOKS_MAX
    commit(bench, range(MANY - 1, MANY))
    bench.wait(100)
    assert left(bench) == {MANY - 1}
    assert bench.shard().groups.keys() == {"g"}
    assert longest_append(bench) <= LOOKS_MAX + 1


@pytest.mark.parametrize(("expire_ms", "wall_ms", "expired"), [
    (-1, 999, False), (-1, 1000, True), (0, 0, True), (0, -1, False), (7, 6, False), (7, 7, True),
])
def test_an_offset_expires_at_its_own_time_or_after_the_retention(
    expire_ms: int, wall_ms: int, expired: bool
) -> None:
    value = CommittedOffset(5, -1, "", 0, expire_ms=expire_ms)
    assert has_expired(value, 0, wall_ms, retention_ms=1000) == expired


def test_many_groups_are_forgotten_in_slices(bench: Workbench) -> None:
    for number in range(2 * LOOKS_MAX):
        commit(bench, range(1), group=f"g{number}")
    bench.appends.clear()
    bench.wait(2 * RETENTION_MS)
    assert not bench.shard().groups and not bench.shard().offsets
    assert longest_append(bench) <= 2 * LOOKS_MAX
    bench.crash()
    assert not bench.shard().groups


def test_an_expiry_that_the_log_refuses_forgets_no_group(bench: Workbench) -> None:
    commit(bench, range(MANY))
    bench.clock.elapsed_ms += 2 * RETENTION_MS
    bench.runtime.fire()
    before = left(bench)
    bench.refusal = OSError(28, "no space left on device")
    with pytest.raises(OSError, match="no space"):
        bench.wait(100)
    bench.refusal = None
    bench.wait(100)
    assert "g" in bench.shard().groups and left(bench) < before
    bench.wait(2 * RETENTION_MS)
    assert not bench.shard().groups


@pytest.mark.parametrize("who", [-1, 7])
def test_a_deleted_topic_is_forgotten_in_slices_and_one_of_the_same_name_is_not(
    bench: Workbench, who: int
) -> None:
    commit(bench, range(MANY), who=who)
    bench.appends.clear()
    bench.runtime.change_all(lambda s, r: s.forget_topics(frozenset({"t"}), r))
    bench.cluster.topics["t"] = Topic("t", NEW_ID, MANY)
    commit(bench, range(MANY - 1, MANY), NEW_ID)
    bench.wait(100)
    bench.end_transaction("g", 7, True)
    assert left(bench) == {MANY - 1}
    assert longest_append(bench) <= LOOKS_MAX


def test_topics_that_are_deleted_meanwhile_are_forgotten_too(bench: Workbench) -> None:
    commit(bench, range(MANY))
    offsets = [OffsetToCommit("u", 0, 5, -1, "", OLD_ID)]
    bench.ask(lambda s, r: s.commit(Commit("a", offsets), r), "a")
    for topic in ("t", "u"):
        bench.runtime.change_all(lambda s, r, name=topic: s.forget_topics(frozenset({name}), r))
    bench.wait(100)
    assert not bench.shard().offsets


def test_a_deleted_topic_is_forgotten_later_if_the_log_refuses_that_at_first(
    bench: Workbench,
) -> None:
    commit(bench, range(3))
    bench.refusal = OSError(28, "no space left on device")
    with pytest.raises(OSError, match="no space"):
        bench.runtime.change_all(lambda s, r: s.forget_topics(frozenset({"t"}), r))
    bench.refusal = None
    bench.wait(100)
    assert left(bench) == {0, 1, 2}, "it is not tried again at once"
    bench.wait(RETENTION_MS // 2)
    assert not left(bench)


def test_timers_that_take_long_let_others_be_heard(bench: Workbench) -> None:
    """With a clock that advances at every reading, one call fires only a few of the due timers."""
    bench.cluster.make("t", 1)
    for number in range(100):
        topics = frozenset({"t"})
        beat = Heartbeat("g", f"m{number}", 0, None, None, 60_000, topics, owned=frozenset())
        assert isinstance(bench.ask(lambda s, r, beat=beat: s.beat(beat, r)), HeartbeatReply)
    group, clock, calls = bench.shard().groups["g"], bench.clock, 0
    clock.elapsed_ms += 60_000
    with mock.patch.object(clock, "monotonic", lambda: next(looks)):
        looks = (clock.elapsed_ms / 1000 + n / 1000 for n in count())
        while not group.is_empty:
            before = len(bench.records)
            bench.runtime.fire()
            assert len(bench.records) > before, "each call does something"
            calls += 1
    assert calls > 10
