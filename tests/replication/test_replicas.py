"""A broker's partitions follow the image, but only if this process is registered in the image."""

from __future__ import annotations

import os
from errno import EIO, ENOSPC
from pathlib import Path

import pytest

from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.storage.storage import Storage
from ottla.replication.metadata import (
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    MetadataImage,
    PartitionChanged,
    PartitionState,
    TopicCreated,
)
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.wire.errors import OutOfOrderSequence
from ottla.wire.records import Record, build_batch


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage.open(Disk(), Clock(), [str(tmp_path)], node_id=1)


def registered(incarnation: str, epoch: int) -> BrokerRegistered:
    return BrokerRegistered(BrokerImage(1, epoch, (), None, incarnation))


def test_nothing_is_led_by_an_image_that_names_another_process_of_the_same_id(
    storage: Storage,
) -> None:
    replicas = Replicas(1, storage, lambda image, name: LogConfig(), True, incarnation="new")
    led_here = PartitionState(1, 4, (1, 2), (1, 2))
    led_elsewhere = PartitionState(2, 0, (2, 1), (1, 2))
    old = MetadataImage.empty("c").apply([
        registered("old", 5), TopicCreated("t", b"t" * 16, (led_here, led_elsewhere))
    ])
    list(replicas.follow(MetadataImage.empty(), old, old.topics))
    first, second = replicas.partition("t", 0), replicas.partition("t", 1)
    assert first is not None and second is not None, "the logs are here all the same"
    assert not first.led_here
    gone = old.apply([BrokerGone(1)])
    list(replicas.follow(old, gone, ()))
    assert not first.led_here
    new = gone.apply([registered("new", 9)])
    list(replicas.follow(gone, new, ()))
    assert first.led_here and first.leader_epoch == 4
    assert not second.led_here and second.leader_id == 2


class UnrenamedDisk(Disk):
    """A disk on which the directories with some names cannot be renamed."""

    def __init__(self, *names: str, error: int = EIO) -> None:
        super().__init__()
        self.names, self.error = names, error

    def rename(self, old: str, new: str) -> None:
        if Path(old).name in self.names:
            raise OSError(self.error, os.strerror(self.error), old)
        super().rename(old, new)


def topics(**named: tuple[bytes, int]) -> MetadataImage:
    """An image of topics by name, each with its id and number of partitions."""
    return MetadataImage.empty("c").apply([
        TopicCreated(name, topic_id * 16, (PartitionState(1, 0, (1,), (1,)),) * count)
        for name, (topic_id, count) in named.items()
    ])


@pytest.mark.parametrize("between", [True, False], ids=["deleted first", "made again at once"])
def test_a_partition_whose_deletion_fails_keeps_no_other_from_it(
    tmp_path: Path, between: bool
) -> None:
    disk = UnrenamedDisk("t-0")
    storage = Storage.open(
        disk, Clock(), [str(tmp_path / "d0"), str(tmp_path / "d1")], node_id=1)
    replicas = Replicas(1, storage, lambda image, name: LogConfig(), True)
    empty, old, new = topics(), topics(t=(b"1", 4)), topics(t=(b"2", 4))
    list(replicas.follow(empty, old, old.topics))
    for partition in replicas:
        partition.append_bytes(build_batch([Record(0, 1, None, b"of the old topic")]))
    [failing] = [each for each in storage.directories if storage.homes["t", 0] is each]
    if between:
        list(replicas.follow(old, empty, old.topics))
        assert list(replicas) == [] and not storage.logs
        old = empty
    list(replicas.follow(old, new, new.topics))
    assert failing.offline is not None
    for index in range(4):
        partition = replicas.partition("t", index)
        assert partition is not None and partition.topic_id == b"2" * 16
        assert storage.homes["t", index] is not failing
        assert partition.led_here and partition.log.log_end_offset == 0


def test_a_deleted_topics_id_is_unknown_though_no_replica_of_it_was_here(storage: Storage) -> None:
    """Otherwise the broker would keep the id for ever, and clients that send it would believe that
    another broker leads the topic's partitions."""
    replicas = Replicas(1, storage, lambda image, name: LogConfig(), True)
    elsewhere = PartitionState(2, 0, (2,), (2,))
    old = topics().apply([TopicCreated("t", b"t" * 16, (elsewhere,) * 2)])
    list(replicas.follow(topics(), old, old.topics))
    assert replicas.by_id.keys() == {b"t" * 16}
    new = topics(t=(b"u", 1))
    list(replicas.follow(old, new, ("t",)))
    assert replicas.by_id.keys() == {b"u" * 16}


