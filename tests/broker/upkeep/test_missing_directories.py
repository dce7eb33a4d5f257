"""A missing log directory: its partitions are offline, and are not created elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log.storage.log_directory import StorageRefused
from ottla.wire.errors import ErrorCode, StorageFailed
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import NODE_ID, RunningBroker, WireClient
from tests.broker.topics import create, metadata

PARTITIONS = 4

STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def start(at: Path, names: str, **settings: object) -> RunningBroker:
    return RunningBroker(at, log_dirs=",".join(f"{at}/{name}" for name in names), **settings)


def filled(at: Path) -> set[int]:
    """Create a topic in directories a and b; returns which of its partitions are in b."""
    with start(at, "ab") as broker, WireClient(broker.address) as client:
        create(client, "t", PARTITIONS)
        for index in range(PARTITIONS):
            assert produce(client, "t", batch(b"%d" % index), partition=index).error_code == 0
    return {int(path.name[2:]) for path in (at / "b").glob("t-*")}


def directory_id(path: Path) -> str:
    lines = (path / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)["directory.id"]


def check(broker: RunningBroker, lost: set[int]) -> None:
    with WireClient(broker.address) as client:
        leaders = metadata(client, "t")
        for index in range(PARTITIONS):
            code = produce(client, "t", batch(b"more"), partition=index).error_code
            assert code == (STORAGE_ERROR if index in lost else 0)
            assert leaders[index].leader_id == (-1 if index in lost else NODE_ID)
            if index not in lost:
                assert values(fetch(client, "t", partition=index))[0] == b"%d" % index


@pytest.mark.parametrize("how", ["left out", "not mounted", "unmounted and left out"])
def test_what_was_in_a_missing_directory_is_offline_until_it_is_back(
    tmp_path: Path, how: str
) -> None:
    lost = filled(tmp_path)
    assert 0 < len(lost) < PARTITIONS
    if how != "left out":
        (tmp_path / "b").rename(tmp_path / "away")
    for topic in ("new", "newer"):
        with start(tmp_path, "ab" if how == "not mounted" else "a") as broker:
            check(broker, lost)
            with WireClient(broker.address) as client:
                create(client, topic, PARTITIONS)
                # Topic `new` was created while the directory was missing, so none of its partitions
                # is in there, not even one without records.
                assert {each.leader_id for each in metadata(client, "new").values()} == {NODE_ID}
    if how != "left out":
        if (tmp_path / "b").exists():
            assert [path.name for path in (tmp_path / "b").iterdir()] == [".lock"]
            (tmp_path / "b").rename(tmp_path / "mount point")
        (tmp_path / "away").rename(tmp_path / "b")
    with start(tmp_path, "ab") as broker:
        check(broker, set())


@pytest.mark.parametrize("listed", ["{}", "1, {}"])
def test_an_operator_may_give_a_directory_up_and_then_it_does_not_come_back(
    tmp_path: Path, listed: str,
) -> None:
    lost = filled(tmp_path)
    given_up = listed.format(directory_id(tmp_path / "b"))
    with start(tmp_path, "a", ottla_forget_directories=given_up) as broker:
        with WireClient(broker.address) as client:
            for index in range(PARTITIONS):
                assert produce(client, "t", batch(b"more"), partition=index).error_code == 0
                begun = [b"more"] if index in lost else [b"%d" % index, b"more"]
                assert values(fetch(client, "t", partition=index)) == begun
    with start(tmp_path, "a") as broker, WireClient(broker.address) as client:
        assert {each.leader_id for each in metadata(client, "t").values()} == {NODE_ID}
    with pytest.raises(StorageRefused, match=r"listed in ottla\.forget\.directories"):
        start(tmp_path, "ab", ottla_forget_directories=given_up)
    with pytest.raises(StorageRefused, match=r"is in .*b and in .*a"):
        start(tmp_path, "ab")


def test_without_the_directory_of_the_metadata_nothing_starts_and_says_what_is_missing(
    tmp_path: Path,
) -> None:
    filled(tmp_path)
    assert (tmp_path / "a" / "__ottla_metadata-0").exists()
    with pytest.raises(StorageFailed, match=r"__ottla_metadata-0 may be in .*/a could not"):
        start(tmp_path, "b")


def test_an_empty_mount_point_in_place_of_the_metadata_is_not_begun_anew(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "a").rename(tmp_path / "away")
    with pytest.raises(StorageFailed, match=r"__ottla_metadata-0 may be in .*Is it mounted"):
        start(tmp_path, "ab")
    assert not (tmp_path / "a" / "meta.properties").exists(), "nothing is begun in its place"
