"""A wrong index is rebuilt while the log is in use. Requests that wait for the rebuild get right
answers, whatever happens to the log meanwhile, and the rebuild leaves no files behind."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from ottla.log.compaction import choice, cleaner
from ottla.log.files.index_file import RebuildNeeded
from ottla.log.partition import derived_state
from ottla.log.partition.index_rebuilds import IndexRebuild
from ottla.log.partition.partition_log import PartitionLog
from ottla.log.partition.retention import remove_below_start
from ottla.wire.errors import CorruptMessage, StorageFailed
from tests.log.batches import NOW_MS, batch, split
from tests.log.faulty_disk import FaultyDisk
from tests.log.partition.foreign_files import (
    CONFIG,
    DATA,
    TOPIC_ID,
    change,
    everything,
    marker,
    open_storage,
    reopened,
    written,
)

COMPACTED = CONFIG._replace(cleanup_policy=frozenset({"compact"}))
INDEXES = (".index", ".timeindex", ".txnindex")
SPOILT: dict[str, Callable[[bytes], bytes | None]] = {
    "garbage": lambda data: random.Random(1).randbytes(len(data)),
    "zeroed": lambda data: bytes(len(data)),
    "torn": lambda data: data[: len(data) // 2 + 1],
    "removed": lambda data: None,
}


def drive(rebuild: IndexRebuild) -> None:
    while not rebuild.over:
        rebuild.run()
        rebuild.advance()


class Patient:
    """Calls the methods of a log with `patient=True`, and does the rebuilds that they need."""

    def __init__(self, log: PartitionLog) -> None:
        self.log, self.rebuilds = log, 0

    def __getattr__(self, name: str) -> Any:
        if name in ("log_start_offset", "log_end_offset"):
            return getattr(self.log, name)
        if name == "segments":
            self.ask(self.log.wake)
            return self.log.segments
        return lambda *arguments: self.ask(partial(getattr(self.log, name), *arguments))

    def ask(self, question: Callable[..., Any]) -> Any:
        """The answer of a method of the log, after the rebuilds that it needs."""
        before = None
        while True:
            try:
                return question(patient=True)
            except RebuildNeeded as needed:
                needed.rebuild.check_new(before)
                before = needed.rebuild
                self.rebuilds += 1
                drive(before)


def spoil(disk: FaultyDisk, suffixes: tuple[str, ...], how: str) -> None:
    for name in [each for each in disk.names if each.startswith(DATA) and each.endswith(suffixes)]:
        change(disk, name, SPOILT[how](disk.read_bytes(name)))


def left_over(disk: FaultyDisk) -> list[str]:
    return [name for name, inode in disk.names.items() if name.endswith(".tmp") and inode]


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("suffix", INDEXES)
def test_who_waits_for_a_rebuild_is_answered_as_if_nothing_had_happened(
    suffix: str, how: str, clean: bool
) -> None:
    rebuilds = 0
    for seed in range(4):
        expected = list(everything(reopened(written(seed, clean))))
        disk = written(seed, clean)
        spoil(disk, (suffix,), how)
        patient = Patient(reopened(disk))
        assert list(everything(patient)) == expected, f"seed {seed}"    # type: ignore[arg-type]
        assert left_over(disk) == []
        rebuilds += patient.rebuilds
    assert rebuilds or not clean        # after a kill, recovery has rebuilt them


class Scene:
    """A log in use, whose index files with these suffixes are all wrong."""

    def __init__(self, suffixes: tuple[str, ...] = INDEXES) -> None:
        self.disk = written(3, clean=True)
        self.storage = open_storage(self.disk)
        self.log = self.storage.get_or_create("events", 0, TOPIC_ID, CONFIG)
        assert self.log.segments
        for segment in self.log.segments:
            segment.close()
        spoil(self.disk, suffixes, "garbage")

    def wait_for(self, question: Callable[..., Any]) -> IndexRebuild:
        with pytest.raises(RebuildNeeded) as needed:
            question(patient=True)
        return needed.value.rebuild

    def begun(self) -> Iterator[IndexRebuild]:
        """Ask one question for each kind of index, and yield the rebuild that it needs."""
        yield self.wait_for(partial(self.log.slice, self.log.segments[1].base_offset + 5, 1))
        yield self.wait_for(partial(self.log.offset_of_max_timestamp, self.log.log_end_offset))
        yield self.wait_for(partial(self.log.aborted_transactions, 0, self.log.log_end_offset))


def appended(scene: Scene) -> None:
    for number in range(30):
        scene.log.append_bytes(batch(b"%d" % number * 10, timestamps=[NOW_MS + 200 + number]), 3)


def aborted(scene: Scene) -> None:
    for number in range(4):
        scene.log.append_bytes(batch(b"x", producer_id=9, epoch=0, sequence=number,
                                     timestamps=[NOW_MS + 300], transactional=True), 3)
        scene.log.append_bytes(marker(9, False), 3)


def rolled(scene: Scene) -> None:
    scene.log.roll()
    appended(scene)


def truncated(scene: Scene) -> None:
    scene.log.truncate_to(scene.log.segments[1].base_offset + 7)


def cut_and_refilled(scene: Scene) -> None:
    truncated(scene)
    appended(scene)


def restarted(scene: Scene) -> None:
    scene.log.truncate_fully_and_start_at(100)
    appended(scene)


def shortened(scene: Scene) -> None:
    first = scene.log.segments[0]
    scene.log.delete_before(first.end_offset)
    remove_below_start(scene.log)


def compacted(scene: Scene) -> None:
    scene.log.flush()
    scene.log.configure(COMPACTED)
    target = choice.cleanable(scene.log, scene.log.log_end_offset, NOW_MS + 10_000)
    assert target is not None
    cleaner.clean(target, 1 << 20, lambda paths: None)


def moved(scene: Scene) -> None:
    scene.log.flush()
    for segment in scene.log.segments:
        segment.close()
    scene.disk.makedirs("/data/copy")
    for name in [each for each in scene.disk.names if each.startswith(DATA)]:
        if not name.endswith(".tmp"):
            change(scene.disk, "/data/copy/" + name[len(DATA):], scene.disk.read_bytes(name))
    scene.log.continue_in("/data/copy", None)


def closed(scene: Scene) -> None:
    for segment in scene.log.segments:
        segment.close()


def flushed(scene: Scene) -> None:
    scene.log.roll()
    scene.log.flush()


def asked_by_who_cannot_wait(scene: Scene) -> None:
    list(everything(scene.log))


MEANWHILE = (
    appended, aborted, rolled, truncated, cut_and_refilled, restarted, shortened, compacted, moved,
    closed, flushed, asked_by_who_cannot_wait,
)


def answers(log: PartitionLog) -> list[object]:
    found = []
    for ask in (
        *(partial(log.read_bytes, at, 1) for at in range(log.log_start_offset, log.log_end_offset)),
        *(partial(log.offset_for_timestamp, NOW_MS + time) for time in range(-5, 400, 7)),
        partial(log.offset_of_max_timestamp),
        lambda patient: [each[:3] for each in log.aborted_transactions(
            log.log_start_offset, log.log_end_offset, patient)],
    ):
        found.append(Patient(log).ask(ask))
    return found


@pytest.mark.parametrize("when", ["before the thread", "after it", "while its name is synced"])
@pytest.mark.parametrize("meanwhile", MEANWHILE, ids=lambda change: change.__name__)
def test_what_happens_to_the_log_meanwhile_leaves_it_right(
    meanwhile: Callable[[Scene], None], when: str
) -> None:
    """The log is compared with one that went through the same, but whose indexes were right."""
    for kind in range(3):
        untouched, scene = Scene(()), Scene()
        meanwhile(untouched)
        for number, rebuild in enumerate(scene.begun()):
            if number < kind:
                drive(rebuild)
                continue
            if when != "before the thread":
                rebuild.run()
            if when == "while its name is synced":
                rebuild.advance()
            meanwhile(scene)
            drive(rebuild)
            assert rebuild.error is None
            break
        assert answers(scene.log) == answers(untouched.log)
        assert left_over(scene.disk) == []
        # The answers are also the same after a stop and a power cut.
        if meanwhile is not moved:
            scene.storage.close()
            scene.disk.cut_power()
            again = open_storage(scene.disk).get_or_create("events", 0, TOPIC_ID, CONFIG)
            assert answers(again) == answers(untouched.log)


def test_a_deleted_topic_that_was_made_again_keeps_its_own_indexes() -> None:
    scene = Scene()
    rebuild = scene.wait_for(partial(scene.log.slice, scene.log.segments[0].base_offset + 9, 1))
    scene.storage.delete("events", 0)
    new = scene.storage.get_or_create("events", 0, bytes(16), CONFIG)
    for number in range(40):
        new.append_bytes(batch(b"%d" % number * 20, timestamps=[NOW_MS + number]), 0)
    drive(rebuild)
    assert [int.from_bytes(split(new.read_bytes(at, 1))[0][:8], "big") for at in range(40)] == (
        list(range(40)))
    assert not [name for name in left_over(scene.disk) if name.startswith(DATA)]


@pytest.mark.parametrize("how", ["stopped", "killed", "without power"])
@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_broker_that_ends_during_a_rebuild_starts_again_with_right_answers(
    how: str, steps: int
) -> None:
    expected = list(everything(reopened(written(3, clean=True))))
    scene = Scene()
    rebuild = scene.wait_for(partial(scene.log.aborted_transactions, 0, scene.log.log_end_offset))
    for step in (rebuild.run, rebuild.advance)[:steps]:
        step()
    if how == "stopped":
        scene.storage.close()
        assert left_over(scene.disk) == []
    elif how == "killed":
        scene.disk.kill()
    else:
        scene.disk.cut_power()
    again = reopened(scene.disk)
    assert list(everything(Patient(again))) == expected     # type: ignore[arg-type]
    assert left_over(scene.disk) == []


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("operation", ["write", "sync", "name", "open", "read"])
def test_a_rebuild_that_fails_says_so_and_the_next_one_succeeds(
    operation: str, code: int
) -> None:
    if operation == "read" and code == errno.ENOSPC:
        return
    scene = Scene()
    base = scene.log.segments[1].base_offset
    rebuild = scene.wait_for(partial(scene.log.slice, base + 5, 1))
    if operation != "open":
        scene.disk.errors[operation] = code
        drive(rebuild)
        assert isinstance(rebuild.error, OSError) and rebuild.error.errno == code
    else:
        drive(rebuild)
        for segment in scene.log.segments:
            segment.close()
        spoil(scene.disk, INDEXES, "garbage")
        scene.disk.errors[operation] = code
        with pytest.raises(OSError):
            scene.log.slice(base + 5, 1, patient=True)
    scene.disk.errors.clear()
    assert scene.log.offline is None
    patient = Patient(scene.log)
    assert list(everything(patient)) == list(  # type: ignore[arg-type]
        everything(reopened(written(3, clean=True))))
    if operation != "name":             # the next start removes the files
        assert left_over(scene.disk) == []


def test_an_index_that_stays_wrong_is_an_error_and_no_endless_wait() -> None:
    """The segments have the batches of another partition, so even a rebuilt time index contradicts
    the segment's bounds."""
    for seed in range(8):
        disk, other = written(seed, clean=True), written(seed + 100, clean=True)
        for name in [each for each in disk.names if each.startswith(DATA)]:
            if name.endswith(".log") and name in other.names:
                change(disk, name, other.read_bytes(name))
        patient = Patient(reopened(disk))
        for time in range(-5, 140, 7):
            try:
                patient.offset_for_timestamp(NOW_MS + time)
            except CorruptMessage:
                pass
        assert patient.rebuilds < 200
        assert left_over(disk) == []


