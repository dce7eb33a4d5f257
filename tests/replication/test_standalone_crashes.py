"""The metadata of a broker alone outlives power cuts at any moment, whole, and failing disks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.log.storage import Storage
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
        """What the next start finds."""
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
    # The decision that was interrupted may have been kept, but then as a whole.
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
    assert log.apply_retention(log.log_end_offset) == []


@pytest.mark.parametrize("power", [False, True])
def test_a_crash_between_removals_of_old_segments_leaves_the_metadata_whole(
    power: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What precedes a snapshot may begin anywhere, so that its records have no sense any more."""
    monkeypatch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", 12)
    monkeypatch.setattr(standalone, "KEPT_FOR_EVER", replace(KEPT_FOR_EVER, segment_bytes=400))
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
