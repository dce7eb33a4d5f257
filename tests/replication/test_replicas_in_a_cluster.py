"""A cluster's partitions follow the image: roles, settings, and logs that the disk refuses."""

from __future__ import annotations

import os
from errno import EIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.log.files.disk import Disk, File
from ottla.log.partition.config import LogConfig
from ottla.log.partition.damage import Damage
from ottla.log.storage.storage import Storage
from ottla.replication.metadata import (
    BrokerGone,
    BrokerImage,
    BrokerLeaving,
    BrokerRegistered,
    ConfigSet,
    MetadataImage,
    MetadataRecord,
    PartitionChanged,
    PartitionExtra,
    PartitionState,
    TopicCreated,
)
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.wire.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from tests.fakes import FakeClock
from tests.replication.fakes import FakeClusterSide, batch

LED = PartitionState(1, 4, (1, 2, 3), (1, 2), 7)
FOLLOWED = PartitionState(2, 3, (2, 1), (2, 1), 5)
SOLE = PartitionState(1, 2, (1,), (1,), 1)
ELSEWHERE = PartitionState(2, 0, (2, 3), (2, 3))
EMPTY = MetadataImage.empty("c").apply([
    BrokerRegistered(BrokerImage(node, 100 + node, (), None, f"i{node}")) for node in (1, 2, 3)
])


class RefusingDisk(Disk):
    """A disk that cannot open the file whose path ends with `refused`."""

    refused = ""

    def open(self, path: str, create: bool = False) -> File:
        if path.endswith(self.refused or "?"):
            raise OSError(EIO, os.strerror(EIO), path)
        return super().open(path, create)


def log_config(image: MetadataImage, topic: str) -> LogConfig:
    settings = {**image.config_of("broker", ""), **image.config_of("topic", topic)}
    return LogConfig(
        min_insync_replicas=int(settings.get("min.insync.replicas", 1)),
        retention_ms=int(settings.get("retention.ms", 1000)),
    )


class Here:
    """Broker 1 with its partitions, and the image that they have followed."""

    def __init__(self, path: Path, incarnation: str = "i1") -> None:
        self.path, self.disk, self.side = path, RefusingDisk(), FakeClusterSide()
        self.changed: list[Partition] = []
        self.open(incarnation)

    def open(self, incarnation: str = "i1") -> None:
        self.storage = Storage.open(self.disk, FakeClock(), [str(self.path)], node_id=1)
        self.replicas = Replicas(
            1, self.storage, log_config, False, incarnation, self.side, self.changed.extend)
        self.image = EMPTY

    def follow(self, *records: MetadataRecord, topics: tuple[str, ...] = ()) -> int:
        """Apply these records, and follow the image; returns the number of steps."""
        old, self.image = self.image, self.image.apply(records)
        return len(list(self.replicas.follow(old, self.image, topics)))

    def create(self, *states: PartitionState, name: str = "t") -> int:
        return self.follow(TopicCreated(name, name[0].encode() * 16, states), topics=(name,))

    def change(self, index: int, state: PartitionState) -> None:
        self.follow(PartitionChanged("t", index, state), topics=("t",))

    def at(self, index: int, name: str = "t") -> Partition:
        partition = self.replicas.partition(name, index)
        assert partition is not None
        return partition


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def roles(part: Partition) -> tuple[object, ...]:
    return (
        part.leader_id, part.leader_epoch, part.led_here, part.replicas, part.isr,
        part.partition_epoch, part.offline, added(part),
    )


def added(part: Partition) -> int:
    number: int = part.adding       # type: ignore[attr-defined]
    return number


def test_each_partition_has_the_role_of_the_image(here: Here) -> None:
    extra = PartitionExtra(adding=(3,), offline=(3,))
    here.create(LED._replace(extra=extra), FOLLOWED, SOLE, ELSEWHERE)
    assert roles(here.at(0)) == (1, 4, True, (1, 2, 3), (1, 2), 7, (3,), 1)
    assert roles(here.at(1)) == (2, 3, False, (2, 1), (2, 1), 5, (), 0)
    assert here.at(1).role.following and here.at(1).role.replicated
    assert (here.at(2).leader_epoch, here.at(2).led_here) == (2, True)
    assert not here.at(2).role.replicated, "the only replica waits for nobody"
    assert here.replicas.partition("t", 3) is None
    assert here.changed == [here.at(0), here.at(1)]
    assert [each.index for each in here.replicas] == [0, 1, 2]