def test_compaction_has_a_thread_rebuild_what_it_needs() -> None:
    scene = Scene()
    scene.log.flush()
    scene.log.configure(COMPACTED)
    target = choice.cleanable(scene.log, scene.log.log_end_offset, NOW_MS + 10_000)
    assert target is not None
    passing = cleaner.Cleaner(target, 1 << 20, 1.0, lambda paths: None)
    tasks = []
    for task in passing.steps():
        if task is not None:
            tasks.append(type(task))
            task.run()
    assert IndexRebuild in tasks
    assert scene.log.first_dirty_offset == target.end_offset


KNOWN_OTHERWISE = (".snapshot", "leader-epoch-checkpoint")
"""Files whose contents can also be read from the batches."""


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let logs be read again in a thread, although these logs are small enough to be read on the
    loop."""
    monkeypatch.setattr(derived_state, "REREAD_MAX", 0)


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("suffix", KNOWN_OTHERWISE)
def test_who_waits_until_a_log_is_read_again_is_answered_as_if_nothing_had_happened(
    suffix: str, how: str
) -> None:
    waited = 0
    for seed in range(4):
        expected = list(everything(reopened(written(seed, clean=True))))
        disk = written(seed, clean=True)
        spoil(disk, (suffix,), how)
        patient = Patient(reopened(disk))
        assert list(everything(patient)) == expected, f"seed {seed}"    # type: ignore[arg-type]
        waited += patient.rebuilds
    assert waited


class AtRest:
    """A log after a clean stop that lost its snapshots and leader epochs, and has to be read again
    for them."""

    def __init__(self) -> None:
        self.expected = reopened(written(3, clean=True))
        self.disk = written(3, clean=True)
        spoil(self.disk, KNOWN_OTHERWISE, "removed")
        self.log = reopened(self.disk)
        self.reread = self.wait()

    def wait(self) -> Any:
        with pytest.raises(RebuildNeeded) as needed:
            self.log.prepare_append(patient=True)
        return needed.value.rebuild

    def check(self) -> None:
        assert self.log.epochs.entries == self.expected.epochs.entries
        known, expected = (
            {(each.producer_id, each.epoch, each.last_sequence, each.transaction_start)
             for each in log.producers.values()} for log in (self.log, self.expected))
        assert known == expected


@pytest.mark.usefixtures("nothing_is_small")
def test_who_cannot_wait_reads_a_log_again_where_it_is() -> None:
    at_rest = AtRest()
    at_rest.log.append_bytes(batch(b"now"), 2)
    at_rest.expected.append_bytes(batch(b"now"), 2)
    at_rest.check()
    drive(at_rest.reread)               # the thread comes too late and changes nothing
    at_rest.check()


@pytest.mark.usefixtures("nothing_is_small")
def test_two_who_wait_share_the_reading() -> None:
    at_rest = AtRest()
    assert at_rest.wait() is at_rest.reread
    drive(at_rest.reread)
    at_rest.log.prepare_append(patient=True)
    at_rest.check()


@pytest.mark.usefixtures("nothing_is_small")
def test_a_log_that_cannot_be_read_again_says_so_and_is_read_later() -> None:
    at_rest = AtRest()
    at_rest.disk.errors = {"read": errno.EIO}
    drive(at_rest.reread)
    at_rest.disk.errors = {}
    again = at_rest.wait()
    with pytest.raises(StorageFailed, match="could not be opened"):
        again.check_new(at_rest.reread)
    drive(again)
    at_rest.log.prepare_append(patient=True)
    at_rest.check()


@pytest.mark.usefixtures("nothing_is_small")
def test_a_log_that_is_cut_while_it_is_read_again_is_damaged() -> None:
    """The caller that waits for this read, such as a coordinator that loads the log, gets the error
    of a damaged log, and tries again."""
    at_rest = AtRest()
    for path, _ in at_rest.reread.files:
        at_rest.disk.open(path).truncate(0)
    drive(at_rest.reread)
    with pytest.raises(CorruptMessage, match="was truncated"):
        at_rest.reread.finish()


LARGE = 300 << 10
"""More bytes than a rebuild indexes in one step on the loop."""


@pytest.mark.parametrize("grows", [False, True])
def test_a_large_segment_is_read_once_more_only_if_as_much_was_appended_meanwhile(
    grows: bool
) -> None:
    disk = FaultyDisk()
    log = open_storage(disk).get_or_create("events", 0, TOPIC_ID, CONFIG)

    def append() -> None:
        for number in range(LARGE >> 15):
            log.append_bytes(batch(bytes(1 << 15), timestamps=[NOW_MS + number]), 0)

    append()
    log.segments[0].close()
    spoil(disk, (".index",), "garbage")
    with pytest.raises(RebuildNeeded) as needed:
        log.slice(3, 1, patient=True)
    rebuild = needed.value.rebuild
    rebuild.run()
    if grows:
        append()
    rebuild.advance()
    assert rebuild.over is not grows
    drive(rebuild)
    assert rebuild.error is None
    assert int.from_bytes(log.read_bytes(log.log_end_offset - 1, 1)[:8], "big") == (
        log.log_end_offset - 1)
