"""A follower's log is its leader's, however the bytes arrive; nothing invalid gets into it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.files.snapshots import encode
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.wire.errors import CorruptMessage, OffsetOutOfRange
from tests.log.batches import NOW_MS, batch, split, values_of
from tests.log.partition.foreign_files import marker

LEADER_EPOCH_END = 15

CONFIGS = [
    LogConfig(segment_bytes=3000),
    LogConfig(index_interval_bytes=100),
    LogConfig(index_interval_bytes=50, segment_index_bytes=12 * 5),
    LogConfig(segment_ms=40, segment_jitter_ms=10),
]


def open_log(path: Path, config: LogConfig, clean: bool = False) -> PartitionLog:
    return PartitionLog.open(Disk(), Clock(), str(path), config, clean=clean)


def filled(path: Path, config: LogConfig, chance: random.Random, count: int = 120) -> PartitionLog:
    """A leader's log of many batches in several leader epochs; about half of the batches are of an
    idempotent producer."""
    log, sequence = open_log(path, config), 0
    for at in range(count):
        values = [b"%d " % at * chance.randrange(1, 20) for _ in range(chance.randrange(1, 4))]
        times = [NOW_MS + at + i for i in range(len(values))]
        idempotent = chance.random() < 0.5
        log.append_bytes(
            batch(
                *values, timestamps=times, producer_id=7 if idempotent else -1,
                epoch=0 if idempotent else -1, sequence=sequence if idempotent else -1,
            ),
            at // 25,
        )
        sequence += len(values) * idempotent
    return log


def files(path: Path) -> dict[str, bytes]:
    suffixes = {".log", ".index", ".timeindex", ".snapshot"}
    return {each.name: each.read_bytes() for each in path.iterdir() if each.suffix in suffixes}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", range(4))
def test_a_follower_has_its_leaders_files(tmp_path: Path, config: LogConfig, seed: int) -> None:
    chance = random.Random(seed)
    leader = filled(tmp_path / "leader", config, chance)
    data = b"".join(
        leader.slice(segment.base_offset, 1 << 30).read() for segment in leader.segments
    )
    follower = open_log(tmp_path / "follower", config)
    held = b""
    while data or held:
        size = chance.randrange(1, 4000)
        held, data = held + data[:size], data[size:]
        held = held[follower.append_run_bytes(held, 99) :]
    assert follower.log_end_offset == leader.log_end_offset
    assert follower.epochs.entries == leader.epochs.entries
    assert encode(follower.producers) == encode(leader.producers)
    leader.close()
    follower.close()
    mine, theirs = files(tmp_path / "follower"), files(tmp_path / "leader")
    if config.segment_jitter_ms:            # the jitter depends on the directory's name
        assert b"".join(mine[name] for name in sorted(mine) if name.endswith(".log")) == b"".join(
            theirs[name] for name in sorted(theirs) if name.endswith(".log"))
    else:
        assert mine == theirs


@pytest.mark.parametrize("at", [0, 7, 8, 12, 16, 17, 20, 23, 30, 61, 70])
def test_a_changed_byte_is_not_appended_but_what_precedes_its_batch(
    tmp_path: Path, at: int
) -> None:
    leader = filled(tmp_path / "leader", LogConfig(), random.Random(1), 5)
    follower = open_log(tmp_path / "follower", LogConfig())
    batches = split(leader.read_bytes(0, 1 << 20))
    bad = bytearray(batches[2])
    bad[at] ^= 0x80
    good = follower.append_run_bytes(batches[0] + batches[1] + bytes(bad) + batches[3], 9)
    assert good == len(batches[0] + batches[1])
    with pytest.raises(CorruptMessage):
        follower.append_run_bytes(bytes(bad) + batches[3], 9)
    assert follower.append_run_bytes(batches[2] + batches[3], 9)
    assert follower.read_bytes(0, 1 << 20) == b"".join(batches[:4])


def test_epochs_neither_go_back_nor_beyond_the_leaders(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader", LogConfig())
    for epoch in (3, 5):
        leader.append_bytes(batch(b"x"), epoch)
    first, second = split(leader.read_bytes(0, 1000))
    follower = open_log(tmp_path / "follower", LogConfig())
    with pytest.raises(CorruptMessage, match="epoch 3, which is not between -1 and 2"):
        follower.append_run_bytes(first, 2)
    assert follower.append_run_bytes(first + second, 4) == len(first)
    assert follower.append_run_bytes(second, 5)
    with pytest.raises((CorruptMessage, OffsetOutOfRange)):
        follower.append_run_bytes(first, 5)


def test_an_epoch_that_jumps_and_goes_back_is_not_appended(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader", LogConfig())
    for _ in range(3):
        leader.append_bytes(batch(b"x"), 3)
    first, second, third = split(leader.read_bytes(0, 1000))
    bad = bytearray(second)
    bad[LEADER_EPOCH_END] ^= 6                      # epoch 5; the checksum does not cover it
    follower = open_log(tmp_path / "follower", LogConfig())
    assert follower.append_run_bytes(first + bytes(bad) + third, 9) == len(first)
    with pytest.raises(CorruptMessage, match="and leader epoch 5, the second has offset"):
        follower.append_run_bytes(bytes(bad) + third, 9)
    assert follower.append_run_bytes(second + third, 9) == len(second + third)
    assert follower.epochs.entries == [(3, 0)]


def test_a_cut_of_no_record_takes_the_epochs_that_begin_at_the_end(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    log.append_bytes(batch(b"x"), 3)
    log.assign_epoch_start(5)
    log.truncate_to(1)
    assert (log.latest_epoch, log.log_end_offset) == (3, 1)
    assert log.end_offset_for_epoch(3) == (3, 1)


def test_after_a_cut_a_log_knows_its_producers_by_the_records_that_are_left(tmp_path: Path) -> None:
    """Otherwise a follower would refuse the new leader's copy of a batch that was cut off, and a
    leader would take the retry of a lost batch for a duplicate."""
    log = open_log(tmp_path / "cut", LogConfig())
    first = batch(b"0", producer_id=7, epoch=0, sequence=0)
    log.append_bytes(first, 3)
    log.append_bytes(batch(b"1", producer_id=7, epoch=0, sequence=1), 3)
    log.append_bytes(batch(b"2", producer_id=8, epoch=0, sequence=0), 3)
    log.truncate_to(1)
    left = open_log(tmp_path / "left", LogConfig())
    left.append_bytes(first, 3)
    assert encode(log.producers) == encode(left.producers)
    assert log.append_bytes(batch(b"1", producer_id=7, epoch=0, sequence=1), 4) == 1
    assert (log.duplicate, log.log_end_offset) == (False, 2)


def test_after_a_cut_readers_hear_nothing_of_a_transaction_that_was_cut_off(tmp_path: Path) -> None:
    """Otherwise readers would drop records that the same producer has committed since."""
    log = open_log(tmp_path, LogConfig())
    for sequence in range(2):
        log.append_bytes(
            batch(b"x", producer_id=1, epoch=0, sequence=sequence, transactional=True), 3)
        log.append_bytes(marker(1, False), 3)
    assert [each[:3] for each in log.aborted_transactions(0, 4)] == [(1, 0, 1), (1, 2, 3)]
    log.truncate_to(2)
    log.append_bytes(batch(b"y", producer_id=1, epoch=0, sequence=1, transactional=True), 4)
    log.append_bytes(marker(1, True), 4)
    assert [each[:3] for each in log.aborted_transactions(0, 4)] == [(1, 0, 1)]


@pytest.mark.parametrize("begun", [False, True])
def test_a_gap_that_no_index_can_span_is_copied(tmp_path: Path, begun: bool) -> None:
    """Apache Kafka's compaction leaves such gaps in the logs that an import adopts."""
    first, config = 3 << 30, LogConfig(index_interval_bytes=50)
    leader = open_log(tmp_path / "leader", config)
    leader.truncate_fully_and_start_at(first)
    values = [b"%d " % at * 40 for at in range(9)]
    for at, value in enumerate(values):
        leader.append_bytes(batch(value, timestamps=[NOW_MS + at]), 0)
    log = open_log(tmp_path / "follower", config)
    if begun:
        log.truncate_fully_and_start_at(7)
    data = leader.read_bytes(first, 1 << 20)
    assert log.append_run_bytes(data, 0) == len(data)
    for _ in range(2):
        assert values_of(log, first) == values
        for at in range(len(values)):
            assert log.offset_for_timestamp(NOW_MS + at) == (first + at, NOW_MS + at, 0)
        log.close()
        log = open_log(tmp_path / "follower", config, clean=True)
