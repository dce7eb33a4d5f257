"""The metadata of a standalone broker survive power cuts at any moment, and failing disks."""

from __future__ import annotations

import errno

import pytest

from ottla.log.partition.retention import apply_retention
from ottla.log.storage.reserve import RESERVE, RESERVE_SIZE
from ottla.log.storage.storage import Storage
from ottla.replication import standalone
from ottla.replication.metadata import (
    ConfigSet,
    MetadataImage,
    MetadataRecord,
    PartitionState,
    TopicCreated,
    TopicDeleted,
)
from ottla.replication.standalone import KEPT_FOR_EVER, StandaloneStore
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.faulty_disk import FaultyDisk, PowerCut

ALONE = PartitionState(0, 0, (0,), (0,))


class Metadata:
    """A store on a faulty disk, with the image that its writer has."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.disk, self.clock = disk, FakeClock()
        self.open()

    def open(self) -> None:
        self.storage = Storage.open(self.disk, self.clock, ["/data"])
        self.store = StandaloneStore.open(self.storage, self.clock)
        self.image = self.store.load()

    def decide(self, *records: MetadataRecord) -> None:
        image = self.image.apply(records)
        self.store.append(records, image)
        self.image = image

    def after_a_power_cut(self) -> MetadataImage:
        """The image that the next start finds."""
        self.disk.cut_power()
        self.open()
        return self.image


def topic(number: int) -> TopicCreated:
    return TopicCreated(f"t{number}", number.to_bytes(16, "big"), (ALONE,))


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_leaves_whole_decisions_and_every_one_that_was_promised(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", 12)
    disk = FaultyDisk(seed)
    metadata = Metadata(disk)
    disk.stop_at = disk.operations + disk.random.randint(1, 120)
    decision: list[MetadataRecord] = []
    with pytest.raises(PowerCut):
        for number in range(200):
            decision = [topic(number), ConfigSet("topic", f"t{number}", "a", "1")]
            metadata.decide(*decision)
            decision = [TopicDeleted(f"t{number}")]
            metadata.decide(*decision)
    promised = metadata.image
    # The interrupted decision may have been kept, but only as a whole.
    assert metadata.after_a_power_cut() in (promised, promised.apply(decision))


def test_after_a_failed_sync_nothing_more_is_promised() -> None:
    disk = FaultyDisk(5)
    metadata = Metadata(disk)
    metadata.decide(topic(1))
    kept = metadata.image
    disk.errors["sync"] = 5
    with pytest.raises(StorageFailed):
        metadata.decide(topic(2))
    del disk.errors["sync"]
    with pytest.raises(StorageFailed):
        metadata.decide(topic(3))
    assert metadata.after_a_power_cut() in (kept, kept.apply([topic(2)]))


def test_a_full_disk_is_told_and_later_decisions_go_on() -> None:
    disk = FaultyDisk(6)
    metadata = Metadata(disk)
    metadata.decide(topic(1))
    free, disk.free = disk.free, 10
    with pytest.raises((StorageFailed, OSError)):
        metadata.decide(topic(2))
    disk.free = free
    metadata.decide(topic(3))
    kept = metadata.image
    assert set(kept.topics) == {"t1", "t3"}
    assert metadata.after_a_power_cut() == kept


def test_the_metadata_log_is_never_retained_away() -> None:
    metadata = Metadata(FaultyDisk(7))
    metadata.decide(topic(1))
    metadata.clock.advance(365 * 86_400_000)
    log = metadata.store.log
    assert apply_retention(log, log.log_end_offset) == []


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_between_removals_of_old_segments_leaves_the_metadata_whole(
    power: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log may begin at any record before the snapshot, so it may change topics that it does not
    create."""
    monkeypatch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", 12)
    monkeypatch.setattr(standalone, "KEPT_FOR_EVER", KEPT_FOR_EVER._replace(segment_bytes=400))
    operation, ended = 0, False
    while not ended:
        operation += 1
        disk = FaultyDisk(operation)
        metadata = Metadata(disk)
        for number in range(3):
            metadata.decide(topic(number))
        kept = before = metadata.image
        disk.operations = 0
        with disk.stops_at(operation):
            for number in range(3, 22):
                for record in (topic(number), TopicDeleted(f"t{number - 3}")):
                    before, kept = metadata.image, metadata.image.apply([record])
                    metadata.decide(record)
            ended = True
        if power:
            disk.cut_power()
        else:
            disk.kill()
        metadata.open()
        assert metadata.image in (before, kept)
    assert operation > 50


