"""The background scrub: every sealed, durable segment is read and checked, in rounds.

A round goes through all logs, each from its oldest segment on, limited to a number of bytes per
second. The next round begins when an interval has passed since the current round began. The
progress is kept in `ottla-scrub-checkpoint` of the first log directory that works; a restart
continues from it. The file begins with
its version and the time when the round began (ms since 1970). Then follows an offset for each log,
in the form of an offset checkpoint. Everything below a log's offset has been checked.

A segment that looks wrong is read a second time, from the disk instead of the page cache. If the
fault persists, the log handles it like damage below the recovery point.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass

from ottla.log.files.checkpoints import Partition, decode_offsets, encode_offsets
from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk, is_passing
from ottla.log.partition.damage import Damage
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.segment import Segment
from ottla.log.scrub.segment_check import SegmentScrub
from ottla.log.storage.storage import Storage
from ottla.wire.errors import StorageFailed

PLACE = "ottla-scrub-checkpoint"
SLICE_BYTES = 1 << 20
SAVE_EVERY_MS = 60_000
LOGS_PER_SLICE = 200
PAUSE_SECONDS_MIN = 1.0
"""The minimum pause between two rounds, whatever the interval is."""


@dataclass(slots=True)
class Save:
    """The progress, to be written by any thread."""

    disk: Disk
    path: str
    began_ms: int
    places: Mapping[Partition, int]

    def run(self) -> None:
        """Writes the progress. Raises OSError."""
        data = b"0\n%d\n" % self.began_ms + encode_offsets(self.places)
        self.disk.write_atomically(self.path, data)


@dataclass(slots=True)
class Read:
    """The next slice of a segment, to be read by any thread."""

    scrub: SegmentScrub

    def run(self) -> None:
        """Reads the slice. Raises OSError."""
        self.scrub.read()


Step = Read | Save | float
"""A task to be run in a thread before the next step, or how many seconds to wait."""

Steps = Generator[Step, None, None]

OnDamage = Callable[[Partition, Damage], None]


class Scrub:
    """Runs rounds endlessly. `on_damage` is called for each log that is found damaged.

    If the disk refuses to read bytes that another replica has, this is damage. If no other replica
    has them, readers keep trying, because the disk may recover.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        bytes_per_second: int,
        interval_ms: int,
        on_damage: OnDamage,
        slice_bytes: int = SLICE_BYTES,
    ) -> None:
        self.storage, self.clock = storage, clock
        self.bytes_per_second, self.interval_ms = bytes_per_second, interval_ms
        self.on_damage, self.slice_bytes = on_damage, slice_bytes
        self.bytes_read = 0
        first = next((each for each in storage.directories if each.offline is None), None)
        self.path = (first or storage.directories[0]).file(PLACE)
        self.began_ms, self.places = self.load()
        self.saved_ms = clock.now_ms()

    def load(self) -> tuple[int, dict[Partition, int]]:
        """When the round began, and its progress. Without a valid file, or if the disk refuses to
        read it, a new round begins now."""
        try:
            version, began, offsets = self.storage.disk.read_bytes(self.path).split(b"\n", 2)
            if version == b"0":
                return int(began), decode_offsets(offsets)
        except (OSError, ValueError):
            pass
        return self.clock.now_ms(), {}

    def save_place(self) -> Steps:
        """Saves the progress; if the disk refuses, a restart only repeats some work."""
        self.saved_ms = self.clock.now_ms()
        try:
            yield Save(self.storage.disk, self.path, self.began_ms, dict(self.places))
        except OSError:
            return

    def steps(self) -> Steps:
        """Checks segments in endless rounds. The caller throws an OSError of a step into this
        generator, which then leaves that segment to the next round."""
        while True:
            for count, key in enumerate(list(self.storage.logs), 1):
                yield from self.check_log(key)
                if count % LOGS_PER_SLICE == 0:
                    yield 0.0
            yield from self.save_place()
            left_ms = self.began_ms + self.interval_ms - self.clock.now_ms()
            # `began_ms` is wall clock time: `left_ms` is too long if the clock was set back since.
            yield max(PAUSE_SECONDS_MIN, min(left_ms, self.interval_ms) / 1000)
            self.began_ms, self.places = self.clock.now_ms(), {}

    def check_log(self, key: Partition) -> Steps:
        """Checks the segments of one log that were not checked in this round."""
        while (log := self.storage.get(*key)) is not None and log.offline is None:
            if log.segment_count < 2:
                return      # no sealed segment
            try:
                segment = self.next_segment(log, self.places.get(key, 0))
            except StorageFailed:
                return
            if segment is None:
                return
            end_offset = segment.end_offset
            try:
                yield from self.check_segment(key, log, segment)
            except OSError:
                # The segment was deleted meanwhile, or cannot be opened: continue with the others.
                pass
            self.places[key] = end_offset
            if self.clock.now_ms() - self.saved_ms >= SAVE_EVERY_MS:
                yield from self.save_place()

    def next_segment(self, log: PartitionLog, place: int) -> Segment | None:
        """The oldest durable sealed segment after `place`."""
        if log.segment_count < 2:
            # The count is known even for a log at rest; reading `segments` would open its files.
            return None
        for segment in log.segments[:-1]:
            if segment.end_offset > log.recovery_point:
                return None
            if segment.end_offset > place and segment.size:
                return segment
        return None

    def check_segment(self, key: Partition, log: PartitionLog, segment: Segment) -> Steps:
        """Reads one segment, twice if it looks wrong. Raises OSError."""
        path = segment.path(".log")
        file = self.storage.disk.open(path)
        try:
            scrub = SegmentScrub(
                file, segment.size, segment.base_offset, self.base_behind(log, segment),
                self.slice_bytes,
            )  # fmt: skip
            yield from self.read_to_end(scrub, log)
            if scrub.problem is None:
                return
            file.evict()
            scrub.look_again()
            yield from self.read_to_end(scrub, log)
        finally:
            file.close()
        # Compaction, retention or a truncation may have removed the segment meanwhile.
        if scrub.problem is None or segment not in log.segments:
            return
        if segment.size < scrub.size or (
                segment.size > scrub.size and segment is not log.segments[-1]):
            return
        if log.damage is None:
            damage = Damage(path, scrub.fault_position, scrub.problem, scrub.fault_offset)
            try:
                log.end_before(damage)
            finally:
                self.on_damage(key, damage)

    def base_behind(self, log: PartitionLog, segment: Segment) -> int:
        """Where the next segment begins; -1 if there is none, or if compaction may have left a gap
        in the offsets before it."""
        if log.config.compacts or log.first_dirty_offset or segment is log.segments[-1]:
            return -1
        following = log.segments.index(segment) + 1
        return log.segments[following].base_offset

    def read_to_end(self, scrub: SegmentScrub, log: PartitionLog) -> Steps:
        """Reads slice by slice, with a pause after each to keep the rate."""
        while not scrub.done:
            before = scrub.position
            try:
                yield Read(scrub)
            except OSError as error:
                if is_passing(error) or not log.health.replaceable:
                    raise
                scrub.refused(error)
                return
            scrub.check()
            moved = scrub.position - before
            self.bytes_read += moved
            yield moved / self.bytes_per_second
