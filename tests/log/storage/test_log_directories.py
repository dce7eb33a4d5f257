"""Which log directories a broker accepts: it notices missing directories, and refuses those of
another kind of broker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ottla.log.files import closed_logs
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.storage import known_directories, member_marks
from ottla.log.storage.known_directories import DIRECTORIES
from ottla.log.storage.log_directory import StorageRefused
from ottla.log.storage.member_marks import ASIDE
from ottla.log.storage.reserve import RESERVE
from ottla.log.storage.storage import Storage
from tests.fakes import FakeClock
from tests.log.batches import batch
from tests.log.faulty_disk import FaultyDisk


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in "abc"]


def opened(paths: list[Path], **options: object) -> Storage:
    directories = [str(path) for path in paths]
    return Storage.open(Disk(), FakeClock(), directories, **options)  # type: ignore[arg-type]


def used(paths: list[Path], **options: object) -> list[str]:
    """Start and stop a broker with these log directories; returns the directories' ids."""
    storage = opened(paths, **options)
    storage.close()
    return [directory.directory_id for directory in storage.directories]


def offline(storage: Storage) -> dict[str, str]:
    return {each.path: str(each.offline) for each in storage.directories if each.offline}


# Directories that are missing


def test_each_directory_remembers_all(paths: list[Path]) -> None:
    ids = used(paths)
    lines = sorted(f"{each} {path}" for each, path in zip(ids, paths, strict=True))
    for path in paths:
        assert (path / DIRECTORIES).read_text().splitlines() == ["0", "3", *lines]


def test_a_directory_that_is_left_out_is_offline(paths: list[Path]) -> None:
    ids = used(paths)
    storage = opened(paths[:2])
    assert list(offline(storage)) == [str(paths[2])]
    assert f"ottla.forget.directories={ids[2]}" in offline(storage)[str(paths[2])]
    assert [each.directory_id for each in storage.directories] == ids


def test_a_directory_that_is_empty_where_another_was_is_offline(paths: list[Path]) -> None:
    ids = used(paths)
    shutil.rmtree(paths[1])
    paths[1].mkdir()
    storage = opened(paths)
    reason = offline(storage)[str(paths[1])]
    assert f"it has no meta.properties, but was the log directory with the id {ids[1]}" in reason
    assert [each.directory_id for each in storage.directories] == ids
    assert not (paths[1] / DIRECTORIES).exists()


def test_a_directory_that_moved_is_accepted_in_its_new_place(paths: list[Path]) -> None:
    ids = used(paths)
    paths[2] = paths[2].rename(paths[2].with_name("elsewhere"))
    storage = opened(paths)
    assert not offline(storage)
    assert [each.directory_id for each in storage.directories] == ids
    assert f"{ids[2]} {paths[2]}\n" in (paths[0] / DIRECTORIES).read_text()


def test_another_directory_in_the_place_of_one_is_told_from_it(paths: list[Path]) -> None:
    ids = used(paths)
    shutil.rmtree(paths[2])
    paths[1].rename(paths[2])
    storage = opened([paths[0], paths[2]])
    assert list(offline(storage)) == [f"{paths[2]} ({ids[2]})"]
    assert [each.directory_id for each in storage.directories] == [ids[0], ids[1], ids[2]]


def test_a_directory_that_was_given_up_is_forgotten(paths: list[Path]) -> None:
    ids = used(paths)
    storage = opened(paths[:2], forgotten=[ids[2]])
    assert not offline(storage) and len(storage.directories) == 2
    storage.close()
    assert ids[2] not in (paths[0] / DIRECTORIES).read_text()
    assert not offline(opened(paths[:2]))


def test_a_directory_that_was_given_up_is_refused_if_it_is_there(paths: list[Path]) -> None:
    ids = used(paths)
    with pytest.raises(StorageRefused, match=rf"{paths[1]} has the id {ids[1]}"):
        opened(paths, forgotten=[ids[1]])


