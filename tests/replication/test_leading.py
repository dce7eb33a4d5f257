"""A leader with followers: what is committed, which replicas are in sync, and answers to
acks=all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.coordination.commits import when_committed
from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import Cleaner
from ottla.log.partition.damage import Damage
from ottla.replication.partition import Partition
from ottla.replication.roles.assignment import assume
from ottla.replication.roles.follower_replica import FollowerReplica
from ottla.replication.roles.leader_replica import LeaderReplica
from ottla.wire.errors import NotEnoughReplicas, NotLeaderOrFollower
from ottla.wire.records import Record, build_batch
from tests.fakes import FakeClock
from tests.replication.fakes import LAG_MS, FakeClusterSide, batch, make_partition

Make = Callable[..., Partition]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cluster() -> FakeClusterSide:
    return FakeClusterSide()


@pytest.fixture
def make(tmp_path: Path, clock: FakeClock, cluster: FakeClusterSide) -> Make:
    def made(isr: tuple[int, ...] = (1, 2, 3), **settings: Any) -> Partition:
        part = make_partition(tmp_path, clock, cluster, **settings)
        assume(part, 1, 5, 1, (1, 2, 3), isr, 10)
        return part

    return made


def leading(part: Partition) -> LeaderReplica:
    assert isinstance(part.role, LeaderReplica)
    return part.role


def following(part: Partition) -> FollowerReplica:
    """Make broker 2 the leader; returns this broker's role, which is that of a follower."""
    assume(part, 2, 6, 1, (1, 2, 3), (1, 2), 13)
    assert isinstance(part.role, FollowerReplica)
    return part.role


def flush(part: Partition) -> None:
    part.log.flush()
    part.flushed(part.log.recovery_point)


def test_a_batch_is_committed_once_all_in_sync_have_it(make: Make) -> None:
    part = make()
    part.append_bytes(batch())
    assert part.fetched_by(2, 102, 1)
    assert part.high_watermark == 0
    assert part.fetched_by(3, 103, 1)
    assert (part.high_watermark, part.wants_flush()) == (1, False)


def test_only_replicas_under_the_broker_epoch_of_the_image_count(make: Make) -> None:
    part = make((1, 2))
    part.append_bytes(batch())
    assert not part.fetched_by(2, 99, 1)            # a former incarnation (KIP-903)
    assert not part.fetched_by(4, 104, 1)           # not a replica
    assert part.high_watermark == 0


def test_a_fetch_without_a_broker_epoch_does_not_count_for_a_broker_that_is_gone(
    make: Make, cluster: FakeClusterSide
) -> None:
    """A broker that has read that it was removed fetches without an epoch until it registers again.
    A proposal without an epoch would also be valid for the next process that registers with this
    id, even if its log is shorter (KIP-903)."""
    part = make((1, 2))
    part.append_bytes(batch())
    del cluster.broker_epochs[2], cluster.broker_epochs[3]
    assert not part.fetched_by(2, -1, 1)
    assert not part.fetched_by(3, -1, 1)
    assert part.high_watermark == 0
    assert part.propose_isr(1, 101) is None


def test_the_high_watermark_never_goes_back_in_an_epoch(make: Make) -> None:
    part = make((1, 2))
    part.append_bytes(batch())
    part.fetched_by(2, 102, 1)
    part.fetched_by(2, 102, 0)
    assert part.high_watermark == 1


def test_alone_in_sync_the_disk_counts_and_with_others_memory(
    make: Make, cluster: FakeClusterSide
) -> None:
    part = make((1,))
    part.append_bytes(batch())
    assert (part.high_watermark, part.wants_flush()) == (0, True)
    flush(part)
    assert part.high_watermark == 1
    assume(part, 1, 5, 1, (1, 2, 3), (1, 2), 11)
    part.append_bytes(batch())
    assert not part.wants_flush()
    assume(part, 1, 5, 1, (1, 2, 3), (1,), 12)  # the batch is now acknowledged after its flush
    assert (part.high_watermark, part.wants_flush()) == (1, True)
    assert cluster.flushes[-1] is part
    flush(part)
    assert part.high_watermark == 2


