"""The background scrub reads at its rate, finds damage that nobody has read yet, and keeps its
position over restarts."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.log.files.checkpoints import Partition
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.damage import Damage
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.retention import remove_below_start
from ottla.log.scrub.round import PLACE, Read, Save, Scrub
from ottla.log.scrub.segment_check import SegmentScrub
from ottla.log.storage.storage import Storage
from ottla.wire.errors import StorageFailed
from tests.fakes import FakeClock
from tests.log.batches import batch, split, values_of
from tests.log.faulty_disk import FaultyDisk

CONFIG = LogConfig(index_interval_bytes=100)
RATE = 1000
DAY_MS = 86_400_000
SLICE = 300


class Machine:
    """Storage in a directory, its scrub, and a clock that advances while the scrub waits."""

    def __init__(self, *paths: Path, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.storage = Storage.open(Disk(), self.clock, [str(path) for path in paths])
        self.storage.started = True
        self.found: list[tuple[Partition, Damage]] = []
        self.scrub = Scrub(
            self.storage, self.clock, RATE, DAY_MS, lambda *found: self.found.append(found), SLICE
        )
        self.steps = self.scrub.steps()

    def log(self, name: str = "t", batches: int = 0) -> PartitionLog:
        """A flushed log with three batches in each segment."""
        log = self.storage.get_or_create(name, 0, None, CONFIG)
        for at in range(batches):
            if at and at % 3 == 0:
                log.roll()
            log.append_bytes(batch(b"%d" % at * 50, producer_id=1, epoch=0, sequence=at), 0)
        if batches:
            log.flush()
        return log

    def round(self) -> list[str]:
        """Run to the pause after a round; returns the files that were read, in order."""
        read: list[str] = []
        for step in self.steps:
            if isinstance(step, Read):
                step.run()
                if step.scrub.file.path not in read[-1:]:
                    read.append(step.scrub.file.path)
            elif isinstance(step, Save):
                step.run()
            elif step > DAY_MS / 2000:
                return [path.rpartition("/")[2] for path in read]
            else:
                self.clock.advance(round(step * 1000))
        raise AssertionError("a scrub does not end")


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def names(*bases: int) -> list[str]:
    return [f"{base:020d}.log" for base in bases]


def test_every_sealed_segment_is_read_at_the_rate_and_the_active_one_is_not(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.log("a", 7)
    machine.log("b", 4)
    start_ms = machine.clock.now_ms()
    assert machine.round() == names(0, 3, 0)
    assert machine.found == []
    passed_ms = machine.clock.now_ms() - start_ms
    expected_ms = machine.scrub.bytes_read * 1000 / RATE
    assert machine.scrub.bytes_read == 9 * (machine.log("a").size_bytes // 7)
    assert expected_ms * 0.95 < passed_ms < expected_ms * 1.05


def test_what_is_not_on_the_medium_yet_waits_for_the_next_round(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    log = machine.log("a", 4)
    for at in range(4, 9):
        if at == 6:
            log.roll()
        log.append_bytes(batch(b"%d" % at * 50), 0)
    assert machine.round() == names(0)
    log.flush()
    machine.clock.advance(DAY_MS)
    assert machine.round() == names(0, 3)


def test_the_first_log_directory_may_have_failed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory can be below this")
    machine = Machine(tmp_path / "file" / "a", tmp_path / "b")
    assert [each.offline is None for each in machine.storage.directories] == [False, True]
    machine.log("t", 7)
    assert machine.round() == names(0, 3)
    again = Scrub(machine.storage, machine.clock, RATE, DAY_MS, lambda *_: None)
    assert again.places == {("t", 0): 6}, "the progress is in the directory that works"


@pytest.mark.parametrize("batch_number", [0, 1, 2])
def test_no_flipped_bit_of_a_sealed_segment_stays_unseen(
    tmp_path: Path, batch_number: int
) -> None:
    Machine(tmp_path).log("t", 4)
    whole = (tmp_path / "t-0" / names(0)[0]).read_bytes()
    stored = split(whole)
    start = sum(map(len, stored[:batch_number]))
    size = len(stored[batch_number]) if batch_number == 1 else 61
    disk = FaultyDisk()
    disk.makedirs("/t-0")
    file = disk.open("/t-0/0.log", create=True)
    for bit in range(size * 8):
        if batch_number == 2 and bit // 8 in range(12, 16) and bit != 12 * 8 + 7:
            continue        # a higher leader epoch: nothing follows in the segment to contradict it
        data = bytearray(whole)
        data[start + bit // 8] ^= 1 << bit % 8
        file.pwrite(data, 0)
        scrub = SegmentScrub(file, len(whole), 0, 3, 100)
        while not scrub.done:
            scrub.read()
            scrub.check()
        assert scrub.problem is not None, f"bit {bit}"
        assert (scrub.fault_position, scrub.fault_offset) == (start, batch_number), f"bit {bit}"


def test_a_damaged_log_is_read_up_to_the_fault_and_takes_no_writes(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    log = machine.log("t", 7)
    stored = split((tmp_path / "t-0" / names(3)[0]).read_bytes())
    flip(tmp_path / "t-0" / names(3)[0], len(stored[0]) + 70)
    machine.log("u", 4)
    assert machine.round() == names(0, 3, 0), "the rest of a damaged log is left alone"
    ((key, damage),) = machine.found
    assert key == ("t", 0)
    assert (damage.position, damage.end_offset) == (len(stored[0]), 4)
    assert damage.permanent and "checksum" in str(damage)
    assert (tmp_path / "t-0" / f"{3:020d}.damaged").read_text().startswith(str(len(stored[0])))
    with pytest.raises(StorageFailed, match="is damaged at byte"):
        log.append_bytes(batch(b"x"), 0)
    assert split(log.read_bytes(3, 10_000)) == stored[:1]
    for offset in (4, 6, 7):
        with pytest.raises(StorageFailed, match="is damaged at byte"):
            log.read_bytes(offset, 100)
    machine.storage.close()
    again = Machine(tmp_path, clock=machine.clock)
    log = again.log("t")
    assert log.damage is not None and log.log_end_offset == 4
    assert values_of(log) == [b"%d" % at * 50 for at in range(4)]


def test_damage_is_found_after_a_start_that_has_cut_off_a_hole(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.log("t", 3)
    machine.storage.close()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    last = tmp_path / "t-0" / names(0)[0]
    stored = split(last.read_bytes())
    last.write_bytes(stored[0] + bytes(len(stored[1])) + stored[2])     # as after a power cut
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    machine = Machine(tmp_path, clock=machine.clock)
    log = machine.log("t")
    assert log.put_aside is not None and (log.damage, log.log_end_offset) == (None, 1)
    log.append_bytes(batch(b"next"), 0)
    log.roll()
    log.flush()
    flip(last, len(stored[0]) + 70)
    machine.round()
    assert [key for key, _ in machine.found] == [("t", 0)]
    assert log.damage is not None and log.offline is not None


def test_a_fault_that_is_not_there_the_second_time_is_forgotten(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.log("t", 4)
    path = tmp_path / "t-0" / names(0)[0]
    flip(path, 70)
    flipped, reads = True, 0
    for step in machine.steps:
        if isinstance(step, Read):
            step.run()
            reads += 1
            if flipped:
                flip(path, 70)
                flipped = False
        elif not isinstance(step, Save) and step > 1000:
            break
    assert machine.found == [] and reads > 1


@pytest.mark.parametrize("replaceable", [True, False])
@pytest.mark.parametrize("times", [1, 2])
def test_what_the_disk_refuses_to_read_twice_is_damage_if_another_replica_has_it(
    tmp_path: Path, times: int, replaceable: bool
) -> None:
    machine = Machine(tmp_path)
    log = machine.log("t", 7)
    log.health.replaceable = replaceable
    stored = len(split((tmp_path / "t-0" / names(3)[0]).read_bytes())[0])
    refused, step = 0, next(machine.steps)
    while not isinstance(step, float) or step < DAY_MS / 2000:
        failure = None
        if isinstance(step, Read) and names(3)[0] in step.scrub.file.path and step.scrub.position:
            refused += 1
            if refused <= times:
                failure = OSError(errno.EIO, "bad sector", step.scrub.file.path)
        if failure is None and not isinstance(step, float):
            step.run()
        step = machine.steps.throw(failure) if failure else next(machine.steps)
    if times == 1 or not replaceable:
        assert machine.found == [] and log.offline is None
        return
    ((key, damage),) = machine.found
    whole = SLICE // stored
    assert (key, damage.end_offset, damage.position) == (("t", 0), 3 + whole, whole * stored)
    assert "cannot be read: [Errno 5] bad sector" in damage.reason
    assert log.offline is not None and log.read_bytes(3, 1 << 20)


def test_a_segment_that_is_deleted_meanwhile_is_not_damaged(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    log = machine.log("t", 7)
    step = next(machine.steps)
    assert isinstance(step, Read)
    step.run()
    log.delete_before(3)
    for path in remove_below_start(log):
        Path(path).unlink()
    assert machine.round() in (names(0, 3), names(3))
    assert machine.found == []


def test_a_restart_goes_on_where_the_scrub_was(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.log("a", 7)
    machine.log("b", 4)
    for step in machine.steps:
        if isinstance(step, Read):
            step.run()
        elif isinstance(step, Save):
            step.run()
            break
        else:
            machine.clock.advance(30_000)       # so slow that the position is saved in between
    assert (tmp_path / PLACE).read_text().split("\n")[0] == "0"
    machine.storage.close()
    again = Machine(tmp_path, clock=machine.clock)
    again.log("a")
    again.log("b")
    assert again.round() == names(3, 0)
    (tmp_path / PLACE).write_text("nonsense")
    again.storage.close()
    third = Machine(tmp_path, clock=machine.clock)
    third.log("a")
    third.log("b")
    assert third.round() == names(0, 3, 0)
    third.storage.close()


def test_a_wall_clock_that_is_set_back_does_not_put_the_next_round_off(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.clock.set_wall_clock(-30 * DAY_MS)
    pause = next(step for step in machine.steps if isinstance(step, float) and step)
    assert pause == DAY_MS / 1000


def test_a_file_that_became_shorter_is_damaged(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.log("t", 4)
    path = tmp_path / "t-0" / names(0)[0]
    path.write_bytes(path.read_bytes()[:-5])
    machine.round()
    ((_, damage),) = machine.found
    assert "the file ends at" in damage.reason and damage.end_offset == 2


def test_a_segment_that_ends_before_the_next_one_begins_is_damaged(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.log("t", 7)
    machine.storage.close()
    second = tmp_path / "t-0" / names(3)[0]
    second.write_bytes(b"".join(split(second.read_bytes())[:-1]))   # the broker is down
    machine = Machine(tmp_path, clock=machine.clock)
    log = machine.log("t")
    machine.round()
    ((key, damage),) = machine.found
    assert key == ("t", 0)
    assert "it ends at offset 5, but the next segment begins at 6" in damage.reason
    assert log.damage is not None and damage.end_offset == 5


def test_a_disk_that_does_not_give_a_segment_back_is_passed_over(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.log("a", 4)
    machine.log("b", 4)
    step = next(machine.steps)
    assert isinstance(step, Read)
    assert isinstance(machine.steps.throw(OSError(5, "injected")), Read)
    assert machine.scrub.places == {("a", 0): 3}


def test_logs_at_rest_without_sealed_segments_are_not_woken_up(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.log("small", 2)
    machine.log("large", 4)
    machine.storage.close()
    again = Machine(tmp_path, clock=machine.clock)
    read: list[str] = []

    class Watched(Disk):
        def listdir(self, path: str) -> list[str]:
            read.append(path)
            return super().listdir(path)

    again.storage.disk = Watched()
    again.log("small")
    again.log("large")
    assert read == []
    assert again.round() == names(0)
    assert read == [f"{tmp_path}/large-0"]
    again.storage.close()


def test_thousands_of_logs_are_passed_in_slices(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for number in range(450):
        machine.log(f"t{number}")
    pauses = 0
    for step in machine.steps:
        if not isinstance(step, Read | Save):
            if step > 1:
                break
            pauses += 1
    assert pauses == 2


@pytest.mark.parametrize(("text", "began_ms", "places"), [
    (b"0\n17\n0\n1\nt 0 5\n", 17, {("t", 0): 5}), (b"0\n17\n0\n0\n", 17, {}),
    (b"1\n17\n0\n0\n", None, {}), (b"0\nx\n0\n0\n", None, {}),
    (b"0\n17\n0\n2\nt 0 5\n", None, {}),
    (b"0\n17", None, {}), (b"", None, {}), (None, None, {}),
])
def test_a_place_that_is_not_known_begins_a_round(
    tmp_path: Path, text: bytes | None, began_ms: int | None, places: dict[Partition, int]
) -> None:
    if text is not None:
        (tmp_path / PLACE).write_bytes(text)
    machine = Machine(tmp_path)
    now_ms = machine.clock.now_ms()
    assert machine.scrub.began_ms == (now_ms if began_ms is None else began_ms)
    assert machine.scrub.places == places and machine.scrub.saved_ms == now_ms


@pytest.mark.parametrize(("began_ago_ms", "pause"), [
    (0, 86_400.0), (DAY_MS - 5000, 5.0), (DAY_MS - 1001, 1.001), (DAY_MS - 999, 1.0), (DAY_MS, 1.0),
    (3 * DAY_MS, 1.0), (-DAY_MS, 86_400.0),
])
def test_a_round_begins_an_interval_after_the_one_before_it(
    tmp_path: Path, began_ago_ms: int, pause: float
) -> None:
    machine = Machine(tmp_path)
    machine.scrub.began_ms -= began_ago_ms
    saved = next(machine.steps)
    assert isinstance(saved, Save) and saved.began_ms == machine.scrub.began_ms
    assert next(machine.steps) == pause
    machine.scrub.places["t", 0] = 5
    machine.clock.advance(1000)
    next(machine.steps)
    assert machine.scrub.began_ms == machine.clock.now_ms() and machine.scrub.places == {}


def test_a_place_that_cannot_be_saved_only_repeats_work(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert isinstance(next(machine.steps), Save)
    assert machine.steps.throw(OSError(errno.ENOSPC, "no room")) == 86_400.0


@pytest.mark.parametrize(("elapsed_ms", "saves"), [(59_999, 0), (60_000, 1)])
def test_the_place_is_saved_once_a_minute(tmp_path: Path, elapsed_ms: int, saves: int) -> None:
    machine = Machine(tmp_path)
    machine.log(batches=7)
    machine.clock.advance(elapsed_ms)
    found: list[Save] = []
    for step in machine.scrub.check_log(("t", 0)):
        if isinstance(step, Read):
            step.run()
        elif isinstance(step, Save):
            found.append(step)
    assert [each.places for each in found] == [{("t", 0): 3}] * saves
    assert machine.scrub.places == {("t", 0): 6}