def test_whoever_fetches_hears_of_new_epochs_alone(here: Here) -> None:
    here.create(LED, FOLLOWED)
    here.changed.clear()
    here.change(0, LED._replace(isr=(1, 2, 3), partition_epoch=8))
    assert here.at(0).isr == (1, 2, 3) and here.changed == []
    here.change(0, LED._replace(leader=2, leader_epoch=5, partition_epoch=9))
    assert here.changed == [here.at(0)] and not here.at(0).led_here
    here.changed.clear()
    here.change(0, LED._replace(leader=2, leader_epoch=6, partition_epoch=10))
    assert here.changed == [here.at(0)], "the same leader begins a new epoch"


def test_a_partition_that_had_followers_goes_on_as_one_of_several(here: Here) -> None:
    """The remaining replica keeps the role of a replicated partition, since it acknowledged records
    while other brokers had copies too."""
    here.create(LED)
    here.change(0, LED._replace(replicas=(1,), isr=(1,), partition_epoch=8))
    assert here.at(0).role.replicated
    assert roles(here.at(0)) == (1, 4, True, (1,), (1,), 8, (), 0)


def test_a_sole_partition_that_gets_followers_waits_for_them(here: Here) -> None:
    here.create(SOLE)
    here.change(0, SOLE._replace(replicas=(1, 2), isr=(1, 2), partition_epoch=2))
    here.at(0).append_bytes(batch())
    assert here.at(0).role.replicated and here.at(0).high_watermark == 0


def test_the_side_of_the_cluster_answers_from_the_new_image(here: Here) -> None:
    here.follow(BrokerGone(3))
    assert here.side.broker_epochs == {1: 101, 2: 102}


@pytest.mark.parametrize("record", [BrokerGone(3), BrokerLeaving(3)])
def test_a_broker_that_goes_holds_no_high_watermark_back(
    here: Here, record: MetadataRecord
) -> None:
    here.create(LED)
    part = here.at(0)
    part.fetched_by(2, 102, 0)
    part.fetched_by(3, 103, 0)                      # caught up, but not in sync
    part.append_bytes(batch())
    part.fetched_by(2, 102, 1)
    assert part.high_watermark == 0
    here.follow(TopicCreated("u", b"u" * 16, (ELSEWHERE,)), topics=("u",))
    assert part.high_watermark == 0
    follow = here.side.follow
    here.side.follow = lambda image: here.side.broker_epochs.pop(3)     # type: ignore
    assert here.follow(record) == 1
    here.side.follow = follow                       # type: ignore[method-assign]
    assert part.high_watermark == 1


def test_settings_reach_the_logs_that_they_concern(here: Here) -> None:
    here.create(LED, ELSEWHERE, FOLLOWED)
    here.create(LED, name="u")
    assert here.follow(ConfigSet("topic", "t", "retention.ms", "5")) == 3
    assert [each.log.config.retention_ms for each in here.replicas] == [5, 5, 1000]
    assert here.follow(ConfigSet("topic", "absent", "retention.ms", "6")) == 0
    assert here.follow(ConfigSet("group", "u", "retention.ms", "6")) == 0
    assert here.follow(ConfigSet("broker", "", "retention.ms", "7")) == 4
    assert [each.log.config.retention_ms for each in here.replicas] == [5, 5, 7]
    here.follow(ConfigSet("topic", "t", "retention.ms", None))
    assert [each.log.config.retention_ms for each in here.replicas] == [7, 7, 7]


def test_a_new_min_isr_counts_at_once(here: Here) -> None:
    here.create(LED)
    assert not here.at(0).role.under_min_isr
    here.follow(ConfigSet("topic", "t", "min.insync.replicas", "3"))
    assert here.at(0).role.under_min_isr


def test_an_in_sync_set_is_judged_by_the_min_isr_of_its_own_image(here: Here) -> None:
    here.follow(ConfigSet("topic", "t", "min.insync.replicas", "2"))
    here.create(LED)
    smaller = LED._replace(isr=(1,), partition_epoch=8)
    here.follow(
        ConfigSet("topic", "t", "min.insync.replicas", "1"), PartitionChanged("t", 0, smaller),
        topics=("t",))
    assert not here.at(0).role.under_min_isr


