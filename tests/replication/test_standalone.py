"""The metadata log of a standalone broker survives crashes, and its size is bounded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.log.files.disk import Disk
from ottla.log.storage.log_directory import LogDirectory
from ottla.log.storage.storage import Storage
from ottla.replication import standalone
from ottla.replication.metadata import (
    ConfigSet,
    Decision,
    EpochsRaised,
    MetadataImage,
    MetadataRecord,
    PartitionState,
    TopicCreated,
    TopicDeleted,
)
from ottla.replication.principals import (
    AccessRule,
    DelegationToken,
    QuotaSet,
    RuleSet,
    ScramCredential,
    ScramSet,
    TokenSet,
)
from ottla.replication.records import UnreadableMetadata
from ottla.replication.standalone import (
    KEPT_FOR_EVER,
    StandaloneStore,
    raise_leader_epochs,
    read_stopped,
)
from ottla.wire.errors import StorageFailed
from ottla.wire.records import Record, build_batch
from tests.fakes import FakeClock
from tests.replication.histories import histories

ALONE = PartitionState(0, 0, (0,), (0,))


class Keeper:
    """A store with the image after its last append."""

    def __init__(self, directory: Path) -> None:
        self.storage = Storage.open(Disk(), FakeClock(), [str(directory)], node_id=0)
        self.store = StandaloneStore.open(self.storage, FakeClock())
        self.image = self.store.load()

    def append(self, *records: MetadataRecord) -> None:
        self.image = self.image.apply(records)
        self.store.append(records, self.image)

    def stop(self) -> MetadataImage:
        self.store.close()
        self.storage.close()
        return self.image

    def crash(self) -> MetadataImage:
        """Release the directory without the actions of a clean stop."""
        for directory in self.storage.directories:
            assert directory.lock is not None
            directory.lock.close()
        return self.image


def topic(number: int, partitions: int = 1) -> TopicCreated:
    return TopicCreated(f"t{number}", (256 + number).to_bytes(16, "big"), (ALONE,) * partitions)


def test_a_new_directory_has_an_empty_image_with_the_cluster_id(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    assert keeper.image == MetadataImage.empty(keeper.storage.cluster_id)
    assert keeper.image.cluster_id


@pytest.mark.parametrize("end", [Keeper.stop, Keeper.crash])
def test_what_was_appended_is_there_again(tmp_path: Path, end: object) -> None:
    keeper = Keeper(tmp_path)
    keeper.append(topic(1), ConfigSet("topic", "t1", "retention.ms", "5"))
    keeper.append(topic(2))
    keeper.append(TopicDeleted("t1"))
    image = end(keeper)  # type: ignore[operator]
    assert Keeper(tmp_path).image == image


def test_a_decision_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    keeper.append(topic(1))
    kept = keeper.image
    keeper.append(topic(2), ConfigSet("topic", "t2", "retention.ms", "5"))
    keeper.crash()
    [segment] = (tmp_path / "__ottla_metadata-0").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-1])
    assert Keeper(tmp_path).image == kept


def test_the_log_is_rewritten_as_a_snapshot_before_it_grows_without_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", 20)
    keeper = Keeper(tmp_path)
    sizes = []
    for number in range(60):
        keeper.append(topic(number))
        keeper.append(TopicDeleted(f"t{number}"))
        log = keeper.store.log
        sizes.append(log.log_end_offset - log.log_start_offset)
    assert max(sizes) < 60
    assert len(list((tmp_path / "__ottla_metadata-0").iterdir())) < 12
    keeper.append(topic(7, partitions=3))
    image = keeper.crash()
    assert image.offset == 121
    assert Keeper(tmp_path).image == image, "its offset goes on too"


def test_a_snapshot_may_be_larger_than_one_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(tmp_path)
    keeper.append(*(topic(number, partitions=40) for number in range(2000)))
    monkeypatch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", -100_000)
    monkeypatch.setattr(standalone, "READ_SIZE", 100_000)
    keeper.append(TopicDeleted("t7"))
    image = keeper.stop()
    assert keeper.store.log.size_bytes > standalone.READ_SIZE
    assert Keeper(tmp_path).image == image


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories(), st.integers(1, 12), st.integers(150, 1000))
def test_a_stopped_brokers_metadata_are_read_without_a_start(
    tmp_path_factory: pytest.TempPathFactory, history: list[MetadataRecord], every: int, size: int
) -> None:
    """They are read from several segments, of which a snapshot may have removed the first ones.
    Nothing is written."""
    path = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", every - 4 * 20)
        patch.setattr(standalone, "KEPT_FOR_EVER", KEPT_FOR_EVER._replace(segment_bytes=size))
        keeper = Keeper(path)
        for record in history:
            keeper.append(record)
        if not history:
            keeper.append(topic(1))
        image = keeper.stop()
    before = {each.name: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    directory = LogDirectory(Disk(), str(path))
    assert read_stopped(directory) == image
    directory.close()
    assert {each.name: each.read_bytes() for each in path.rglob("*") if each.is_file()} == before


def test_a_record_of_a_later_version_stops_the_start(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path)
    record = Record(offset=0, timestamp=1, key=None, value=b'["ToBeInvented",{}]')
    keeper.store.log.append_bytes(build_batch([record]), 0)
    keeper.stop()
    with pytest.raises(UnreadableMetadata, match="ToBeInvented"):
        Keeper(tmp_path)


def test_a_snapshot_is_due_once_the_log_has_several_times_what_the_image_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", 10)
    someone = (("user", "u"),)
    rule = AccessRule(2, 3, "t", "User:a", "*", 3, 3)
    token = DelegationToken("i", "User:a", "User:a", (), 1, 2, 3)
    image = MetadataImage.empty("c").apply([
        *(topic(number) for number in range(3)),
        *(ConfigSet("topic", f"t{number}", "retention.ms", "5") for number in range(2)),
        ScramSet("u", 1, ScramCredential(4096, b"", b"", b"")),
        QuotaSet(someone, "producer_byte_rate", 5.0),
        RuleSet(rule, True),
        TokenSet("i", token),
    ])
    needed = 2 * 3 + 2 + 1 + 1 + 1 + 1          # each topic may need EpochsRaised too
    store = Keeper(tmp_path).store
    store.behind_snapshot = 4 * needed
    assert store.snapshot(10, image) is None
    records = store.snapshot(11, image)
    assert records is not None
    assert replace(MetadataImage.empty("c").apply(records), offset=image.offset) == image


def test_records_count_towards_the_next_snapshot_after_a_start_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Keeper(tmp_path)
    keeper.append(topic(1), topic(2))
    keeper.append(TopicDeleted("t1"))
    assert keeper.store.behind_snapshot == 3
    keeper.crash()
    keeper = Keeper(tmp_path)
    assert keeper.store.behind_snapshot == 3
    monkeypatch.setattr(standalone, "SNAPSHOT_AFTER_RECORDS", -100)
    keeper.append(topic(3))
    assert keeper.store.behind_snapshot == 0
    monkeypatch.undo()
    keeper.append(topic(4))
    keeper.crash()
    assert Keeper(tmp_path).store.behind_snapshot == 1


def test_a_write_that_was_given_up_lets_nothing_follow_it(tmp_path: Path) -> None:
    """Nobody knows whether its records are on disk."""
    keeper = Keeper(tmp_path)
    write = keeper.store.begin([topic(1)], keeper.image.apply([topic(1)]))
    write.give_up(RuntimeError("no thread"))
    with pytest.raises(StorageFailed, match="no thread"):
        keeper.append(topic(2))


def test_leader_epochs_are_raised_if_there_is_a_topic() -> None:
    empty = MetadataImage.empty("c")
    assert raise_leader_epochs(empty) == Decision((), None)
    assert raise_leader_epochs(empty.apply([topic(1)])) == Decision([EpochsRaised()], None)


@pytest.mark.parametrize("change", ["shorter", "longer", "a gap", "empty", "damaged"])
def test_a_log_that_is_not_as_the_stop_has_left_it_is_not_read(
    tmp_path: Path, change: str
) -> None:
    keeper = Keeper(tmp_path)
    for number in range(3):
        keeper.append(topic(number))
    keeper.stop()
    [segment] = (tmp_path / "__ottla_metadata-0").glob("*.log")
    data = segment.read_bytes()
    batches = [data[at : at + len(data) // 3] for at in range(0, len(data), len(data) // 3)]
    assert len(batches) == 3
    segment.write_bytes({
        "shorter": batches[0] + batches[1],
        "longer": data + batches[2][:7] + b"\x03" + batches[2][8:],
        "a gap": batches[0] + batches[2],
        "empty": b"",
        "damaged": data[:-1] + b"?",
    }[change])
    directory = LogDirectory(Disk(), str(tmp_path))
    with pytest.raises(UnreadableMetadata):
        read_stopped(directory)
    directory.close()
