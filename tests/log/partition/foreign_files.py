"""A log directory whose files another program changes while the broker is stopped."""

from __future__ import annotations

import random
from collections.abc import Iterator

from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.storage.storage import Storage
from ottla.wire.records import ControlType, build_marker
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, split
from tests.log.faulty_disk import FaultyDisk

CONFIG = LogConfig(index_interval_bytes=150, segment_ms=1 << 60, retention_ms=-1)


TOPIC_ID = bytes(range(16))


DATA = "/data/events-0/"


def marker(producer_id: int, commits: bool) -> bytes:
    return build_marker(
        ControlType.COMMIT if commits else ControlType.ABORT,
        producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS + 70,
    )


def fill(log: PartitionLog, seed: int) -> None:
    """Fill three segments with records in three leader epochs: some without a transaction, and some
    in transactions that are committed or aborted."""
    chance = random.Random(seed)
    time, sequences = 0, {1: 0, 2: 0}
    open_ones: set[int] = set()
    for at in range(60):
        if at in (20, 40):
            log.roll()
        time += chance.choice([1, 2, 7, -4])
        value, epoch = b"%d" % at * chance.randrange(1, 30), at // 25
        choice = chance.random()
        if choice < 0.5:
            log.append_bytes(batch(value, timestamps=[NOW_MS + time]), epoch)
            continue
        producer = chance.choice([1, 2])
        if choice < 0.8 or producer not in open_ones:
            log.append_bytes(
                batch(value, value, timestamps=[NOW_MS + time] * 2, producer_id=producer, epoch=0,
                      sequence=sequences[producer], transactional=True),
                epoch,
            )
            sequences[producer] += 2
            open_ones.add(producer)
        else:
            log.append_bytes(marker(producer, chance.random() < 0.4), epoch)
            open_ones.discard(producer)
    for producer in open_ones:
        log.append_bytes(marker(producer, False), 2)


def everything(log: PartitionLog) -> Iterator[object]:
    """The answers to everything that a client may request."""
    end = log.log_end_offset
    yield log.log_start_offset, end
    for offset in range(log.log_start_offset, end):
        for size in SIZES:
            data = log.read_bytes(offset, size)
            whole = split(data)
            assert whole, f"nothing whole at {offset} for {size} bytes"
            first = int.from_bytes(whole[0][:8], "big")
            last = first + int.from_bytes(whole[0][23:27], "big")
            assert first <= offset <= last, f"{first}-{last} for {offset}"
            yield data if size > 200 else whole[0]
    for time in range(-5, 140):
        yield log.offset_for_timestamp(NOW_MS + time)
    for bound in range(1, end + 1):
        yield log.offset_of_max_timestamp(bound)
    for offset in range(0, end, 3):
        yield [each[:3] for each in log.aborted_transactions(offset, min(offset + 9, end))]
    for epoch in range(4):
        yield log.end_offset_for_epoch(epoch)
    yield [
        (state.producer_id, state.last_sequence, state.last_offset)
        for state in sorted(log.active_producers(), key=lambda each: each.producer_id)
    ]
    for segment in log.segments:
        yield segment.base_offset, segment.largest_timestamp()


def open_storage(disk: FaultyDisk) -> Storage:
    return Storage.open(disk, FakeClock(), ["/data"])


def written(seed: int, clean: bool) -> FaultyDisk:
    """A disk with a partition, after a clean stop, or after a kill that followed a flush."""
    disk = FaultyDisk(seed)
    storage = open_storage(disk)
    log = storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
    fill(log, seed)
    if clean:
        storage.close()
    else:
        log.flush()
        storage.checkpoint()
        disk.kill()
    return disk


def reopened(disk: FaultyDisk) -> PartitionLog:
    return open_storage(disk).get_or_create("events", 0, TOPIC_ID, CONFIG)


def change(disk: FaultyDisk, path: str, data: bytes | None) -> None:
    if data is None:
        disk.unlink(path)
        return
    file = disk.open(path, create=True)
    file.truncate(0)
    file.pwrite(data, 0)


SIZES = (1, 200, 1 << 20)