def test_a_partition_that_is_not_here_is_named_or_unknown(here: Here) -> None:
    here.create(LED, ELSEWHERE)
    for index in (-1, 1, 2):
        assert here.replicas.partition("t", index) is None
    assert here.replicas.partition("u", 0) is None
    assert isinstance(here.replicas.absent("t", 1), NotLeaderOrFollower)
    assert isinstance(here.replicas.absent("t", 0), NotLeaderOrFollower)
    for name, index in (("t", -1), ("t", 2), ("u", 0)):
        assert isinstance(here.replicas.absent(name, index), UnknownTopicOrPartition)


def test_the_logs_that_are_wanted_are_those_with_a_replica_here(here: Here) -> None:
    here.create(LED, ELSEWHERE, FOLLOWED)
    here.follow(ConfigSet("topic", "t", "retention.ms", "5"))
    config = LogConfig(retention_ms=5)
    assert list(here.replicas.wanted(here.image)) == [
        (("t", 0), b"t" * 16, config), (("t", 2), b"t" * 16, config)
    ]


def test_a_process_that_is_not_registered_has_logs_and_no_part(tmp_path: Path) -> None:
    here = Here(tmp_path, "i1-later")
    here.create(LED, FOLLOWED)
    assert [each.leader_epoch for each in here.replicas] == [-1, -1]
    here.change(1, FOLLOWED._replace(replicas=(2, 3), isr=(2,), partition_epoch=6))
    assert here.replicas.partition("t", 1) is not None, "it may be a former image"
    assert here.changed == []
    here.follow(BrokerRegistered(BrokerImage(1, 201, (), None, "i1-later")))
    assert here.at(0).led_here and here.replicas.partition("t", 1) is None
    assert {each.index for each in here.changed} == {0, 1}
    here.changed.clear()
    here.follow(BrokerGone(3))
    assert here.changed == []


def test_a_partition_that_moves_away_is_closed_counted_and_told(here: Here) -> None:
    here.create(LED, FOLLOWED)
    part = here.at(0)
    part.append_bytes(batch())
    part.counters.messages_in = 5
    here.changed.clear()
    here.change(0, ELSEWHERE._replace(partition_epoch=8, leader_epoch=9))
    assert here.replicas.partition("t", 0) is None and not part.led_here
    assert here.replicas.gone.messages_in == 5
    assert here.changed == [part]
    assert ("t", 0) not in here.storage.homes and ("t", 1) in here.storage.homes


