"""`ottla log verify` finds errors in a log directory, and reports where and what to do."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.storage.log_directory import CLEAN_MARKER
from ottla.log.storage.storage import Storage
from ottla.tools.findings import Repeats, Report, size_text
from ottla.wire.checksum import crc32c_of
from tests.tools.logs import open_log, run, some, write_log

FIRST, SECOND = f"{0:020d}", f"{3:020d}"
Capture = pytest.CaptureFixture[str]


def verified(capsys: Capture, *arguments: object) -> tuple[int, str]:
    """Runs the command; returns its status and what it printed."""
    status = run("verify", *arguments)
    seen = capsys.readouterr()
    return status, seen.out + seen.err


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with one partition, as a broker leaves it."""
    storage = Storage.open(Disk(), Clock(), [str(tmp_path)], node_id=0)
    storage.close()
    write_log(tmp_path)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    return tmp_path


def test_a_sound_directory_serves_be_sound(data: Path, capsys: Capture) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    for flags in ([], ["--deep"], ["--online"]):
        status, printed = verified(capsys, data, *flags)
        assert status == 0, printed
        assert "0 errors, 0 notes" in printed
    status, printed = verified(capsys, data / "t-0")
    assert status == 0
    assert f"{data}/t-0: 2 segments, 5 batches, first offset 0, next offset 6, " in printed
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_a_partition_that_is_named_twice_is_counted_once(data: Path, capsys: Capture) -> None:
    for named in ((data / "t-0", data), (data, data), (data / "t-0", f"{data}/t-0/")):
        status, printed = verified(capsys, *named)
        assert status == 0 and "\n1 partition, " in printed, printed
        assert printed.count("t-0: 2 segments") == 1


def test_segments_that_are_not_opened_are_not_called_sound(data: Path, capsys: Capture) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    _, printed = verified(capsys, data, "--online")
    assert "t-0: 1 closed segment, 2 batches, " in printed
    assert "sound; not checked: 1 segment that a broker may be writing" in printed
    (data / "recovery-point-offset-checkpoint").unlink()
    _, printed = verified(capsys, data, "--online")
    assert "t-0: not checked: a broker may be writing its 2 segments" in printed
    assert "sound" not in printed


def test_a_file_is_answered_by_the_command_for_its_directory(data: Path, capsys: Capture) -> None:
    [file, *_] = sorted((data / "t-0").glob("*.log"))
    assert run("verify", file) == 2
    assert capsys.readouterr().err == (
        f"ottla log verify: {file} is a file. Name its directory: ottla log verify {data}/t-0\n")


def test_a_partition_without_its_segments_is_not_called_sound(data: Path, capsys: Capture) -> None:
    for segment in (data / "t-0").glob("*.log"):
        segment.unlink()
    status, printed = verified(capsys, data)
    assert status == 1 and f"{data}/t-0: no segments\n" in printed and "sound" not in printed
    what = "it has offset 6 for t-0, whose log ends at offset 0"
    assert f"recovery-point-offset-checkpoint: {what}" in printed


