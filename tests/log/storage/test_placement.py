"""Which log directory gets a new log, and which of several directories has a partition."""

from __future__ import annotations

import pytest

from ottla.log.files.names import partition_metadata
from ottla.log.storage.log_directory import LogDirectory, StorageRefused
from ottla.log.storage.placement import Placement
from ottla.wire.errors import StorageFailed
from tests.log.faulty_disk import FaultyDisk

KEY, ID, OTHER = ("t", 0), b"t" * 16, b"u" * 16


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def three(disk: FaultyDisk) -> list[LogDirectory]:
    return [LogDirectory(disk, f"/{name}") for name in "abc"]


def place(directories: list[LogDirectory], cordoned: str = "") -> str:
    """The name of the directory that gets a new log."""
    placement = Placement(directories, lambda path: path[1:] in cordoned)
    return placement.choose(KEY, ID).path[1:]


def test_a_new_log_goes_where_the_fewest_are(three: list[LogDirectory]) -> None:
    assert place(three) == "a"
    three[0].partitions = {("x", 0), ("x", 1)}
    three[1].partitions = {("x", 2), ("x", 3)}
    three[2].partitions = {("x", 4)}
    assert place(three) == "c"
    assert place(three, "c") == "a", "a cordoned one gets none"
    assert place(three, "abc") == "c", "unless all are"
    three[2].space.refusal = "no room"
    assert place(three) == "a", "nor does a full one"
    assert place(three, "ab") == "c", "which is better than a cordoned one"
    three[0].offline = "the disk is gone"
    assert place(three) == "b"
    three[1].offline = "the disk is gone"
    assert place(three, "c") == "c", "the only one"
    three[2].offline = "the disk is gone"
    with pytest.raises(StorageFailed, match="every log directory is offline"):
        place(three)


def test_offsets_are_not_given_out_again_after_a_power_cut(three: list[LogDirectory]) -> None:
    three[1].log_starts[KEY] = three[2].log_starts[KEY] = 5
    three[1].topic_ids["t"], three[2].topic_ids["t"] = OTHER, ID
    assert place(three) == "c"
    three[2].topic_ids["t"] = OTHER
    assert place(three) == "a"
    del three[2].log_starts[KEY]
    three[2].topic_ids["t"] = ID
    assert place(three) == "a"


def vanished(directories: list[LogDirectory]) -> list[str]:
    placement = Placement(directories, lambda path: False)
    return [each.path for each in placement.vanished(KEY, ID)]


def test_a_directory_that_had_durable_records_and_is_gone_has_vanished(
    three: list[LogDirectory]
) -> None:
    assert vanished(three) == []
    here = three[1]
    here.recovery_points[KEY], here.topic_ids["t"] = 6, ID
    assert vanished(three) == ["/b"]
    here.log_starts[KEY] = 5
    assert vanished(three) == ["/b"]
    with pytest.raises(StorageFailed, match=r"/b/t-0 is missing.* 5 to 5 \(1 record at most\)"):
        Placement(three, lambda path: False).refuse_vanished(KEY, ID)
    here.log_starts[KEY] = 6
    assert vanished(three) == [], "it had none"
    here.log_starts[KEY] = 5
    here.topic_ids["t"] = OTHER
    assert vanished(three) == []
    here.topic_ids["t"] = ID
    here.partitions.add(KEY)
    assert vanished(three) == []
    here.partitions.clear()
    here.offline = "the disk is gone"
    assert vanished(three) == []
    Placement(three, lambda path: False).refuse_vanished(KEY, ID)


def test_nothing_has_vanished_while_a_directory_is_missing(
    disk: FaultyDisk, three: list[LogDirectory]
) -> None:
    three[1].recovery_points[KEY], three[1].topic_ids["t"] = 5, ID
    missing = LogDirectory.unusable(disk, "/d/", OSError("it is not mounted"))
    assert missing.path == "/d" and not missing.known
    assert vanished([*three, missing]) == []
    placement = Placement([*three, missing], lambda path: False)
    with pytest.raises(StorageFailed, match=r"t-0 may be in a log directory.*not mounted"):
        placement.refuse_to_guess(KEY)
    Placement(three, lambda path: False).refuse_to_guess(KEY)


def copy(directory: LogDirectory, topic_id: bytes | None, records: bool = True) -> None:
    path = directory.file("t-0")
    directory.disk.makedirs(path)
    if topic_id is not None:
        directory.disk.write_atomically(f"{path}/partition.metadata", partition_metadata(topic_id))
    if records:
        directory.disk.write_atomically(f"{path}/{0:020d}.log", b"")
    directory.partitions.add(KEY)


@pytest.mark.parametrize(("first", "second", "refused"), [
    ((ID, True), (OTHER, True), False),
    ((ID, True), (ID, True), True),
    ((None, True), (ID, True), True),
    ((ID, True), (None, True), True),
    ((ID, True), (None, False), False),
    ((None, False), (ID, True), False),
    ((None, False), (None, False), True),
])
def test_a_partition_in_two_directories_is_refused_unless_one_cannot_be_it(
    three: list[LogDirectory], first: tuple[bytes | None, bool],
    second: tuple[bytes | None, bool], refused: bool,
) -> None:
    copy(three[0], *first)
    copy(three[2], *second)
    if refused:
        with pytest.raises(StorageRefused, match="partition t-0 is in /c and in /a"):
            Placement(three, lambda path: False)
        return
    placement = Placement(three, lambda path: False)
    assert placement.homes == {KEY: three[0]} and placement.rivals == {KEY: [three[2]]}


def test_high_watermarks_count_in_a_partitions_own_directory(three: list[LogDirectory]) -> None:
    three[0].partitions = {("x", 0)}
    for number, each in enumerate(three):
        each.high_watermarks = {("x", 0): number, (each.path, 0): 10 + number, KEY: 20}
    copy(three[0], ID)
    copy(three[2], OTHER)
    placement = Placement(three, lambda path: False)
    assert placement.high_watermarks == {
        ("x", 0): 0, ("/a", 0): 10, ("/b", 0): 11, ("/c", 0): 12}


def test_of_a_copy_that_was_begun_without_the_other_directory_the_other_ones_offsets_are_void(
    three: list[LogDirectory]
) -> None:
    for each in three:
        each.directory_id = f"id-{each.path}"
        for known in each.checkpointed():
            known[KEY] = 5
    for each in (three[0], three[2]):
        copy(each, ID)
    three[2].disk.write_atomically("/c/t-0/.ottla-begun-without", b"id-/a")
    placement = Placement(three, lambda path: False)
    assert placement.homes == {KEY: three[2]} and placement.rivals == {KEY: [three[0]]}
    assert not any(three[0].checkpointed()) and all(three[2].checkpointed())


def test_a_copy_of_another_topic_does_not_count_as_begun_later(three: list[LogDirectory]) -> None:
    for each in three:
        each.directory_id = f"id-{each.path}"
    copy(three[0], ID)
    copy(three[2], OTHER)
    three[2].disk.write_atomically("/c/t-0/.ottla-begun-without", b"id-/a")
    assert Placement(three, lambda path: False).homes == {KEY: three[0]}


def test_one_record_that_is_gone_has_vanished(three: list[LogDirectory]) -> None:
    three[0].recovery_points[KEY], three[0].topic_ids["t"] = 1, ID
    assert vanished(three) == ["/a"]
    with pytest.raises(StorageFailed, match=r"it had the offsets 0 to 0 \(1 record at most\)"):
        Placement(three, lambda path: False).refuse_vanished(KEY, ID)
