"""A disk without a journal: after a power cut, the names in a directory are certain only if this
directory was synced."""

from __future__ import annotations

import pytest

from tests.log.faulty_disk import FaultyDisk


def made(seed: int) -> FaultyDisk:
    """A disk without a journal, with an empty directory /d that survives power cuts."""
    disk = FaultyDisk(seed)
    disk.journaled = False
    disk.makedirs("/d")
    disk.sync_directory("/")
    return disk


def after_power_cuts(*steps: tuple[str, ...]) -> set[frozenset[str]]:
    """The sets of names below /d that power cuts leave after these calls."""
    found = set()
    for seed in range(40):
        disk = made(seed)
        for call, *paths in steps:
            getattr(disk, call)(*paths, **({"create": True} if call == "open" else {}))
        disk.cut_power()
        found.add(frozenset(name[3:] for name in disk.names if name.startswith("/d/")))
    return found


def test_a_synced_directory_is_lost_without_its_parent() -> None:
    steps = [("makedirs", "/d/a"), ("open", "/d/a/x"), ("sync_directory", "/d/a")]
    assert after_power_cuts(*steps) == {frozenset(), frozenset({"a", "a/x"})}
    assert after_power_cuts(*steps, ("sync_directory", "/d")) == {frozenset({"a", "a/x"})}


def test_with_a_journal_earlier_names_are_kept() -> None:
    disk = FaultyDisk(1)
    disk.makedirs("/d/a")
    disk.open("/d/a/x", create=True)
    disk.sync_directory("/d/a")
    disk.cut_power()
    assert "/d/a/x" in disk.names


def test_a_file_in_a_renamed_directory_is_kept_under_either_name() -> None:
    assert after_power_cuts(
        ("makedirs", "/d/a"), ("sync_directory", "/d"), ("rename", "/d/a", "/d/b"),
        ("open", "/d/b/x"), ("sync_directory", "/d/b"),
    ) == {frozenset({"a", "a/x"}), frozenset({"b", "b/x"})}


def test_what_replaces_a_renamed_directory_is_not_mixed_with_it() -> None:
    steps = [
        ("makedirs", "/d/a"), ("open", "/d/a/old"), ("sync_directory", "/d/a"),
        ("sync_directory", "/d"), ("rename", "/d/a", "/d/gone"), ("makedirs", "/d/a"),
        ("open", "/d/a/new"), ("sync_directory", "/d/a"),
    ]
    assert after_power_cuts(*steps) == {
        frozenset({"a", "a/old"}), frozenset({"gone", "gone/old"}),
        frozenset({"gone", "gone/old", "a", "a/new"}),
    }
    assert after_power_cuts(*steps, ("sync_directory", "/d")) == {
        frozenset({"gone", "gone/old", "a", "a/new"})
    }


@pytest.mark.parametrize("synced", ["/d/a", "/d/b"])
def test_a_file_that_moved_to_another_directory_is_kept_once(synced: str) -> None:
    assert after_power_cuts(
        ("makedirs", "/d/a"), ("makedirs", "/d/b"), ("sync_directory", "/d"), ("open", "/d/a/x"),
        ("rename", "/d/a/x", "/d/b/x"), ("sync_directory", synced),
    ) == {frozenset({"a", "b", "b/x"})}