def flip(at: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return change


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def write(text: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(text) and None  # type: ignore[return-value]


DAMAGE: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "a flipped bit": (f"t-0/{FIRST}.log", flip(65), "at byte 0 (offset 0): the checksum"),
    "a flipped magic": (f"t-0/{SECOND}.log", flip(16), "magic is 3, not 2"),
    "a torn end below the recovery point": (
        f"t-0/{SECOND}.log", cut, f"{SECOND}.log at byte",
    ),
    "a cut segment in the middle": (f"t-0/{FIRST}.log", cut, "the batch takes"),
    "an index that points elsewhere": (f"t-0/{FIRST}.index", flip(3), f"{FIRST}.index: it says"),
    "an index with half an entry": (f"t-0/{FIRST}.index", cut, "not a multiple of 8"),
    "an index that is gone": (f"t-0/{SECOND}.index", Path.unlink, "it is missing"),
    "a time index of other times": (f"t-0/{SECOND}.timeindex", flip(7), "timeindex: it has "),
    "an aborted transaction that is not listed": (
        f"t-0/{SECOND}.txnindex", Path.unlink, "producer 9, offsets 3 to 4, was aborted",
    ),
    "a damaged snapshot": (f"t-0/{SECOND}.snapshot", flip(20), "checksum does not match"),
    "epochs that are no text": ("t-0/leader-epoch-checkpoint", write(b"x"), "cannot be read"),
    "epochs of another log": (
        "t-0/leader-epoch-checkpoint", write(b"0\n1\n5 0\n"), "leader-epoch-checkpoint says 5",
    ),
    "a topic id that is none": ("t-0/partition.metadata", write(b"version: 0\n"), "topic's id"),
    "a checkpoint that is cut off": (
        "log-start-offset-checkpoint", write(b"0\n3\n"), "does not have 3 valid entries",
    ),
    "a recovery point behind the end": (
        "recovery-point-offset-checkpoint", write(b"0\n1\nt 0 9\n"), "whose log ends at offset 6",
    ),
    "meta.properties without ids": ("meta.properties", write(b"version=1\n"), "cluster.id"),
    "bytes put aside": (f"t-0/{FIRST}.118.quarantine", write(b"xx"), "put 2 bytes of the log into"),
    "a note of damage": (f"t-0/{FIRST}.damaged", write(b"0 x\n"), "accepts no writes"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_and_told_with_its_place(data: Path, capsys: Capture, name: str) -> None:
    file, damage, expected = DAMAGE[name]
    damage(data / file)
    status, printed = verified(capsys, data)
    assert status == 1, printed
    assert expected in printed
    assert str(data / file) in printed or "epochs" in name
    assert "\n    " in printed, "and what to do"


def closed_directory(path: Path) -> Path:
    """Two partitions, as a clean stop leaves them."""
    storage = Storage.open(Disk(), Clock(), [str(path)], node_id=0)
    for index in range(2):
        log = storage.get_or_create("t", index, bytes(range(16)), LogConfig())
        for value in (b"a", b"b", b"c"):
            log.append_bytes(some(value), 0)
    log.delete_before(1)
    storage.close()
    return path


def test_a_log_that_is_not_as_the_clean_stop_left_it_is_reported(
    tmp_path: Path, capsys: Capture
) -> None:
    data = closed_directory(tmp_path)
    status, printed = verified(capsys, data)
    assert status == 0 and "0 errors, 0 notes" in printed
    log = data / "t-1" / f"{FIRST}.log"
    whole = log.read_bytes()
    size = len(whole) // 3
    (data / "recovery-point-offset-checkpoint").rename(data / "points")
    log.write_bytes(whole[:-size])
    status, printed = verified(capsys, data)
    assert status == 0, "the next start would look for itself"
    (data / "points").rename(data / "recovery-point-offset-checkpoint")
    status, printed = verified(capsys, data)
    assert status == 1
    assert (
        f"{data}/.ottla-closed-logs: t-1 was closed with first offset 1, next offset 3, "
        f"{3 * size} bytes, but now has first offset 1, next offset 2, {2 * size} bytes"
    ) in printed
    log.unlink()
    log.parent.rename(tmp_path / "away")
    status, printed = verified(capsys, data)
    assert status == 1 and "t-1 was closed with 1 segment, but now has no directory" in printed
    assert verified(capsys, data, "--partition", "t-0")[0] == 0


def test_a_damaged_list_of_closed_logs_is_reported(tmp_path: Path, capsys: Capture) -> None:
    data = closed_directory(tmp_path)
    for text in (b"0\n", b"0\n3\n", b"\xff", b"0\n1\nt 0 - 1\n"):
        (data / ".ottla-closed-logs").write_bytes(text)
        status, printed = verified(capsys, data)
        assert status == 1 and ".ottla-closed-logs: it is damaged" in printed


def test_a_gap_is_damage_unless_the_log_was_compacted(data: Path, capsys: Capture) -> None:
    log = open_log(data, "u-0")
    for _ in range(3):
        log.append_bytes(some(b"x"), 0)
    log.close()
    path = data / "u-0" / f"{FIRST}.log"
    whole = path.read_bytes()
    size = len(whole) // 3
    path.write_bytes(whole[:size] + whole[2 * size :])
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).write_bytes(b"")
    status, printed = verified(capsys, "--partition", "u-0", data)
    assert status == 1 and "offsets 1 to 1 are missing" in printed
    (data / "cleaner-offset-checkpoint").write_text("0\n1\nu 0 3\n")
    status, printed = verified(capsys, "--partition", "u-0", data)
    assert status == 0, printed


def test_a_producer_that_skips_a_sequence_is_reported(tmp_path: Path, capsys: Capture) -> None:
    log = open_log(tmp_path)
    assert log.append_run_bytes(some(b"a", producer_id=4, epoch=0, sequence=0), 0)
    batch = some(b"b", producer_id=4, epoch=0, sequence=7, base_offset=1)
    assert log.append_run_bytes(batch, 0)
    log.close()
    status, printed = verified(capsys, tmp_path / "t-0")
    assert status == 1
    assert "producer 4 continues with epoch 0, sequence 7; expected epoch 0, sequence 1" in printed


def test_a_torn_end_above_the_recovery_point_is_only_a_note(data: Path, capsys: Capture) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    path = data / "t-0" / f"{SECOND}.log"
    path.write_bytes(path.read_bytes() + b"torn")
    status, printed = verified(capsys, data)
    assert status == 0 and "the next start cuts it" in printed


def test_records_that_cannot_be_unpacked_are_found_by_a_deep_look(
    tmp_path: Path, capsys: Capture
) -> None:
    log = open_log(tmp_path)
    log.append_bytes(some(b"x" * 100, codec=4), 0)
    log.close()
    path = tmp_path / "t-0" / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 0xFF
    data[17:21] = crc32c_of(bytes(data[21:])).to_bytes(4, "big")
    path.write_bytes(data)
    assert verified(capsys, tmp_path / "t-0")[0] == 0
    status, printed = verified(capsys, "--deep", tmp_path / "t-0")
    assert status == 1 and "its records cannot be read" in printed


def test_a_directory_that_a_broker_uses_is_left_alone(data: Path, capsys: Capture) -> None:
    storage = Storage.open(Disk(), Clock(), [str(data)])
    status, printed = verified(capsys, data)
    assert status == 2 and "--online" in printed
    assert f"in use by a broker (process {os.getpid()})" in printed
    path = data / "t-0" / f"{SECOND}.log"
    path.write_bytes(path.read_bytes()[:-3])
    status, printed = verified(capsys, "--online", data)
    assert status == 0, "the active segment is none of its business"
    flip(65)(data / "t-0" / f"{FIRST}.log")
    assert verified(capsys, "--online", data)[0] == 1
    storage.close()


def test_what_is_not_there_cannot_be_looked_at(data: Path, capsys: Capture) -> None:
    assert verified(capsys, data / "none")[0] == 2
    for name in ("t", "t0", "t-00"):
        status, printed = verified(capsys, data / name)
        assert status == 2 and printed == (
            f"ottla log verify: {data}/{name}: no such file or directory; similar: {data}/t-0\n")
    status, printed = verified(capsys, "--partition", "tt-0", "--partition", "t-0", data)
    assert status == 2 and printed.splitlines()[-1] == (
        f"ottla log verify: {data} has no partition tt-0; similar: t-0")
    shutil.rmtree(data / "t-0")
    status, printed = verified(capsys, data)
    assert status == 2 and printed == (
        f"ottla log verify: {data} has no partitions\n")
    (data / "meta.properties").unlink()
    status, printed = verified(capsys, data)
    assert status == 2 and printed == (
        f"ottla log verify: {data} has no partitions and no meta.properties: it is not a data "
        "directory\n")


def test_a_directory_of_data_directories_names_them(data: Path, capsys: Capture) -> None:
    """`ottla cluster start` makes such a directory; `broker-1` looks like a partition's name."""
    inside = [data / "all" / f"broker-{number}" for number in (1, 2)]
    for path in inside:
        path.mkdir(parents=True)
        shutil.copy(data / "meta.properties", path)
    (data / "all" / "broker-1.log").touch()
    status, printed = verified(capsys, data / "all")
    assert status == 2 and printed == (
        f"ottla log verify: {data}/all has no partitions; it holds data directories, so give"
        f" their paths instead: {inside[0]} {inside[1]}\n")
    (data / "all" / "orders-0").mkdir()
    status, printed = verified(capsys, data / "all")
    assert status == 2 and printed == (
        f"ottla log verify: {data}/all has no meta.properties; it holds data directories, so"
        f" give their paths instead: {inside[0]} {inside[1]}\n")
    inside[0].rename(data / "broker-1")
    status, printed = verified(capsys, data)
    assert status == 0 and "1 partition, " in printed, "t-0"


def test_a_copy_inside_a_copy_is_noted(data: Path, capsys: Capture) -> None:
    """The second `cp -a data backup` copies into the first backup."""
    (data / "data").mkdir()
    shutil.copy(data / "meta.properties", data / "data")
    status, printed = verified(capsys, data)
    assert status == 0 and "0 errors, 1 note" in printed
    assert f"{data}/data: it is a log directory inside the log directory {data}" in printed
    assert "if a second `cp` made it, it is the newer copy" in printed


def test_long_checks_say_how_far_they_are(capsys: Capture) -> None:
    times = iter([0.0, 1.0, 6.0, 6.0])
    report = Report(now=lambda: next(times), bytes_due=2_000_000_000)
    report.moved(500_000_000)
    assert capsys.readouterr().err == ""
    report.moved(500_000_000)
    assert capsys.readouterr().err == "… 50 % of 2.0 GB checked\n"
    assert [size_text(n) for n in (5, 1500, 2_000_000)] == ["5 B", "1.5 kB", "2.0 MB"]


def several_epochs(data: Path) -> Path:
    """Make a partition of 40 batches without indexes. Its epoch checkpoint lacks the epoch of the
    last 30 batches."""
    log = open_log(data, "e-0")
    for number in range(40):
        log.append_bytes(some(b"x" * 400), 0 if number < 10 else 1)
    log.close()
    (data / "e-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for suffix in (".index", ".timeindex"):
        (data / "e-0" / f"{FIRST}{suffix}").unlink()
    return data


def test_what_the_next_start_repairs_after_a_kill_is_one_note_and_no_error(
    data: Path, capsys: Capture
) -> None:
    several_epochs(data)
    (data / CLEAN_MARKER).unlink(missing_ok=True)
    status, printed = verified(capsys, data, "--partition", "e-0")
    assert status == 0 and "0 errors, 1 note" in printed, printed
    assert printed.splitlines()[:2] == [
        f"note: {data}/e-0/leader-epoch-checkpoint: it lacks leader epoch 1, which begins at"
        f" offset 10; other files are behind the log, too: {FIRST}.index, {FIRST}.timeindex",
        "    nothing to do: the last stop was not clean, and the next start rebuilds the files"]
    status, printed = verified(capsys, data, "--partition", "e-0", "--quiet")
    assert (status, printed) == (0, "")
    storage = Storage.open(Disk(), Clock(), [str(data)])
    storage.get_or_create("e", 0, bytes(range(16)), LogConfig())
    storage.close()
    status, printed = verified(capsys, data, "--partition", "e-0")
    assert status == 0 and "0 errors, 0 notes" in printed, printed


@pytest.mark.parametrize("clean", [False, True])
def test_indexes_that_a_killed_broker_had_not_written_are_no_error(
    data: Path, capsys: Capture, clean: bool
) -> None:
    """According to the recovery point, the segment was flushed to its end."""
    several_epochs(data)
    (data / "e-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 10\n")
    (data / "recovery-point-offset-checkpoint").write_text("0\n2\nt 0 6\ne 0 40\n")
    (data / CLEAN_MARKER).touch()
    if not clean:
        (data / CLEAN_MARKER).unlink()
    status, printed = verified(capsys, data)
    assert status == clean and ("2 errors, 0 notes" if clean else "0 errors, 1 note") in printed
    assert "delete the file" not in printed, "it is not there"
    assert ("rebuilds the file from" if clean else "rebuilds the files") in printed
    storage = Storage.open(Disk(), Clock(), [str(data)])
    storage.get_or_create("e", 0, bytes(range(16)), LogConfig())
    storage.close()
    assert "0 errors, 0 notes" in verified(capsys, data, "--partition", "e-0")[1]


def test_many_files_that_the_next_start_rebuilds_are_one_line(
    data: Path, capsys: Capture
) -> None:
    repeats, report = Repeats(), Report()
    for number in range(9):
        repeats.is_rebuilt(f"t-0/{number}.index", "it is missing")
        repeats.is_rebuilt(f"t-0/{number}.index", "its entry (1, 2) is after the end")
    repeats.tell(report)
    assert capsys.readouterr().out.splitlines()[0] == (
        "note: t-0/0.index: it is missing; other files are behind the log, too: 1.index,"
        " 2.index, 3.index, 5 other files")
    assert (report.errors, report.notes) == (0, 1)


def test_epochs_that_nothing_repairs_are_one_error_of_the_partition(
    data: Path, capsys: Capture
) -> None:
    several_epochs(data)
    (data / CLEAN_MARKER).touch()
    status, printed = verified(capsys, data, "--partition", "e-0")
    assert status == 1 and printed.count("its leader epoch is 1") == 1, printed
    assert "29 others like this up to offset 39" in printed


def test_a_checkpoint_that_kafka_has_just_created_is_empty(data: Path, capsys: Capture) -> None:
    (data / "cleaner-offset-checkpoint").touch()
    status, printed = verified(capsys, data)
    assert status == 0 and "0 errors, 0 notes" in printed
