"""A compacted log on a disk that can fail, and the records that its readers have to find."""

from __future__ import annotations

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import Cleaner, clean
from ottla.log.partition.config import LogConfig
from ottla.log.partition.loading import LogCheckpoint
from ottla.log.partition.partition_log import PartitionLog
from ottla.wire.records import Record, build_batch, build_marker, read_records
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, split
from tests.log.faulty_disk import FaultyDisk
from tests.waiting import exhaust

DIRECTORY = "/data/table-0"


COMPACT = LogConfig(
    segment_bytes=700, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0, delete_retention_ms=1000,
)  # fmt: skip


Content = dict[int, tuple[bytes, bytes | None]]


class Table:
    """A compacted log on a FaultyDisk, and what was appended to it."""

    def __init__(self, seed: int = 0, config: LogConfig = COMPACT, memory_max: int = 1 << 20):
        self.disk, self.clock, self.config = FaultyDisk(seed), FakeClock(NOW_MS), config
        self.memory_max = memory_max
        self.log = self.open()
        self.visible: Content = {}
        self.ends: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
        self.sequences: dict[int, int] = {}
        self.recovery_point = 0

    def open(self, clean_stop: bool = False, recovery_point: int = 0) -> PartitionLog:
        return PartitionLog.open(
            self.disk, self.clock, DIRECTORY, self.config, checkpoint=LogCheckpoint(recovery_point),
            clean=clean_stop,
        )  # fmt: skip

    def put(self, *pairs: tuple[bytes, bytes | None], codec: int = 0, producer: int = -1) -> int:
        """Append a batch, in the transaction of `producer` if it is given; returns the base
        offset."""
        records = [
            Record(timestamp=self.clock.now_ms(), key=key, value=value) for key, value in pairs
        ]
        options = {}
        if producer >= 0:
            sequence = self.sequences.get(producer, 0)
            options = {
                "producer_id": producer, "producer_epoch": 0, "base_sequence": sequence,
                "transactional": True,
            }  # fmt: skip
            self.sequences[producer] = sequence + len(records)
        base = self.log.append_bytes(build_batch(records, codec=codec, **options), 0)
        entries = [(base + at, key, value) for at, (key, value) in enumerate(pairs)]
        if producer >= 0:
            self.ends.setdefault(producer, []).extend(entries)
        else:
            self.visible.update({offset: (key, value) for offset, key, value in entries})
        return base

    def end(self, producer: int, commit: bool) -> None:
        if producer not in self.ends:
            return
        marker = build_marker(
            int(commit), producer_id=producer, producer_epoch=0, coordinator_epoch=0,
            timestamp=self.clock.now_ms(),
        )  # fmt: skip
        self.log.append_bytes(marker, 0)
        entries = self.ends.pop(producer)
        if commit:
            self.visible.update({offset: (key, value) for offset, key, value in entries})

    def seal(self) -> None:
        self.log.roll()
        self.log.flush()
        self.recovery_point = self.log.recovery_point

    def clean(self) -> Cleaner | None:
        """Run one pass; returns None if no pass is due."""
        target = cleanable(self.log, self.log.log_end_offset, self.clock.now_ms())
        if target is None or not target.due:
            return None
        return clean(target, self.memory_max, lambda paths: None)

    def clean_all(self) -> None:
        exhaust(self.clean)

    def latest(self, content: Content) -> dict[bytes, tuple[int, bytes | None]]:
        found: dict[bytes, tuple[int, bytes | None]] = {}
        for offset, (key, value) in sorted(content.items()):
            found[key] = offset, value
        return found

    def committed(self, log: PartitionLog) -> Content:
        """The records that a read_committed reader gets."""
        found: Content = {}
        stable = log.last_stable_offset
        aborted = log.aborted_transactions(0, log.log_end_offset)
        offset = log.log_start_offset
        while offset < stable:
            for data in split(log.read_bytes(offset, 2000, stable)):
                offset = int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1
                attributes = int.from_bytes(data[21:23], "big")
                producer = int.from_bytes(data[43:51], "big", signed=True)
                if attributes & 0x20:
                    continue
                for record in read_records(data):
                    hidden = attributes & 0x10 and any(
                        one.producer_id == producer
                        and one.first_offset <= record.offset <= one.last_offset
                        for one in aborted
                    )
                    if not hidden:
                        assert record.key is not None
                        found[record.offset] = record.key, record.value
        return found

    def check(self, log: PartitionLog, beyond: int | None = None) -> None:
        """Check that the log has only records that were written, and has each key's newest record.
        If that is a deletion, the log may have no record of the key."""
        found = self.committed(log)
        stable = log.last_stable_offset
        expected = {offset: one for offset, one in self.visible.items() if offset < stable}
        for offset, pair in found.items():
            assert expected.get(offset) == pair, offset
        newest = self.latest(found)
        for key, (offset, value) in self.latest(expected).items():
            if value is None and key not in newest:
                continue
            assert newest.get(key) == (offset, value), key
        assert log.damage is None


KEYS = [b"a", b"b", b"c", b"", b"key-%d" % 7]