def test_on_a_full_disk_what_makes_room_is_written_into_the_reserve() -> None:
    disk = FaultyDisk(8)
    metadata = Metadata(disk)
    for number in range(3):
        metadata.decide(topic(number))
    disk.free = 0
    with pytest.raises(StorageFailed):
        metadata.decide(topic(3))
    assert disk.size(f"/data/{RESERVE}") == RESERVE_SIZE, "a creation leaves all of it"
    metadata.decide(ConfigSet("topic", "t0", "retention.ms", "1"))
    metadata.decide(TopicDeleted("t1"))
    kept = metadata.image
    assert set(kept.topics) == {"t0", "t2"}
    assert metadata.after_a_power_cut() == kept


def test_settings_leave_some_of_the_reserve_for_deletions() -> None:
    disk = FaultyDisk(9)
    metadata = Metadata(disk)
    metadata.decide(topic(1))
    disk.free = 0
    with pytest.raises(StorageFailed):
        for number in range(1000):
            metadata.decide(ConfigSet("topic", "t1", "retention.ms", f"{number:01000}"))
    assert disk.size(f"/data/{RESERVE}") == RESERVE_SIZE // 2
    metadata.decide(TopicDeleted("t1"))
    assert metadata.after_a_power_cut().topics == {}


def test_a_snapshot_that_has_no_room_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", 12)
    disk = FaultyDisk(10)
    metadata = Metadata(disk)
    for number in range(20):
        metadata.decide(topic(number))
    free, disk.free = disk.free, 0
    for number in range(20):
        metadata.decide(ConfigSet("topic", f"t{number}", "retention.ms", "1" * 30))
        metadata.decide(TopicDeleted(f"t{number}"))
    assert metadata.after_a_power_cut().topics == {}
    disk.free = free
    for number in range(20):
        metadata.decide(topic(number))
    assert metadata.store.log.log_start_offset > 40, "once there is room a snapshot follows"


def test_a_deletion_on_a_full_disk_needs_no_room_for_a_snapshot_that_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = FaultyDisk(13)
    metadata = Metadata(disk)
    for number in range(100):
        metadata.decide(topic(number))
    monkeypatch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", -1000)
    disk.free = 0
    metadata.decide(TopicDeleted("t1"))
    assert metadata.store.behind_snapshot == 0, "it is not tried again at once"
    assert metadata.store.log.log_start_offset == 0
    assert len(metadata.after_a_power_cut().topics) == 99


class NoDescriptors(FaultyDisk):
    """A disk on which no file can be opened after the first append while `armed`."""

    armed = False

    def before(self, kind: str, path: str, size: int = 0) -> int:
        if self.armed and kind == "write" and path.endswith(".log"):
            self.errors["open"] = errno.EMFILE
        return super().before(kind, path, size)


def test_records_that_cannot_be_flushed_are_not_left_in_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = NoDescriptors(11)
    metadata = Metadata(disk)
    metadata.decide(topic(1))
    kept, end = metadata.image, metadata.store.log.log_end_offset
    metadata.store.log.roll()
    disk.armed = True
    with pytest.raises(StorageFailed):
        metadata.decide(topic(2))
    disk.armed, disk.errors = False, {}
    log = metadata.store.log
    assert log.log_end_offset == end or log.offline is not None
    if log.offline is None:
        # The refused client retries: the topic is not in the log twice.
        metadata.decide(topic(2))
        kept = metadata.image
    disk.kill()
    metadata.open()
    assert metadata.image in (kept, kept.apply([topic(2)]) if log.offline else kept)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_old_metadata_that_cannot_be_removed_do_not_undo_a_decision(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", 2)
    disk = FaultyDisk(12)
    metadata = Metadata(disk)
    for number in range(12):
        records = [topic(number)]
        image = metadata.image.apply(records)
        write = metadata.store.begin(records, image)
        write.run()
        disk.errors = {"name": code}
        write.finish()                              # the records are on disk, so they are kept
        disk.errors = {}
        metadata.image = image
    assert metadata.after_a_power_cut() == image
