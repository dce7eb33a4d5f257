"""Faults of a log that its offsets show: gaps, missing records, and changes while the broker was
stopped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.log.partition.damage import (
    Damage,
    changed_at_rest,
    copy_tail,
    cut_off_earlier,
    fault_between,
    missing_records,
    unreadable_files,
)
from tests.log.faulty_disk import FaultyDisk


def segment(base: int, end: int, size: int = 90) -> Any:
    return SimpleNamespace(
        base_offset=base, end_offset=end, size=size, path=lambda suffix: f"/d/{base}{suffix}")


@pytest.mark.parametrize(("next_base", "gaps_below", "fault"), [
    (10, 0, False), (11, 0, True), (11, 10, True), (11, 11, False), (11, 12, False),
    (9, 20, True), (9, 0, True),
])
def test_only_compaction_leaves_gaps_between_segments(
    next_base: int, gaps_below: int, fault: bool
) -> None:
    found = fault_between(segment(0, 10), next_base, gaps_below)
    assert found == (
        (90, f"it ends at offset 10, but the next segment begins at {next_base}")
        if fault else None)


def test_records_that_were_committed_are_missing_if_the_log_ends_before_them() -> None:
    segments = [segment(0, 5), segment(5, 10, 70)]
    for written_upto in (0, 9, 10):
        assert missing_records("/d", segments, 10, written_upto) is None
    one, many = (missing_records("/d", segments, 10, upto) for upto in (11, 13))
    assert one is not None and many is not None
    assert one[:2] == ("/d/5.log", 70) and one.end_offset == 10 and one.permanent
    assert "from offset 10 to 10 are gone (1 offset)" in one.reason
    assert "from offset 10 to 12 are gone (3 offsets)" in many.reason
    nothing = missing_records("/d", [], 0, 1)
    assert nothing is not None and nothing[:2] == ("/d", 0) and nothing.end_offset == 0


def test_a_log_that_was_changed_at_rest_is_told() -> None:
    segments = [segment(3, 5), segment(5, 10, 70)]
    assert changed_at_rest("/d", segments, 3, 10) is None
    assert changed_at_rest("/d", segments, 4, 10) is None, "its start is within the segment"
    assert changed_at_rest("/d", [], 0, 10) is None
    later = changed_at_rest("/d", segments, 2, 10)
    assert later is not None and later[:2] == ("/d", 0) and later.end_offset == 2
    assert "it begins at offset 3, but began at 2 when closed" in later.reason
    for end in (9, 11):
        other = changed_at_rest("/d", segments, 3, end)
        assert other is not None and other[:2] == ("/d/5.log", 70) and other.end_offset == 10
        assert f"it ends at offset 10, but ended at {end} when closed" in other.reason


def test_files_that_the_disk_does_not_give_end_the_log_at_its_start() -> None:
    found = unreadable_files("/d", OSError("why"), 7)
    assert found == Damage("/d", 0, "it cannot be read: why", 7)


def test_a_cut_that_was_not_reported_is_that_of_the_first_note() -> None:
    assert cut_off_earlier("/d", [], 5) is None
    found = cut_off_earlier("/d", ["20.cut", "10.cut"], 5)
    assert found is not None and found.path == "/d/10.log" and found.end_offset == 5
    assert found.aside == "/d/*.quarantine" and not found.permanent
    assert "all bytes after them were moved to /d/*.quarantine" in str(found)


@pytest.mark.parametrize("position", [0, 3, 9, 10])
def test_the_tail_is_copied_whole(monkeypatch: pytest.MonkeyPatch, position: int) -> None:
    monkeypatch.setattr("ottla.log.partition.damage.COPY_BYTES", 4)
    disk = FaultyDisk()
    disk.makedirs("/d")
    disk.write_atomically("/d/source", b"0123456789")
    disk.write_atomically("/d/target.tmp", b"left by an earlier attempt")
    copy_tail(disk, "/d/source", "/d/target", position, 10)
    assert disk.read_bytes("/d/target") == b"0123456789"[position:]
    assert not disk.exists("/d/target.tmp")