@pytest.mark.parametrize(
    "text", ["", "1\n1\nx /c\n", "0\n2\nx /c\n", "0\n1\nx\n", "0\nmany\nx /c\n"]
)
def test_a_damaged_list_is_made_anew_from_the_others(paths: list[Path], text: str) -> None:
    used(paths)
    (paths[0] / DIRECTORIES).write_text(text)
    storage = opened(paths[:2])
    assert known_directories.read(Disk(), storage.directories[0]) == (
        known_directories.read(Disk(), storage.directories[1]))
    assert list(offline(storage)) == [str(paths[2])]


# Where the metadata are


def test_a_standalone_broker_and_a_member_refuse_each_others_directories(
    paths: list[Path],
) -> None:
    used(paths[:1])
    used(paths[1:], clustered=True, cluster_id="c")
    used(paths[:1])
    used(paths[1:], clustered=True, cluster_id="c")
    with pytest.raises(StorageRefused, match="a belongs to a standalone broker"):
        opened(paths[:1], clustered=True, cluster_id="c")
    with pytest.raises(StorageRefused, match="b belongs to a broker of a cluster, which"):
        opened(paths[1:])


def test_a_directory_of_log_directories_is_refused_and_left_alone(tmp_path: Path) -> None:
    """`ottla cluster start` makes such directories: `broker-1` looks like the name of a
    partition."""
    used([tmp_path / "all" / "broker-1"])
    with pytest.raises(StorageRefused, match=r"contains the log directory .*/all/broker-1\. "):
        opened([tmp_path / "all"])
    assert not (tmp_path / "all" / "meta.properties").exists()


def test_while_directories_become_a_members_nobody_starts_on_them(paths: list[Path]) -> None:
    used(paths)
    names = [str(path) for path in paths]
    directories = member_marks.open_stopped(Disk(), names)
    assert member_marks.begun(directories) is None
    member_marks.begin(directories, "zk:2181/o")
    assert member_marks.begun(directories) == "zk:2181/o"
    assert not member_marks.is_finished(directories)
    member_marks.close_all(directories)
    for clustered in (False, True):
        with pytest.raises(StorageRefused, match="again with --zookeeper zk:2181/o"):
            opened(paths, clustered=clustered)
    directories = member_marks.open_stopped(Disk(), names)
    member_marks.take_back(directories)
    member_marks.close_all(directories)
    used(paths)
    directories = member_marks.open_stopped(Disk(), names)
    member_marks.begin(directories[:1], "zk:2181/o")
    assert member_marks.begun(directories) == "zk:2181/o", "it was interrupted after one"
    member_marks.begin(directories, "zk:2181/o")
    member_marks.finish(directories[:1])
    assert member_marks.begun(directories) == "zk:2181/o"
    member_marks.finish(directories)
    with pytest.raises(StorageRefused, match="belongs to a broker of a cluster already"):
        member_marks.begun(directories)
    assert not member_marks.is_finished(directories), "by another way than this"
    member_marks.close_all(directories)
    assert not offline(opened(paths, clustered=True))


def test_directories_of_different_brokers_do_not_become_one_members(paths: list[Path]) -> None:
    used(paths)
    directories = member_marks.open_stopped(Disk(), [str(path) for path in paths])
    member_marks.begin(directories[:1], "one:2181")
    member_marks.begin(directories[1:2], "two:2181")
    with pytest.raises(StorageRefused, match="different brokers"):
        member_marks.begun(directories)
    member_marks.take_back(directories)
    member_marks.begin(directories[:1], "one:2181")
    member_marks.finish(directories[:1])
    with pytest.raises(StorageRefused, match="different brokers"):
        member_marks.begun(directories)


