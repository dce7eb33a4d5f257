"""A broker finds out from its log directories how its last run ended."""

from __future__ import annotations

import json

import pytest

from ottla.log.storage import run_record
from ottla.log.storage.run_record import RunRecord, stop_class
from tests.log.faulty_disk import FaultyDisk

RAN = RunRecord(7, "boot-1", "true")
STOPPED = RunRecord(7, "boot-1", "true", clean=True)


@pytest.mark.parametrize(
    ("records", "boot", "expected"),
    [
        ([STOPPED], "boot-1", "clean"),
        ([STOPPED], "boot-2", "clean"),
        ([RAN], "boot-1", "crash"),
        ([RAN], "boot-2", "machine"),
        ([RunRecord(7, "boot-1", "always")], "boot-2", "crash"),
        ([RunRecord(6, "boot-1", "always")], "boot-1", "machine"),      # an older copy
        ([RunRecord(6, "boot-1", "true", clean=True)], "boot-1", "machine"),
        ([RunRecord(7, "", "true")], "", "machine"),        # a system that has no boot id
        ([STOPPED, None], "boot-1", "machine"),
        ([STOPPED, RAN], "boot-1", "crash"),                # the worst result applies
        ([], "boot-1", "lost"),
    ],
)
def test_how_a_run_ended(records: list[RunRecord | None], boot: str, expected: str) -> None:
    assert stop_class(records, 7, boot) == expected


def test_a_record_is_read_as_it_was_written_and_a_damaged_one_is_none() -> None:
    disk = FaultyDisk()
    assert run_record.read(disk, "/d") is None
    disk.makedirs("/d")
    run_record.write(disk, "/d", RAN)
    disk.cut_power()
    assert run_record.read(disk, "/d") == RAN and disk.boot_id() != "boot-1"
    for text in (b"", b"[]", b'{"version":2}', b'{"version":1,"epoch":"7","boot":"","flush":""}'):
        disk.write_atomically("/d/ottla-run", text)
        assert run_record.read(disk, "/d") is None


@pytest.mark.parametrize("record", [RAN, STOPPED, RunRecord(0, "", "always", away=("x", "y"))])
def test_every_record_comes_back(record: RunRecord) -> None:
    disk = FaultyDisk()
    disk.makedirs("/d")
    run_record.write(disk, "/d", record)
    assert run_record.read(disk, "/d") == record
    assert (b"away" in disk.read_bytes("/d/ottla-run")) is bool(record.away)


@pytest.mark.parametrize("change", [
    {"epoch": True}, {"epoch": 1.0}, {"boot": None}, {"flush": 1}, {"clean": 1}, {"away": "x"},
    {"away": [1]}, {"more": 1}, {"version": 0}, {"version": "1"},
])
def test_a_field_of_another_kind_makes_a_record_none(change: dict[str, object]) -> None:
    disk = FaultyDisk()
    disk.makedirs("/d")
    body = {"version": 1, "epoch": 7, "boot": "b", "flush": "true", "clean": True}
    disk.write_atomically("/d/ottla-run", json.dumps(body).encode())
    assert run_record.read(disk, "/d") == RunRecord(7, "b", "true", clean=True)
    disk.write_atomically("/d/ottla-run", json.dumps(body | change).encode())
    assert run_record.read(disk, "/d") is None