def test_with_flush_messages_what_a_leader_has_followed_counts_once_it_has_flushed_it(
    make: Make, cluster: FakeClusterSide
) -> None:
    """The former leader waited for a flush. A leader that is elected before this flush ends has to
    flush the records itself."""
    part = make((1, 2), flush=False, flush_messages=1)
    assume(part, 2, 6, 1, (1, 2, 3), (1, 2), 11)
    part.log.append_run_bytes(
        build_batch([Record(timestamp=1, value=b"v")], leader_epoch=6), 6)
    assume(part, 1, 7, 1, (1, 2, 3), (1,), 12)
    assert (part.high_watermark, part.wants_flush()) == (0, True)
    assert cluster.flushes == [part]
    flush(part)
    assert part.high_watermark == 1


def test_a_joining_replica_counts_from_its_proposal_on_and_a_leaving_one_until_it_is_decided(
    make: Make, clock: FakeClock, cluster: FakeClusterSide
) -> None:
    part = make((1, 2))
    part.fetched_by(2, 102, 0)
    assert not cluster.due
    part.fetched_by(3, 103, 0)
    assert cluster.due == [part]
    assert part.propose_isr(1, 101) == ((1, 101), (2, 102), (3, 103))
    assert part.propose_isr(1, 101) is None         # one proposal is open
    part.append_bytes(batch())
    part.fetched_by(2, 102, 1)
    clock.advance(10 * LAG_MS)
    part.brokers_changed()
    assert part.high_watermark == 0                 # 3 may be in sync by now
    part.proposal_failed()
    part.brokers_changed()
    assert part.high_watermark == 1
    part.append_bytes(batch())
    part.fetched_by(3, 103, 1)
    clock.advance(LAG_MS + 1)
    assert part.propose_isr(1, 101) == ((1, 101), (3, 103))     # 3 joins, 2 has not fetched again
    part.fetched_by(3, 103, 2)
    assert part.high_watermark == 1                 # 2 is in sync until the decision
    assume(part, 1, 5, 1, (1, 2, 3), (1, 3), 11)
    assert (part.high_watermark, part.role.proposed) == (2, None)


def test_who_is_at_the_end_is_caught_up_however_long_nothing_comes(
    make: Make, clock: FakeClock
) -> None:
    part = make((1, 2))
    part.append_bytes(batch())
    part.fetched_by(2, 102, 1)
    clock.advance(10 * LAG_MS)
    assert part.propose_isr(1, 101) is None
    part.append_bytes(batch())
    clock.advance(LAG_MS)
    assert part.propose_isr(1, 101) is None
    clock.advance(1)
    assert part.propose_isr(1, 101) == ((1, 101),)