@pytest.mark.parametrize("metadata", [("__ottla_metadata", 0), ("t", 0)])
def test_the_former_metadata_log_is_put_aside_and_shows_that_all_was_done(
    paths: list[Path], metadata: tuple[str, int]
) -> None:
    used(paths[:1])
    log = paths[0] / f"{metadata[0]}-{metadata[1]}"
    log.mkdir()
    (log / "kept").touch()
    if metadata[0] == "t":
        (paths[0] / RESERVE).touch()                # for the metadata, which move to ZooKeeper
    names = [str(paths[0])]
    directories = member_marks.open_stopped(Disk(), names)
    member_marks.begin(directories, "zk:2181")
    member_marks.put_aside(directories[0], metadata)
    assert (paths[0] / ASIDE / "kept").exists() and not log.exists()
    assert not (paths[0] / RESERVE).exists()
    assert metadata not in directories[0].partitions
    member_marks.finish(directories)
    member_marks.close_all(directories)
    directories = member_marks.open_stopped(Disk(), names)
    assert member_marks.is_finished(directories)
    member_marks.close_all(directories)


def test_only_complete_directories_that_were_stopped_cleanly_are_taken(paths: list[Path]) -> None:
    used(paths)
    with pytest.raises(StorageRefused, match=rf"log directory {paths[2]} .* is missing"):
        member_marks.open_stopped(Disk(), [str(path) for path in paths[:2]])
    (paths[1] / ".kafka_cleanshutdown").unlink()
    with pytest.raises(StorageRefused, match=rf"{paths[1]} was not stopped cleanly"):
        member_marks.open_stopped(Disk(), [str(path) for path in paths])
    with pytest.raises(StorageRefused, match="no broker has used this directory"):
        member_marks.open_stopped(Disk(), [str(paths[0].with_name("new"))])
    used(paths)
    running = opened(paths)
    with pytest.raises(StorageRefused, match="is in use by another process"):
        member_marks.open_stopped(Disk(), [str(path) for path in paths])
    running.close()
    member_marks.close_all(member_marks.open_stopped(Disk(), [str(path) for path in paths]))


def test_a_directory_may_have_spaces_in_its_path(tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "the other one"]
    ids = used(paths)
    storage = opened(paths[:1])
    assert list(offline(storage)) == [str(paths[1])]
    assert [each.directory_id for each in storage.directories] == ids


def test_a_conversion_that_is_refused_leaves_the_directories_to_others(paths: list[Path]) -> None:
    used(paths)
    (paths[2] / ".kafka_cleanshutdown").unlink()
    with pytest.raises(StorageRefused, match="was not stopped cleanly"):
        member_marks.open_stopped(Disk(), [str(path) for path in paths])
    used(paths)


@pytest.mark.parametrize(("old", "new", "said"), [
    ("node.id=0", "node.id=7", r"says node\.id=7, but this broker has node\.id=0"),
    ("cluster.id=", "cluster.id=x", r"says cluster\.id=x"),
    ("directory.id=", "former.id=", r"b has no directory\.id\. Start the broker"),
])
def test_directories_that_are_not_one_brokers_are_not_converted(
    paths: list[Path], old: str, new: str, said: str
) -> None:
    used(paths)
    meta = paths[1] / "meta.properties"
    meta.write_text(meta.read_text().replace(old, new))
    with pytest.raises(StorageRefused, match=said):
        member_marks.open_stopped(Disk(), [str(path) for path in paths])


def test_a_conversion_begins_with_directories_that_are_of_no_cluster_yet(
    paths: list[Path]
) -> None:
    used(paths, clustered=True, cluster_id="c")
    with pytest.raises(StorageRefused, match="belongs to a broker of a cluster already"):
        member_marks.open_stopped(Disk(), [str(path) for path in paths])


def test_the_former_metadata_log_is_aside_for_good_and_no_log_at_rest() -> None:
    disk = FaultyDisk()
    storage = Storage.open(disk, FakeClock(), ["/a"])
    for name in ("metadata", "t"):
        storage.get_or_create(name, 0, name.encode().ljust(16), LogConfig()).append_bytes(
            batch(b"x"), 0)
    storage.close()
    [directory] = member_marks.open_stopped(disk, ["/a"])
    assert not member_marks.is_finished([directory])
    member_marks.put_aside(directory, ("metadata", 0))
    assert f"/a/{ASIDE}" in disk.durable_names and "/a/metadata-0" not in disk.durable_names
    closed = closed_logs.read(disk, f"/a/{closed_logs.CLOSED_LOGS}")
    assert closed.keys() == {("t", 0)}