def test_high_watermarks_of_the_last_run_are_for_partitions_with_copies(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.create(LED, SOLE)
    for part in here.replicas:
        for _ in range(3):
            part.append_bytes(batch())
    here.storage.close([(("t", 0), 2), (("t", 1), 1)])
    here.open()
    here.create(LED, SOLE)
    assert [each.high_watermark for each in here.replicas] == [2, 3]
    here.storage.close()
    (tmp_path / "replication-offset-checkpoint").unlink()
    here.open()
    here.create(LED, SOLE)
    assert [each.high_watermark for each in here.replicas] == [0, 3], "nothing is known of it"


def damage(part: Partition) -> None:
    part.log.health.note_damage(Damage(part.log.directory, 0, "bits have changed", 0))


def test_a_topics_checkpoints_go_with_its_last_partition(here: Here) -> None:
    here.create(SOLE, SOLE)
    home = here.storage.homes["t", 0]
    elsewhere = ELSEWHERE._replace(partition_epoch=2, leader_epoch=9)
    here.change(0, elsewhere)
    assert "t" in home.topic_ids
    here.change(1, elsewhere)
    assert "t" not in home.topic_ids
    here.create(SOLE, name="u")
    assert "u" in home.topic_ids
    list(here.replicas.follow(here.image, EMPTY, ("u",)))
    assert "u" not in home.topic_ids


def waited_for(part: Partition) -> list[None]:
    """A list that grows whenever the waiting for this partition ends."""
    calls: list[None] = []
    part.start_watchers[lambda: calls.append(None)] = None
    return calls


def test_the_waiting_for_a_partition_that_fails_ends(here: Here) -> None:
    here.create(LED, LED, SOLE)
    calls = [waited_for(each) for each in here.replicas]
    damage(here.at(0))
    here.replicas.note_damage(here.at(0))
    assert [len(each) for each in calls] == [1, 0, 0]
    here.at(1).log.fail("a disk died")
    here.replicas.note_failures()
    assert [len(each) for each in calls] == [2, 1, 1], "all are in the directory that has failed"


def test_a_follower_that_was_repaired_is_no_longer_damaged(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    here.create(LED, LED)
    here.replicas.damaged = {("t", 0): None, ("t", 1): None}
    repaired: Any = SimpleNamespace(
        topic="t", index=0, leader_id=2, repair=lambda: ["aside.1", "aside.2"],
        log=SimpleNamespace(log_end_offset=17))
    here.replicas.repair(repaired)
    assert list(here.replicas.damaged) == [("t", 1)]
    assert "from offset 17 on are fetched again from broker 2" in caplog.text
    assert "aside.1, aside.2" in caplog.text


def test_damage_ends_the_waiting_and_is_told(here: Here) -> None:
    here.create(LED, SOLE)
    told: list[list[tuple[str, int]]] = []
    here.replicas.offline_changed = lambda: told.append(list(here.replicas.damaged))
    here.changed.clear()
    for part in here.replicas:
        damage(part)
        here.replicas.note_damage(part)
    assert told == [[("t", 0)]], "nobody else has the records of the only copy"
    assert here.changed == [here.at(0)]
    damaged = here.at(0)
    here.change(0, ELSEWHERE._replace(partition_epoch=8, leader_epoch=9))
    assert here.replicas.damaged == {}
    here.replicas.note_damage(damaged)
    assert here.replicas.damaged == {} and len(told) == 1


def test_a_damaged_log_is_noted_when_it_gets_a_role(here: Here) -> None:
    here.create(LED, LED)
    damage(here.at(1))
    for index in range(2):
        here.change(index, LED._replace(partition_epoch=8))
    assert list(here.replicas.damaged) == [("t", 1)]


def test_a_directory_that_has_failed_is_told_apart_from_damage(here: Here) -> None:
    here.create(LED, FOLLOWED)
    damage(here.at(0))
    here.storage.fail(here.storage.directories[0], "a disk died")
    here.changed.clear()
    here.replicas.note_failures()
    assert here.replicas.offline == {("t", 1)}
    assert here.changed == [here.at(1)]


def test_a_deleted_topic_leaves_none_of_its_states(here: Here) -> None:
    here.create(LED, LED)
    here.create(LED, name="u")
    for key in (("t", 0), ("t", 1), ("u", 0)):
        here.replicas.offline |= {key}
        here.replicas.damaged[key] = None
        here.replicas.put_off.add(key)
        here.replicas.unreadable.add(key)
    here.at(0).append_bytes(batch())
    dropped = here.at(0)
    for each in here.replicas:
        each.counters.messages_in = 1
    here.changed.clear()
    old, here.image = here.image, EMPTY.apply([TopicCreated("u", b"u" * 16, (LED,))])
    steps = here.replicas.follow(old, here.image, ("t",))
    next(steps)
    assert len(here.replicas.leaving) == 1 and len(here.replicas.leaving[0]) == 1
    assert here.replicas.gone.messages_in == 1 and not dropped.led_here
    assert len(list(steps)) == 1 and here.replicas.leaving == []
    assert here.replicas.gone.messages_in == 2
    kept = {("u", 0)}
    assert here.replicas.offline == here.replicas.put_off == here.replicas.unreadable == kept
    assert here.replicas.damaged.keys() == kept
    assert [each.index for each in here.changed] == [0, 1]
    assert here.replicas.by_id.keys() == {b"u" * 16}


def test_a_deletion_that_is_cut_short_counts_what_was_left(here: Here) -> None:
    here.create(LED, LED)
    for each in here.replicas:
        each.counters.messages_in = 1
    steps = here.replicas.follow(here.image, EMPTY, ("t",))
    next(steps)
    steps.close()                   # type: ignore[attr-defined]
    assert here.replicas.gone.messages_in == 2 and here.replicas.leaving == []


def test_a_full_directory_names_its_partitions(here: Here) -> None:
    here.create(LED, FOLLOWED, ELSEWHERE)
    assert here.replicas.full() == []
    here.storage.get_or_create("other", 0, None, LogConfig())
    here.storage.directories[0].space.refusal = "no room"
    assert here.replicas.full() == [here.at(0), here.at(1)]


def unreadable(here: Here) -> None:
    """Start a second run, in which the log of t-0 cannot be read."""
    here.create(FOLLOWED, FOLLOWED)
    for part in here.replicas:
        part.log.append_bytes(batch(), 3)
    for directory in here.storage.directories:
        directory.close()                           # the process is killed
    here.disk.refused = f"t-0/{0:020d}.log"
    here.open()
    here.create(FOLLOWED, FOLLOWED)
    assert here.replicas.offline == here.replicas.unreadable == {("t", 0)}
    assert here.replicas.put_off == set()


def test_a_log_that_is_readable_the_second_time_is_kept(here: Here) -> None:
    unreadable(here)
    here.disk.refused = ""
    told: list[None] = []
    here.replicas.offline_changed = lambda: told.append(None)
    here.changed.clear()
    before = here.at(0)
    before.counters.failed_fetches = 3
    here.replicas.replace_unreadable(("t", 0), here.image)
    assert here.at(0).log.log_end_offset == 1 and len(told) == 1
    assert here.replicas.offline == here.replicas.unreadable == set()
    assert here.changed == [here.at(0), before]
    assert here.replicas.gone.failed_fetches == 3
    assert not before.role.following, "whoever waits for it finds it closed"
    assert (here.at(0).leader_id, here.at(0).leader_epoch) == (2, 3)


def test_a_log_that_cannot_be_read_twice_is_put_aside_and_begun_anew(here: Here) -> None:
    unreadable(here)
    kept = here.path / "t-0" / f"{0:020d}.log"
    rename = here.disk.rename

    def renamed(source: str, target: str) -> None:
        rename(source, target)
        here.disk.refused = ""

    here.disk.rename = renamed                      # type: ignore[method-assign]
    data = kept.read_bytes()
    here.replicas.replace_unreadable(("t", 0), here.image)
    assert here.at(0).log.log_end_offset == 0 and here.at(0).log.offline is None
    assert here.replicas.offline == here.replicas.unreadable == set()
    aside = [each for each in kept.parent.iterdir() if each != kept and each.read_bytes() == data]
    assert len(aside) == 1


def test_what_was_put_off_is_opened_with_the_image_that_has_it(here: Here) -> None:
    unreadable(here)
    here.disk.refused = ""
    here.replicas.put_off = {("t", 0)}
    told: list[None] = []
    here.replicas.offline_changed = lambda: told.append(None)
    assert here.replicas.open_again(EMPTY) == 0 and len(told) == 1
    assert here.replicas.offline == here.replicas.put_off == {("t", 0)}
    assert here.replicas.open_again(here.image) == 1 and len(told) == 2
    assert here.replicas.offline == here.replicas.put_off == set()


def test_the_only_copy_of_a_partition_is_never_put_aside(tmp_path: Path) -> None:
    here = Here(tmp_path)
    here.create(SOLE)
    here.at(0).append_bytes(batch())
    for directory in here.storage.directories:
        directory.close()
    here.disk.refused = f"t-0/{0:020d}.log"
    here.open()
    here.create(SOLE)
    assert here.replicas.offline == {("t", 0)} and here.replicas.unreadable == set()
    here.replicas.replace_unreadable(("t", 0), here.image)
    assert here.replicas.offline == {("t", 0)}


@pytest.mark.parametrize("state", [SOLE, FOLLOWED])
def test_an_only_copy_that_has_vanished_is_offline_and_one_of_several_is_fetched_again(
    tmp_path: Path, state: PartitionState
) -> None:
    here = Here(tmp_path)
    here.create(state)
    here.at(0).log.append_bytes(batch(), 3)
    here.storage.close()
    for each in (tmp_path / "t-0").iterdir():
        each.unlink()
    (tmp_path / "t-0").rmdir()
    here.open()
    here.create(state)
    assert here.replicas.offline == ({("t", 0)} if state is SOLE else set())