def test_a_log_with_a_later_epoch_than_the_metadata_keeps_no_other_partition_from_its_role(
    storage: Storage,
) -> None:
    """This happens if ZooKeeper was restored from a backup, and nobody has noticed."""
    batch = build_batch([Record(0, 1, None, b"in a later epoch")])
    storage.get_or_create("t", 0, b"1" * 16, LogConfig()).append_bytes(batch, 5)
    replicas = Replicas(1, storage, lambda image, name: LogConfig(), True)
    image = topics(t=(b"1", 2), u=(b"2", 1))
    list(replicas.follow(topics(), image, image.topics))
    led = {repr(partition): partition.led_here for partition in replicas}
    assert led == {"t-0": False, "t-1": True, "u-0": True}


def test_a_log_that_waits_for_room_is_opened_though_it_was_tried_with_the_image_before(
    tmp_path: Path,
) -> None:
    """While a new image is followed, other tasks have their turn. One of them is the upkeep, which
    still has the former image."""
    disk = UnrenamedDisk(error=ENOSPC)
    old, new = topics(t=(b"1", 1)), topics(t=(b"2", 1))
    storage = Storage.open(disk, Clock(), [str(tmp_path)], node_id=1)
    batch = build_batch([Record(0, 1, None, b"of the old topic")])
    storage.get_or_create("t", 0, b"1" * 16, LogConfig()).append_bytes(batch, 0)
    storage.close()
    storage = Storage.open(disk, Clock(), [str(tmp_path)], node_id=1)
    changed: list[Partition] = []
    replicas = Replicas(
        1, storage, lambda image, name: LogConfig(), True, roles_changed=changed.extend)
    disk.names = ("t-0",)
    list(replicas.follow(topics(), new, new.topics))
    assert replicas.offline == replicas.put_off == {("t", 0)}
    before = replicas.partition("t", 0)
    disk.names = ()
    assert replicas.open_again(old) == 0
    assert replicas.open_again(new) == 1
    partition = replicas.partition("t", 0)
    assert partition is not None and partition.led_here
    assert not replicas.offline and not replicas.put_off
    assert changed == [before], "whoever fetches or waits has to leave the one without a log"


def test_a_batch_that_was_refused_for_want_of_room_comes_before_later_ones(tmp_path: Path) -> None:
    """An idempotent producer sends several batches without waiting. An earlier version accepted the
    last one as the producer's first, if the log was opened right before it arrived, and then
    refused the others."""
    disk = UnrenamedDisk(error=ENOSPC)
    storage = Storage.open(disk, Clock(), [str(tmp_path)], node_id=1)
    old = build_batch([Record(0, 1, None, b"of the old topic")])
    storage.get_or_create("t", 0, b"1" * 16, LogConfig()).append_bytes(old, 0)
    storage.close()
    storage = Storage.open(disk, Clock(), [str(tmp_path)], node_id=1)
    replicas, image = Replicas(1, storage, lambda *_: LogConfig(), True), topics(t=(b"2", 1))
    disk.names = ("t-0",)
    list(replicas.follow(topics(), image, image.topics))
    first, later = (
        build_batch([Record(0, 1, None, b"x")], producer_id=5, producer_epoch=0, base_sequence=at)
        for at in (7, 8)
    )
    for opened in (0, 1):
        refusing = replicas.partition("t", 0)
        assert refusing is not None
        if not opened:
            refusing.log.note_refused(first)
            refusing.log.note_refused(later)
        else:
            disk.names = ()
        assert replicas.open_again(image) == opened
    partition = replicas.partition("t", 0)
    assert partition is not None
    with pytest.raises(OutOfOrderSequence, match="7 could not be written"):
        partition.log.append_bytes(later, 0)
    assert [partition.log.append_bytes(each, 0) for each in (first, later)] == [0, 1]


def test_a_partition_that_waits_for_room_is_forgotten_once_it_moves_away(tmp_path: Path) -> None:
    disk = UnrenamedDisk("t-0", error=ENOSPC)
    storage = Storage.open(disk, Clock(), [str(tmp_path)], node_id=1)
    written = storage.get_or_create("t", 0, b"1" * 16, LogConfig())
    written.append_bytes(build_batch([Record(0, 1, None, b"of the old topic")]), 0)
    storage.close()
    storage = Storage.open(disk, Clock(), [str(tmp_path)], node_id=1)
    replicas = Replicas(1, storage, lambda image, name: LogConfig(), True)
    old = topics(t=(b"2", 1))
    list(replicas.follow(topics(), old, old.topics))
    assert replicas.offline == replicas.put_off == {("t", 0)}
    new = old.apply([PartitionChanged("t", 0, PartitionState(2, 1, (2,), (2,), 1))])
    list(replicas.follow(old, new, new.topics))
    assert not replicas.offline and not replicas.put_off


