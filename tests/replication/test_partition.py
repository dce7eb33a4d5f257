"""How far clients may read, and when acknowledgements become due."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.partition.partition_log import PartitionLog
from ottla.replication.partition import Partition
from ottla.replication.roles.assignment import lead_alone
from ottla.wire.errors import FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch
from ottla.wire.records import Record, build_batch


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return PartitionLog.open(Disk(), Clock(), str(tmp_path / "t-0"))


def partition(log: PartitionLog, flush_before_ack: bool = True) -> Partition:
    made = Partition("t", 0, b"\x01" * 16, log, flush_before_ack)
    lead_alone(made, 0, 3, True)
    return made


def batch(value: bytes = b"v") -> bytes:
    return build_batch([Record(offset=0, timestamp=1, key=None, value=value)])


def flush(part: Partition) -> bool:
    task = part.log.begin_flush()
    assert task is not None
    task.run()
    part.log.end_flush(task)
    return part.flushed(part.log.recovery_point)


def test_an_acks_all_batch_is_readable_once_it_is_flushed(log: PartitionLog) -> None:
    part = partition(log)
    part.append_bytes(batch(), all_replicas=True)
    assert (part.high_watermark, part.wants_flush()) == (0, True)
    assert flush(part) is False
    assert (part.high_watermark, part.wants_flush()) == (1, False)


def test_other_batches_are_readable_at_once(log: PartitionLog) -> None:
    part = partition(log)
    part.append_bytes(batch(), all_replicas=False)
    assert (part.high_watermark, part.wants_flush()) == (1, False)


def test_nothing_behind_an_unflushed_batch_is_readable_before_it(log: PartitionLog) -> None:
    part = partition(log)
    part.append_bytes(batch(), all_replicas=True)
    part.append_bytes(batch(), all_replicas=False)
    assert part.high_watermark == 0
    flush(part)
    assert part.high_watermark == 2


def test_what_arrives_during_a_flush_waits_for_the_next(log: PartitionLog) -> None:
    part = partition(log)
    part.append_bytes(batch(), all_replicas=True)
    task = log.begin_flush()
    part.append_bytes(batch(), all_replicas=True)
    assert task is not None
    task.run()
    log.end_flush(task)
    assert part.flushed(log.recovery_point) is True
    assert part.high_watermark == 1
    assert flush(part) is False
    assert part.high_watermark == 2


def test_without_the_stronger_promise_everything_is_readable_at_once(log: PartitionLog) -> None:
    part = partition(log, flush_before_ack=False)
    part.append_bytes(batch(), all_replicas=True)
    assert (part.high_watermark, part.wants_flush()) == (1, False)


def test_a_new_leader_epoch_is_noted_where_it_begins(log: PartitionLog) -> None:
    part = partition(log, flush_before_ack=False)
    part.append_bytes(batch())
    lead_alone(part, 0, 5, True)
    part.append_bytes(batch())
    assert log.end_offset_for_epoch(3) == (3, 1)
    assert log.end_offset_for_epoch(5) == (5, 2)


def test_a_client_is_refused_with_what_is_wrong_about_its_leader(log: PartitionLog) -> None:
    part = partition(log)
    part.require_leader(3)
    part.require_leader(-1)
    with pytest.raises(FencedLeaderEpoch):
        part.require_leader(2)
    with pytest.raises(UnknownLeaderEpoch):
        part.require_leader(4)
    lead_alone(part, 1, 4, False)
    with pytest.raises(NotLeaderOrFollower, match="is led by broker 1"):
        part.require_leader(4)
    lead_alone(part, -1, 5, False)
    with pytest.raises(NotLeaderOrFollower, match="is led by no broker"):
        part.require_leader(5)


def test_a_retry_of_what_a_crash_left_unflushed_is_acknowledged_after_a_flush(
    tmp_path: Path,
) -> None:
    numbered = build_batch(
        [Record(offset=0, timestamp=1, key=None, value=b"v")],
        producer_id=7, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    before = partition(PartitionLog.open(Disk(), Clock(), str(tmp_path / "t-0")))
    before.append_bytes(numbered)
    # The process ends here: the batch is in the page cache only.
    found = PartitionLog.open(Disk(), Clock(), str(tmp_path / "t-0"))
    after = partition(found)
    assert (after.high_watermark, found.recovery_point) == (1, 0)
    assert after.append_bytes(numbered) == 0
    assert found.recovery_point == 1