def test_who_always_has_what_its_last_fetch_saw_is_caught_up(make: Make, clock: FakeClock) -> None:
    part = make((1, 2))
    part.fetched_by(2, 102, 0)
    for end in range(1, 20):                        # producers are always one batch ahead
        part.append_bytes(batch())
        clock.advance(LAG_MS // 2)
        part.append_bytes(batch())
        part.fetched_by(2, 102, 2 * end - 1)
        assert part.propose_isr(1, 101) is None


def test_a_new_leaders_followers_have_the_lag_time_to_be_heard(
    make: Make, clock: FakeClock
) -> None:
    part = make()
    clock.advance(LAG_MS)
    assert part.propose_isr(1, 101) is None
    clock.advance(1)
    assert part.propose_isr(1, 101) == ((1, 101),)


def test_nobody_joins_before_it_has_what_was_there_before_this_leader(
    tmp_path: Path, clock: FakeClock, cluster: FakeClusterSide
) -> None:
    part = make_partition(tmp_path, clock, cluster)
    assume(part, 1, 4, 1, (1, 2), (1, 2), 1)
    for _ in range(3):
        part.append_bytes(batch())
    assume(part, 1, 5, 1, (1, 2), (1,), 2)  # elected, with records that no other replica has
    assert (leading(part).epoch_start, part.end_is_known) == (3, False)
    part.fetched_by(2, 102, 1)
    assert not cluster.due
    flush(part)
    assert part.end_is_known
    part.fetched_by(2, 102, 3)
    assert cluster.due


def test_a_follower_that_is_gone_does_not_hold_the_high_watermark_back(
    make: Make, cluster: FakeClusterSide
) -> None:
    part = make((1, 2))
    part.fetched_by(2, 102, 0)
    part.fetched_by(3, 103, 0)                      # caught up, but not in sync
    part.append_bytes(batch())
    part.fetched_by(2, 102, 1)
    assert part.high_watermark == 0
    del cluster.broker_epochs[3]
    part.brokers_changed()
    assert part.high_watermark == 1


def test_who_comes_back_holds_nobody_back_for_having_been_in_sync(
    make: Make, clock: FakeClock, cluster: FakeClusterSide
) -> None:
    part = make((1, 2, 3))
    for node in (2, 3):
        part.fetched_by(node, 100 + node, 0)
    cluster.broker_epochs[3] = -1
    assume(part, 1, 5, 1, (1, 2, 3), (1, 2), 11)
    for _ in range(3):
        part.append_bytes(batch())
    part.fetched_by(2, 102, 3)
    assert part.high_watermark == 3
    cluster.broker_epochs[3] = 203
    part.brokers_changed()
    assert part.fetched_by(3, 203, 0)               # broker 3 has to catch up first
    part.append_bytes(batch())
    part.fetched_by(2, 102, 4)
    assert part.high_watermark == 4
    part.fetched_by(3, 203, 4)
    part.append_bytes(batch())
    part.fetched_by(2, 102, 5)
    assert part.high_watermark == 4, "caught up, it may be about to join"


def test_below_min_isr_acks_all_is_refused_before_the_append(make: Make) -> None:
    part = make((1,), min_insync_replicas=2)
    said = r"has 1 replica in sync, but min\.insync\.replicas is 2"
    with pytest.raises(NotEnoughReplicas, match=said):
        part.append_bytes(batch())
    assert part.log.log_end_offset == 0
    part.append_bytes(batch(), all_replicas=False)
    flush(part)
    assert part.high_watermark == 0                 # it stays until enough are in sync (KIP-966)
    assume(part, 1, 5, 1, (1, 2, 3), (1, 2), 11)
    part.fetched_by(2, 102, 1)
    assert part.high_watermark == 1


def test_a_coordinators_append_waits_on_below_min_isr_and_ends_with_the_leadership(
    make: Make,
) -> None:
    part = make((1, 2), min_insync_replicas=2)
    ended: list[Exception | None] = []
    part.append_bytes(batch())
    when_committed(part, ended.append)
    assume(part, 1, 5, 1, (1, 2, 3), (1,), 11)
    assert (ended, part.ended_code) == ([], 20)
    assume(part, 1, 5, 1, (1, 2, 3), (1, 2), 12)
    part.fetched_by(2, 102, 1)
    assert ended == [None]
    part.append_bytes(batch())
    when_committed(part, ended.append)
    assume(part, 2, 6, 1, (1, 2, 3), (1, 2), 13)
    assert isinstance(ended[1], NotLeaderOrFollower)
    assert (part.role.following, part.led_here) == (True, False)
    with pytest.raises(NotLeaderOrFollower):
        part.require_leader()


def test_a_follower_keeps_its_high_watermark_and_a_new_leader_goes_on_from_it(make: Make) -> None:
    part = make((1, 2))
    for _ in range(3):
        part.append_bytes(batch())
    part.fetched_by(2, 102, 2)
    assume(part, 2, 6, 1, (1, 2, 3), (1, 2), 11)
    assert part.high_watermark == 2
    assert part.flushed(3) is False                 # a flush here commits nothing
    assert part.high_watermark == 2
    assume(part, 1, 7, 1, (1, 2, 3), (1, 2), 12)
    assert (part.high_watermark, leading(part).epoch_start, part.end_is_known) == (2, 3, False)
    part.fetched_by(2, 102, 3)
    assert part.end_is_known


def test_an_older_image_changes_nothing(make: Make) -> None:
    part = make()
    assume(part, 2, 4, 1, (1, 2, 3), (1, 2, 3), 9)
    assert (part.leader_id, part.leader_epoch, part.led_here) == (1, 5, True)


def test_a_start_goes_by_the_checkpointed_high_watermark_within_the_log(
    make: Make, tmp_path: Path, clock: FakeClock, cluster: FakeClusterSide
) -> None:
    part = make((1, 2))
    for _ in range(3):
        part.append_bytes(batch())
    part.log.close()
    for checkpointed, expected in ((2, 2), (9, 3), (0, 0)):
        part = make_partition(tmp_path, clock, cluster, high_watermark=checkpointed)
        assume(part, 2, 6, 1, (1, 2, 3), (1, 2), 11)
        assert part.high_watermark == expected
        part.log.close()


def test_a_cut_takes_the_high_watermark_along(make: Make) -> None:
    part = make((1, 2))
    part.append_bytes(batch())
    assert following(part).cut_to(part, 1) is False    # nothing is truncated
    assert part.log.latest_epoch == 5
    # The leader has none of the records, and no checkpoint includes them.
    assert following(part).diverged(part, 4, 0, 0) is False
    assert (part.log.log_end_offset, part.high_watermark) == (0, 0)


def test_a_cut_below_the_recovery_point_has_to_be_checkpointed_first(make: Make) -> None:
    part = make((1,))
    part.append_bytes(batch())
    flush(part)
    part.append_bytes(batch())
    assert following(part).cut_to(part, 1) is False    # the second batch was not flushed
    assert following(part).cut_to(part, 0) is True
    assert following(part).start_anew(part, 17) is True
    assert (part.log.log_start_offset, part.high_watermark) == (17, 17)


def test_a_cut_below_the_high_watermark_has_to_be_checkpointed_first(make: Make) -> None:
    part = make((1, 2))
    part.append_bytes(batch())
    part.fetched_by(2, 102, 1)
    part.append_bytes(batch())
    assert (part.high_watermark, part.log.recovery_point) == (1, 0)
    assert following(part).cut_to(part, 1) is False
    assert following(part).cut_to(part, 0) is True


def test_a_follower_whose_leader_begins_within_one_of_its_batches_lets_go_of_that_batch(
    make: Make,
) -> None:
    """DeleteRecords moved the log start into a batch. A replica that had begun to copy from there,
    and had no records yet, became leader by an unclean election."""
    part = make((1,))
    part.append_bytes(build_batch([Record(n, 1, None, b"%d" % n) for n in range(5)]))
    flush(part)
    part.log.delete_before(3)
    assert following(part).diverged(part, 5, 3, 3) is True
    assert (part.log.log_start_offset, part.log.log_end_offset) == (0, 0)
    assert part.high_watermark == 0
    assert following(part).start_anew(part, 3) is True
    assert (part.log.log_start_offset, part.high_watermark) == (3, 3)


def test_a_log_that_a_pass_of_compaction_has_begun_to_clean_is_not_cut_but_begun_anew(
    make: Make,
) -> None:
    """The cut would remove records for which compaction has removed older ones. The leader still
    has the older ones."""
    part = make((1,), cleanup_policy=frozenset({"compact"}), segment_bytes=150)
    for value in range(6):
        part.append_bytes(build_batch([Record(-1, 1, b"k", b"%d" % value)]))
    flush(part)
    target = cleanable(part.log, part.high_watermark, 1)
    assert target is not None
    steps = Cleaner(target, 1 << 20, 1.0, lambda paths: None).steps()
    for task in steps:
        if task is not None:
            task.run()
        if b"k" not in part.log.read_bytes(0, 1):
            break                               # the first segment is replaced
    steps.close()
    assert part.log.first_dirty_offset == 0
    # An unclean election: the leader ends at 3.
    assert following(part).diverged(part, 5, 3, 0) is True
    assert (part.log.log_start_offset, part.log.log_end_offset) == (0, 0)


def test_who_caught_up_while_a_proposal_was_open_is_proposed_after_it(
    make: Make, cluster: FakeClusterSide
) -> None:
    part = make((1,))
    part.fetched_by(2, 102, 0)
    assert part.propose_isr(1, 101) == ((1, 101), (2, 102))
    cluster.due.clear()
    part.fetched_by(3, 103, 0)
    assert cluster.due == []                        # one proposal at a time
    assume(part, 1, 5, 1, (1, 2, 3), (1, 2), 11)
    assert cluster.due == [part]
    assert part.propose_isr(1, 101) == ((1, 101), (2, 102), (3, 103))


def test_bytes_that_a_follower_asks_for_again_and_again_are_doubted(
    make: Make, cluster: FakeClusterSide, clock: FakeClock
) -> None:
    part = make((1, 3))
    part.append_bytes(batch())
    for _ in range(6):
        part.fetched_by(2, 102, 0)
        clock.advance(1000)
    assert cluster.doubts == []
    part.fetched_by(2, 102, 0)
    assert cluster.doubts == [0]
    part.fetched_by(2, 102, 1)                      # the follower has got them
    clock.advance(60_000)
    part.fetched_by(2, 102, 1)
    assert cluster.doubts == [0]


def test_an_end_that_a_replica_reports_is_that_of_what_can_be_read(
    make: Make, tmp_path: Path
) -> None:
    part = make()
    for _ in range(3):
        part.append_bytes(batch())
    assert part.own_end() == (5, 3)
    part.log.end_before(Damage(f"{part.log.directory}/{0:020d}.log", 70, "changed", 1))
    assert part.own_end() == (5, 1)