def test_a_partition_that_moves_away_leaves_the_others_of_its_topic_their_checkpoints(
    tmp_path: Path,
) -> None:
    """Without the checkpoints, deleted records would come back at the next start, and every log
    would be read for its recovery."""
    storage = Storage.open(Disk(), Clock(), [str(tmp_path)], node_id=1)
    replicas = Replicas(1, storage, lambda image, name: LogConfig(), True)
    old = topics(t=(b"1", 2))
    list(replicas.follow(topics(), old, old.topics))
    batch = build_batch([Record(n, 1, None, b"x") for n in range(4)])
    for partition in replicas:
        partition.append_bytes(batch)
    new = old.apply([PartitionChanged("t", 0, PartitionState(2, 1, (2,), (2,), 1))])
    list(replicas.follow(old, new, new.topics))
    [stays] = replicas
    stays.log.delete_before(3)
    storage.close([(("t", 1), 4)])
    storage = Storage.open(Disk(), Clock(), [str(tmp_path)], node_id=1)
    assert storage.placement.high_watermarks == {("t", 1): 4}
    assert storage.get_or_create("t", 1, b"1" * 16, LogConfig()).log_start_offset == 3


def test_a_failed_directory_ends_the_part_of_its_partitions_alone(tmp_path: Path) -> None:
    storage = Storage.open(
        Disk(), Clock(), [str(tmp_path / "d0"), str(tmp_path / "d1")], node_id=1)
    changed: list[Partition] = []
    replicas = Replicas(
        1, storage, lambda image, name: LogConfig(), True, roles_changed=changed.extend)
    image = topics(t=(b"1", 4))
    list(replicas.follow(topics(), image, image.topics))
    failing = storage.homes["t", 0]
    there = {key for key, home in storage.homes.items() if home is failing}
    assert len(there) == 2
    told: list[frozenset[tuple[str, int]]] = []
    replicas.offline_changed = lambda: told.append(replicas.offline)
    storage.fail(failing, "a disk died")
    replicas.note_failures()
    assert told == [there]
    assert {(each.topic, each.index) for each in changed} == there


class DiskWithoutRoom(Disk):
    """A disk that refuses to write small files while it is `full`."""

    full = False

    def write_atomically(self, path: str, data: bytes) -> None:
        if self.full:
            raise OSError(ENOSPC, "no room", path)
        super().write_atomically(path, data)


def killed_with_damage(directory: Path) -> tuple[DiskWithoutRoom, Storage]:
    """The storage of a start after a kill. The second of the three batches in t-0 is damaged."""
    disk = DiskWithoutRoom()
    written = Storage.open(disk, Clock(), [str(directory)], node_id=1)
    log = written.get_or_create("t", 0, b"1" * 16, LogConfig())
    batches = [build_batch([Record(0, 1, None, b"%d" % n * 40)]) for n in range(3)]
    for batch in batches:
        log.append_bytes(batch, 0)
    segment = directory / "t-0" / f"{0:020d}.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    for each in written.directories:
        each.close()                                # the process is killed
    segment.write_bytes(data)
    return disk, Storage.open(disk, Clock(), [str(directory)], node_id=1)


def test_a_log_that_is_cut_once_there_is_room_is_not_taken_for_cut_at_the_next_start(
    tmp_path: Path,
) -> None:
    """The replica was reported as offline until then, so the cut needs no further report."""
    disk, storage = killed_with_damage(tmp_path)
    replicas, image = Replicas(1, storage, lambda *_: LogConfig(), True), topics(t=(b"1", 1))
    disk.full = True
    list(replicas.follow(topics(), image, image.topics))
    assert replicas.put_off == {("t", 0)}
    disk.full = False
    assert replicas.open_again(image) == 1
    partition = replicas.partition("t", 0)
    assert partition is not None and partition.log.log_end_offset == 1
    assert partition.log.put_aside is not None and not list(tmp_path.glob("t-0/*.cut"))


def test_a_log_that_had_no_room_for_its_recovery_is_recovered_by_the_start_after_a_clean_stop(
    tmp_path: Path,
) -> None:
    disk, storage = killed_with_damage(tmp_path)
    image = topics(t=(b"1", 1))
    replicas = Replicas(1, storage, lambda *_: LogConfig(), True)
    disk.full = True
    list(replicas.follow(topics(), image, image.topics))
    assert replicas.put_off == {("t", 0)}
    disk.full = False                               # the operator made room after the stop
    storage.close()
    storage = Storage.open(disk, Clock(), [str(tmp_path)], node_id=1)
    replicas = Replicas(1, storage, lambda *_: LogConfig(), True)
    list(replicas.follow(topics(), image, image.topics))
    partition = replicas.partition("t", 0)
    assert partition is not None and partition.log.log_end_offset == 1
