"""The runtime's promises, whatever happens to the log."""

from __future__ import annotations

import logging
from typing import Any
from unittest import mock

import pytest

from ottla.groups.classic.messages import Join
from ottla.groups.consumer.heartbeat import Heartbeat
from ottla.groups.errors import NotCoordinator, RebalanceInProgress
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.groups.record_codec import decode_record
from ottla.groups.records import NO_PRODUCER, Marker, Producer
from ottla.groups.result import Result
from ottla.groups.routing import java_hash, partition_for
from ottla.groups.runtime import Runtime
from ottla.groups.shard import Shard
from ottla.groups.shard_runtime import (
    CHANGE_SECONDS_MAX,
    FIRE_SECONDS_MAX,
    GATHERED_RECORDS_MAX,
)
from ottla.wire.errors import ErrorCode, NotLeaderOrFollower, ProtocolError, StorageFailed
from tests.groups.bench import Workbench


def commit(bench: Workbench, offset: int, answers: list[Any], group: str = "g") -> None:
    request = Commit(group, [OffsetToCommit("t", 0, offset, -1, "")])
    bench.runtime.change(group, lambda s, r: s.commit(request, r), answers.append)


def gather(bench: Workbench, offset: int, answers: list[Any], **who: Any) -> None:
    request = Commit("g", [OffsetToCommit("t", 0, offset, -1, "")], **who)
    bench.runtime.gather("g", lambda s, r: s.commit(request, r), answers.append)


def fetch(bench: Workbench, answers: list[Any]) -> None:
    bench.runtime.change("g", lambda s, r: s.fetch_offsets("g", None, False), answers.append)


def test_nobody_learns_of_an_offset_that_is_not_committed() -> None:
    bench, answers = Workbench(), []
    bench.hold_commits = True
    commit(bench, 5, answers)
    fetch(bench, answers)
    assert answers == []
    bench.commit_all()
    assert answers[0] == [ErrorCode.NONE]
    assert answers[1][0].value.offset == 5


def test_commits_are_answered_in_their_order_each_with_its_own_append() -> None:
    bench, answers = Workbench(), []
    bench.hold_commits = True
    for offset in range(3):
        commit(bench, offset, answers)
    first, *others = bench.uncommitted
    first(None)
    assert len(answers) == 1
    for done in others:
        done(None)
    assert len(answers) == 3


