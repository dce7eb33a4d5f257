"""`ottla-metadata-checkpoint`: what a power cut leaves of it, and which of several is used."""

from __future__ import annotations

import pytest

from ottla.broker.cluster.metadata_checkpoint import MARK, furthest_mark, remove_mark, write_mark
from ottla.replication.cluster_store import Mark
from tests.log.faulty_disk import FaultyDisk


@pytest.mark.parametrize("seed", range(10))
def test_a_mark_that_was_removed_stays_away_after_a_power_cut(seed: int) -> None:
    disk = FaultyDisk(seed)
    disk.makedirs("/data")
    write_mark(disk, "/data", Mark(7, 100))
    remove_mark(disk, "/data")
    disk.cut_power()
    assert not disk.exists(f"/data/{MARK}") and furthest_mark(disk, ["/data"]) is None


def test_the_furthest_mark_of_all_directories_counts() -> None:
    disk = FaultyDisk()
    for path in ("/damaged", "/first", "/second", "/none"):
        disk.makedirs(path)
    write_mark(disk, "/first", Mark(8, 200))
    write_mark(disk, "/second", Mark(7, 100))
    disk.write_atomically(f"/damaged/{MARK}", b"\0")
    assert furthest_mark(disk, ["/damaged", "/first", "/second", "/none", "/unknown"]) == Mark(
        8, 200
    )