def test_who_waits_too_long_for_the_replicas_is_told_to_ask_again() -> None:
    """The wait must be limited: it also holds up the heartbeats that a member sends after the
    request."""
    bench, answers = Workbench(), []
    bench.hold_commits = True
    commit(bench, 5, answers)
    bench.wait(3_000)
    commit(bench, 6, answers)
    bench.wait(1_999)
    assert answers == []
    bench.wait(1)
    assert codes(answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    fetch(bench, answers)
    bench.wait(3_000)
    assert codes(answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    fetch(bench, answers)
    bench.wait(4_999)
    assert len(answers) == 3, "each has its own time"
    bench.commit_all()
    assert answers[3][0].value.offset == 6, "what was appended stays"
    assert len(answers) == 4, "each is answered once"
    bench.wait(60_000)
    assert len(answers) == 4


def test_a_shard_that_is_unloaded_has_nobody_wait_for_its_replicas() -> None:
    bench, answers = Workbench(), []
    bench.hold_commits = True
    commit(bench, 5, answers)
    bench.runtime.unload(bench.partition())
    bench.wait(60_000)
    assert codes(answers) == [ErrorCode.NOT_COORDINATOR]


def codes(answers: list[Any]) -> list[ErrorCode]:
    return [answer.code for answer in answers]


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (NotLeaderOrFollower("moved"), ErrorCode.NOT_COORDINATOR),
        (StorageFailed("full"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_refused_append_changes_nothing(refusal: ProtocolError, code: ErrorCode) -> None:
    bench, answers = Workbench(), []
    bench.refusal = refusal
    commit(bench, 5, answers)
    assert answers[0].code is code
    bench.refusal = None
    fetch(bench, answers)
    assert answers[1] == []


def stale(bench: Workbench, answers: list[Any], producer_id: int = -1) -> None:
    """Send a commit of a member that the coordinator does not know."""
    request = Commit("g", [OffsetToCommit("t", 0, 1, -1, "")], "m", generation=3,
                     transactional=producer_id >= 0)
    producer = NO_PRODUCER if producer_id < 0 else Producer(producer_id, 0)
    bench.runtime.change("g", lambda s, r: s.commit(request, r), answers.append, producer)


def test_in_a_cluster_a_final_refusal_waits_until_it_is_confirmed() -> None:
    bench, answers = Workbench(replicated=True), []
    bench.hold_commits = True
    stale(bench, answers)
    assert answers == []
    bench.commit_all()
    assert answers[0].code is ErrorCode.GROUP_ID_NOT_FOUND
    bench.crash()
    assert not bench.shard().groups, "what confirms it changes nothing"


def test_an_attempt_that_is_refused_for_good_is_answered_once_that_is_confirmed() -> None:
    bench, answers = Workbench(replicated=True), []
    bench.hold_commits = True
    request = Commit("g", [OffsetToCommit("t", 0, 1, -1, "")], "m", generation=3)
    bench.runtime.attempt("g", lambda s, r: s.commit(request, r), answers.append)
    assert answers == []
    bench.commit_all()
    assert codes(answers) == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_an_attempt_that_is_refused_for_now_keeps_its_effects_and_is_not_answered_again() -> None:
    bench, answers, effects = Workbench(replicated=True), [], []

    def attempt(shard: Shard, result: Result) -> None:
        result.reply(effects.append, "an effect")
        raise RebalanceInProgress("join again")

    with pytest.raises(RebalanceInProgress):
        bench.runtime.attempt("g", attempt, answers.append)
    assert (effects, answers) == (["an effect"], [])


def test_a_coordinator_that_can_commit_nothing_refuses_nothing_for_good() -> None:
    bench, answers = Workbench(replicated=True), []
    bench.refusal = NotLeaderOrFollower("moved")
    stale(bench, answers)
    assert answers[0].code is ErrorCode.NOT_COORDINATOR


def test_alone_a_refusal_is_not_recorded() -> None:
    bench, answers = Workbench(), []
    stale(bench, answers)
    assert answers[0].code is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.records == []


def test_a_refused_transactional_commit_is_confirmed_outside_of_the_transaction() -> None:
    bench, answers = Workbench(replicated=True), []
    stale(bench, answers, producer_id=7)
    assert answers[0].code is ErrorCode.GROUP_ID_NOT_FOUND
    ((_, producer_id),) = bench.logs[bench.partition()]
    assert producer_id == -1


def test_refusals_and_commits_of_one_turn_are_one_record_each_way() -> None:
    bench, answers = Workbench(replicated=True), []
    bench.turn_goes_on = True
    for _ in range(3):
        gather(bench, 5, answers, member_id="m", generation=3)
    bench.end_turn()
    assert [each.code for each in answers] == [ErrorCode.GROUP_ID_NOT_FOUND] * 3
    assert [len(each) for each in bench.appends] == [1]
    gather(bench, 6, answers)
    gather(bench, 5, answers, member_id="m", generation=3)
    bench.end_turn()
    assert [len(each) for each in bench.appends] == [1, 1], "the commit confirms it"
    assert answers[3] == [ErrorCode.NONE]


@pytest.mark.parametrize("pattern", [None, "t.*"])
def test_new_partitions_are_assigned_though_the_log_refused_to_record_it_at_first(
    pattern: str | None,
) -> None:
    bench = Workbench()
    bench.cluster.make("t", 1)
    topics = None if pattern else frozenset({"t"})
    joins = Heartbeat("g", "m", 0, None, None, 60_000, topics, pattern, owned=frozenset())
    joined = bench.ask(lambda s, r: s.beat(joins, r))
    assert len(joined.assignment) == 1
    bench.cluster.make("t", 2)
    if pattern:
        bench.cluster.make("tt", 1)
    beat = Heartbeat("g", "m", joined.member_epoch, owned=joined.assignment)
    bench.refusal = StorageFailed("full")
    assert isinstance(bench.ask(lambda s, r: s.beat(beat, r)), StorageFailed)
    bench.refusal = None
    told = bench.ask(lambda s, r: s.beat(beat, r))
    assert len(told.assignment) == (3 if pattern else 2)


def test_a_failure_of_ours_is_told_and_does_not_break_what_comes_after() -> None:
    bench, answers = Workbench(), []
    bench.refusal = ValueError("a name that no record can hold")
    with pytest.raises(ValueError, match="no record"):
        commit(bench, 5, answers)
    assert answers[0].code is ErrorCode.UNKNOWN_SERVER_ERROR
    bench.refusal = None
    commit(bench, 6, answers)
    assert answers[1] == [ErrorCode.NONE]


def fail_at_the_next_append(bench: Workbench) -> None:
    """Let the next append fail like a log directory: its shards are unloaded before the failure is
    reported."""

    def append(*_: Any) -> None:
        bench.runtime.unload(bench.partition())
        raise StorageFailed("the disk is gone")

    bench.append = append


def test_nobody_waits_in_a_group_whose_log_fails_at_the_commits_of_the_same_turn() -> None:
    """A JoinGroup waits until its group is complete. In a group that is no longer here, it would
    wait for ever."""
    bench, answers = turn_of_commits(5)
    fail_at_the_next_append(bench)
    join = Join("g", "", None, "c", "/h", 10_000, 60_000, "consumer", (("range", b""),), False)
    for ask in (bench.runtime.change, bench.runtime.attempt):
        with pytest.raises(NotCoordinator):
            ask("g", lambda shard, result: shard.join(join, answers.append, result), answers.append)
    assert codes(answers) == [ErrorCode.NOT_COORDINATOR], "that of the commit"


@pytest.mark.parametrize("asked", ["timer", "all"])
def test_nothing_is_recorded_from_a_shard_that_its_own_turn_unloaded(asked: str) -> None:
    """The unloaded shard has state that is not in the log, and the partition's next shard may
    already append to the same log."""
    bench, answers = Workbench(offsets_topic_num_partitions=1), []
    commit(bench, 5, answers)
    bench.turn_goes_on = True
    gather(bench, 6, answers)
    appends: list[Any] = []

    def append(*batch: Any) -> None:
        appends.append(batch)
        bench.runtime.unload(bench.partition())
        raise StorageFailed("the disk is gone")

    bench.append = append
    if asked == "timer":
        bench.wait(bench.settings.offsets_retention_ms * 2)
    else:
        bench.runtime.change_all(lambda s, r: s.forget_topics(frozenset({"t"}), r))
    assert len(appends) == 1, "the commit's"


def test_a_log_directory_that_fails_at_an_append_sends_everybody_away_once() -> None:
    bench, answers = Workbench(), []
    bench.hold_commits = True
    commit(bench, 5, answers)
    fail_at_the_next_append(bench)
    commit(bench, 6, answers)
    assert [answer.code for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 2


def test_a_lost_commit_sends_everybody_to_the_next_coordinator() -> None:
    bench, answers = Workbench(), []
    bench.hold_commits = True
    commit(bench, 5, answers)
    commit(bench, 6, answers)
    bench.uncommitted[0](NotLeaderOrFollower("another broker leads"))
    assert bench.lost == [bench.partition()]
    assert [answer.code for answer in answers] == [
        ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR,
    ]
    with pytest.raises(NotCoordinator):
        bench.runtime.shard("g")


def turn_of_commits(*offsets: int) -> tuple[Workbench, list[Any]]:
    """A bench in which these offsets were committed in one turn of the loop, which has not ended,
    and a list of the answers."""
    bench, answers = Workbench(offsets_topic_num_partitions=1), []
    bench.turn_goes_on = True
    for offset in offsets:
        gather(bench, offset, answers)
    return bench, answers


def test_topics_that_are_deleted_while_a_shard_loads_take_their_offsets_along() -> None:
    bench, answers = Workbench(offsets_topic_num_partitions=1), []
    commit(bench, 5, answers)
    bench.runtime.unload(0)
    shard = bench.runtime.begin_load(0)
    for entry, producer in bench.logs[0]:
        record = decode_record(*entry)
        assert record is not None
        shard.replay(record, producer)
    deleted = frozenset({"t"})
    bench.runtime.change_all(lambda s, r: s.forget_topics(deleted, r))
    bench.runtime.adopt(shard)
    assert shard.fetch_offsets("g", [("t", 0)], False)[0].value is None
    bench.crash()
    assert not bench.shard().offsets
    commit(bench, 6, answers)
    bench.crash()
    assert len(bench.shard().offsets) == 1, "what is asked of all is asked once"


def test_the_commits_of_a_turn_are_one_append() -> None:
    bench, answers = turn_of_commits(5, 6, 7)
    assert bench.appends == [] and answers == []
    bench.end_turn()
    assert [[record.value.offset for record in append] for append in bench.appends] == [[5, 6, 7]]
    assert answers == [[ErrorCode.NONE]] * 3


def test_gathered_commits_wait_for_their_one_append_to_be_committed() -> None:
    bench, answers = turn_of_commits(5, 6)
    bench.hold_commits = True
    bench.end_turn()
    assert answers == [] and len(bench.uncommitted) == 1
    bench.commit_all()
    assert answers == [[ErrorCode.NONE]] * 2


def test_a_fetch_in_the_same_turn_finds_what_was_committed_before_it() -> None:
    bench, answers = turn_of_commits(5)
    fetch(bench, answers)
    assert answers[0] == [ErrorCode.NONE]
    assert answers[1][0].value.offset == 5
    bench.end_turn()
    assert len(bench.appends) == 1


def test_a_timer_in_the_same_turn_comes_after_the_commits() -> None:
    bench, answers = turn_of_commits(5)
    bench.wait(bench.settings.offsets_retention_ms * 2)  # the timer expires offsets, this one too
    assert answers == [[ErrorCode.NONE]]
    assert bench.records[0].value.offset == 5
    assert all(record.value is None for record in bench.records[1:]) and bench.records[1:]


def test_the_host_is_asked_to_wake_for_the_next_timer_and_for_each_earlier_one() -> None:
    bench, asked = Workbench(offsets_topic_num_partitions=1), []
    bench.wake = asked.append
    bench.start()

    def after(ms: int) -> None:
        bench.runtime.turn("g", lambda s, r: r.set_timer(f"after {ms}", "g", after_ms=ms))

    expiry_ms = bench.settings.offsets_retention_check_interval_ms
    assert asked == [expiry_ms]
    for ms in (5_000, 5_000, 7_000, 4_000):
        after(ms)
    assert asked == [expiry_ms, 5_000, 4_000]
    asked.clear()
    for ms in (3_999, 4_000, 5_000, 7_000):
        bench.clock.elapsed_ms = ms
        bench.runtime.fire()
    assert asked == [4_000, 5_000, 7_000, expiry_ms]
    after(1_000)
    assert asked[-1] == 8_000


@pytest.mark.parametrize(("over", "fired"), [(0.0, 3), (0.0001, 1)])
def test_timers_and_operations_on_all_shards_take_their_time_and_no_more(
    over: float, fired: int
) -> None:
    bench = Workbench(offsets_topic_num_partitions=3)
    groups = [next(f"g{n}" for n in range(99) if bench.partition(f"g{n}") == index)
              for index in range(3)]
    for group in groups:
        bench.runtime.turn(group, lambda s, r, group=group: r.set_timer("x", group, after_ms=5_000))
    done: list[int] = []
    for shard in bench.runtime.shards():
        shard.fire = lambda key, result: done.append(0)
    bench.clock.elapsed_ms = 5_000
    bench.turn_goes_on = True
    for limit, call in (
        (FIRE_SECONDS_MAX, bench.runtime.fire),
        (CHANGE_SECONDS_MAX, lambda: bench.runtime.change_all(lambda s, r: done.append(1))),
    ):
        begins = 2 if limit == FIRE_SECONDS_MAX else 1
        looks = [5.0] * begins + [5.0 + limit + over] * 99
        with mock.patch.object(bench.clock, "monotonic", mock.Mock(side_effect=looks)):
            call()
        assert len(done) == fired
        bench.runtime.fire()
        bench.end_turn()
        assert len(done) == 3
        done.clear()


def test_a_coordinator_is_alone_unless_it_is_told_otherwise() -> None:
    bench = Workbench()
    runtime = Runtime(bench.settings, bench.clock, bench, bench.new_id)
    result = Result(1, 1)
    runtime.begin_load(0).confirm("g", result)
    Shard(0, bench.settings, bench.new_id).confirm("g", result)
    assert result.records == []


def test_a_commit_that_cannot_be_encoded_does_not_touch_those_gathered_with_it() -> None:
    bench, answers = turn_of_commits(5)

    def encode(record: Any) -> Any:
        if record.value.offset == 6:
            raise OverflowError("a number that the log's format cannot hold")
        return record

    bench.encode = encode
    gather(bench, 6, answers)
    gather(bench, 7, answers)
    bench.end_turn()
    assert answers[0] == answers[2] == [ErrorCode.NONE]
    assert answers[1].code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert [record.value.offset for record in bench.records] == [5, 7]


def test_a_refused_commit_does_not_touch_those_gathered_with_it() -> None:
    bench, answers = turn_of_commits(5)
    gather(bench, 6, answers, member_id="nobody", generation=3)
    bench.end_turn()
    assert answers[0] == [ErrorCode.NONE]
    assert isinstance(answers[1], ProtocolError)
    assert [record.value.offset for record in bench.records] == [5]


def test_a_refused_append_changes_nothing_for_all_that_were_gathered() -> None:
    bench, answers = turn_of_commits(5, 6)
    bench.refusal = StorageFailed("full")
    bench.end_turn()
    assert [answer.code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    bench.refusal = None
    fetch(bench, answers)
    assert answers[2] == []


def test_who_leaves_in_the_middle_of_a_turn_tells_those_who_wait_for_its_end() -> None:
    bench, answers = turn_of_commits(5, 6)
    bench.runtime.unload(bench.partition())
    assert [answer.code for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 2
    bench.end_turn()
    assert bench.appends == []


def test_a_batch_does_not_grow_without_bound_in_a_long_turn() -> None:
    bench, answers = turn_of_commits(*range(GATHERED_RECORDS_MAX + 1))
    assert len(bench.appends[0]) == len(answers) == GATHERED_RECORDS_MAX
    bench.end_turn()
    assert len(answers) == GATHERED_RECORDS_MAX + 1


def test_groups_live_where_java_puts_them() -> None:
    hashes = {"": 0, "a": 97, "test-group": 627841412, "\u00e4\U0001f600": 1992007}
    assert {text: java_hash(text) for text in hashes} == hashes
    assert all(0 <= partition_for(f"group-{number}", 50) < 50 for number in range(1000))
    assert partition_for("polygenelubricants", 50) == 0  # its hash is the smallest int32


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("read_before", [0, 1, 2], ids=["nothing", "the offset", "the marker too"])
def test_a_marker_that_is_committed_while_a_shard_is_loaded_ends_its_offsets(
    read_before: int, commits: bool
) -> None:
    """A load reads the log, then waits until the records that it has read are committed. A marker
    may be appended in the meantime."""
    bench = Workbench()
    partition = partition_for("g", bench.settings.offsets_topic_num_partitions)
    request = Commit("g", [OffsetToCommit("t", 0, 5, -1, "")], transactional=True)
    assert bench.ask(lambda s, r: s.commit(request, r), "g", 7) == [ErrorCode.NONE]
    ((entry, producer_id),) = bench.logs[partition]
    assert not isinstance(entry, Marker)
    record = decode_record(*entry)
    assert record is not None
    bench.runtime.unload(partition)
    shard = bench.runtime.begin_load(partition)
    steps: list[Any] = [
        lambda: shard.replay(record, producer_id),
        lambda: shard.offsets.end_transaction(7, commits),
    ]
    for step in steps[:read_before]:
        step()
    shard.is_read = read_before > 0
    bench.runtime.end_transaction(partition, 7, commits)
    if read_before == 0:
        for step in steps:
            step()
    bench.runtime.adopt(shard)
    assert not shard.offsets.is_pending("g", "t", 0)
    found = shard.offsets.find("g", "t", 0)
    assert (found is not None and found.offset == 5) is commits


def test_changes_of_a_groups_state_are_in_the_log_and_what_is_loaded_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Workbench(group_initial_rebalance_delay_ms=0)
    bench.cluster.make("t", 1)
    caplog.set_level(logging.DEBUG, "ottla.groups")
    beat = Heartbeat("g", "m", 0, None, None, 60_000, frozenset("t"), owned=frozenset())
    for _ in range(2):
        bench.ask(lambda s, r: s.beat(beat, r))
    join = Join("h", "", None, "c", "/h", 10_000, 60_000, "consumer", (("range", b""),), False)
    bench.ask(lambda s, r: s.join(join, lambda reply: None, r), "h")
    told = [each.getMessage() for each in caplog.records]
    assert told[0].startswith("group g was absent; now it is ")
    assert told[-1].startswith("group h changes from Empty to ")
    assert len(told) == len(set(told)), "each change once"
    caplog.clear()
    bench.crash()
    assert not caplog.records
    caplog.set_level(logging.INFO, "ottla.groups")
    bench.ask(lambda s, r: s.beat(Heartbeat("g", "m", -1), r))
    assert not caplog.records
