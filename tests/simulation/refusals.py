"""A disk that refuses one call, or a few calls in a row: where a segment begins, while a broker
starts, or while it stops.

Then the broker goes on, and is stopped cleanly, killed, or loses its power. After the next start,
everything that clients were promised must be there. `Stopped` checks what a clean stop leaves: a
log directory may be marked as clean only if its logs need no recovery, and the checkpoint of the
high watermarks keeps the entries of logs that could not be opened.
"""

from __future__ import annotations

import asyncio
import errno
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ottla.log.files.checkpoints import HIGH_WATERMARKS, decode_offsets, partition_of
from ottla.log.storage.log_directory import CLEAN_MARKER
from ottla.wire.batch import batches
from ottla.wire.errors import CorruptMessage
from ottla.wire.marks import reached
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.disk import SimDisk
    from tests.simulation.faults import Tasks
    from tests.simulation.machine import Machine
    from tests.simulation.story import Story

KINDS = {
    errno.ENOSPC: ("write", "make", "reserve"),
    errno.EMFILE: ("open", "list"),
    errno.EIO: ("open", "list", "read", "write", "sync", "truncate", "name", "make", "reserve"),
}
"""The calls that may fail with an error. `make` gives a file or a directory its first name; `list`
reads a directory. A sync of a directory needs a descriptor, too, but is not refused for lack of
one: this takes the log directory offline, as every failed sync does."""
CODES = (errno.ENOSPC, errno.EMFILE, errno.EMFILE, errno.EIO)
AT_A_SEGMENT, AT_A_START, AT_A_STOP = "at a segment", "at a start", "at a stop"
PLACES = (AT_A_SEGMENT, AT_A_SEGMENT, AT_A_START, AT_A_START, AT_A_STOP)
REPEATED = (1, 2, 4)
"""How often calls are refused where segments begin, before the broker is stopped."""
IN_LOGS_SHARE = 0.6
"""The share of the refusals that concern only the logs of partitions."""
IN_LOG = re.compile(r"/(?!__ottla)[^/]+-\d+/[^/]+$")
"""Matches the paths of a log's files."""
LATER_SEGMENT = re.compile(r"/(?!0+\.)\d+\.log$")
"""Matches the path of a segment that is not a new log's first one."""
SEGMENT_SECONDS = 2.0
"""How long a refusal waits for a segment that begins."""


@dataclass
class Refusal:
    """The calls that a disk refuses: `count` calls in a row, after `skip` calls of the same
    kinds. If `waits`, all this begins when a log makes the file of its second or a later segment,
    and only calls in this log's directory count. If `in_logs`, only calls in the directories of
    partitions count, except for those of the metadata log."""

    code: int
    skip: int
    count: int
    waits: bool = False
    in_logs: bool = False
    under: str = ""
    made: int = 0

    @classmethod
    def draw(cls, chance: random.Random, place: str) -> Refusal:
        """Draw the error and the calls."""
        code = chance.choice(CODES)
        in_logs = chance.random() < IN_LOGS_SHARE
        if place == AT_A_SEGMENT:
            skip, count = chance.choice((0, 0, 1, 2, 3)), chance.choice((1, 2, 5, 20))
        else:
            skip = int(2 ** chance.uniform(0.0, 5.0 if in_logs else 7.0)) - 1
            count = chance.choice((1, 1, 2, 5))
        return cls(code, skip, count, place == AT_A_SEGMENT, in_logs)

    @property
    def passes(self) -> bool:
        """Whether the broker must go on. After several calls without a descriptor it may end: a
        record of the metadata that can neither be flushed nor cut off fails their log."""
        if self.code == errno.EMFILE:
            return self.count == 1 or self.in_logs
        return self.code == errno.ENOSPC

    def repeated(self, chance: random.Random) -> list[Refusal]:
        """The same refusal once or several times: at one segment after another. If the broker may
        end, only once."""
        return [replace(self) for _ in range(chance.choice(REPEATED) if self.passes else 1)]

    @property
    def began(self) -> bool:
        """Whether a call was refused."""
        return self.made > self.skip

    def hits(self, kind: str, path: str) -> bool:
        """Whether this call is refused; counts it."""
        if not path.startswith(self.under) or (self.in_logs and not IN_LOG.search(path)):
            return False
        if self.waits:
            if kind != "make" or not LATER_SEGMENT.search(path):
                return False
            self.waits, self.under = False, path.rpartition("/")[0]
        if kind not in KINDS[self.code] or self.made >= self.skip + self.count:
            return False
        self.made += 1
        return self.began


async def call_refused(story: Story, tasks: Tasks) -> None:
    """The fault of a run with one broker."""
    world, chance = story.world, story.refusing
    place = chance.choice(PLACES)
    refusal = Refusal.draw(chance, place)
    world.note(f"{refusal} {place}")
    if place == AT_A_SEGMENT:
        world.excused_end = None if refusal.passes else "a call has failed"
        for each in refusal.repeated(chance):
            world.disk.refusal = each
            end = world.now + SEGMENT_SECONDS
            while not each.began and world.now < end:
                await story.pass_time(0.02, tasks)
            note_where(each, place)
            await story.pass_time(chance.choice((0.0, 0.02, 0.1, 0.3)), tasks)
    elif place == AT_A_START:
        await _end(story, chance.choice(("kill", "kill in a call", "power cut", "clean stop")))
        world.excused_end = "a call of the start has failed"
        world.disk.refusal = refusal
        await story.start()
        await story.pass_time(chance.choice((0.0, 0.05, 0.3, 3.0)), tasks)
    else:
        world.excused_end = "a call of the stop has failed"
        stopped = Stopped(world.machine)
        world.disk.refusal = refusal
        if world.up:
            await world.stop_cleanly()
        world.kill()
        stopped.check(world.machine)
    if place != AT_A_SEGMENT:
        note_where(refusal, place)
    world.disk.refusal = None
    if world.up and place == AT_A_SEGMENT and refusal.passes and chance.random() < 0.2:
        return
    await _end(story, chance.choice(("kill", "power cut", "clean stop", "clean stop")))
    world.excused_end = None
    await story.start()


def note_where(refusal: Refusal, place: str) -> None:
    """Reach the mark of the place at which a call was refused."""
    if refusal.began:
        if place == AT_A_SEGMENT:
            reached("a call was refused where a segment begins")
        elif place == AT_A_START:
            reached("a call was refused while a broker starts")
        else:
            reached("a call was refused while a broker stops")


async def _end(story: Story, how: str) -> None:
    """End the process, if there is one."""
    world, chance = story.world, story.refusing
    if how == "clean stop" and world.up:
        stopped = Stopped(world.machine)
        await story.stop()
        stopped.check(world.machine)
    if how == "kill in a call" and world.loop is not None:
        world.disk.stop_at = world.disk.operations + chance.randrange(1, 40)
        end = world.now + 2.0
        while world.loop is not None and world.now < end:
            await asyncio.sleep(0.01)
        world.disk.stop_at = None
    world.kill()
    if how == "power cut":
        story.cut_power()


class Stopped:
    """What a machine has before a clean stop, to compare with what the stop leaves."""

    def __init__(self, machine: Machine) -> None:
        server = machine.server
        self.unopened = {
            (each.topic, each.index) for each in (server.replicas if server is not None else ())
            if each.log.offline is not None and each.log.damage is None
        }
        """The partitions whose logs could not be opened, or have failed."""
        self.high_watermarks = {
            directory: high_watermarks(machine.disk, directory)
            for directory in machine.world.options.directories
        }

    def check(self, machine: Machine) -> None:
        """Check each log directory after the stop."""
        for directory, before in self.high_watermarks.items():
            if f"{directory}/{CLEAN_MARKER}" in machine.disk.names:
                check_clean(machine, directory)
            known = {key: offset for key, offset in before.items() if key in self.unopened}
            check_high_watermarks(machine, directory, known)


def high_watermarks(disk: SimDisk, directory: str) -> dict[tuple[str, int], int]:
    """The checkpoint of the high watermarks in a log directory; empty if it cannot be read."""
    inode = disk.names.get(f"{directory}/{HIGH_WATERMARKS}")
    try:
        return {} if inode is None else dict(decode_offsets(bytes(inode.content)))
    except ValueError:
        return {}


def logs_in(disk: SimDisk, directory: str) -> Iterator[tuple[tuple[str, int], list[str]]]:
    """For each partition with files in a log directory, the paths of its segments, in order."""
    found: dict[tuple[str, int], list[str]] = {}
    for path in sorted(disk.names):
        place, _, name = path.rpartition("/")
        above, _, partition = place.rpartition("/")
        if above == directory and name.endswith(".log"):
            key = partition_of(partition)
            if key is not None:
                found.setdefault(key, []).append(path)
    yield from found.items()


def sound_end(disk: SimDisk, path: str) -> tuple[int, int]:
    """The offset after the last sound batch of a segment, and how many bytes follow this batch."""
    data, size = bytes(disk.inode(path).content), 0
    end = int(path.rpartition("/")[2].partition(".")[0])
    try:
        for view in batches(data):
            if not view.crc_holds():
                break
            end, size = view.last_offset + 1, size + len(view.data)
    except CorruptMessage:
        pass
    return end, len(data) - size


def check_clean(machine: Machine, directory: str) -> None:
    """Check that a recovery would remove no bytes from the logs of a directory that is marked as
    clean."""
    for key, paths in logs_in(machine.disk, directory):
        for path in paths:
            end, rest = sound_end(machine.disk, path)
            if rest:
                raise Violation(
                    f"{machine.name} marked {directory} as clean, but the log of"
                    f" {key[0]}-{key[1]} needs a recovery: in {path} the last {rest} bytes, from"
                    f" offset {end} on, are no batches"
                )


def check_high_watermarks(
    machine: Machine, directory: str, before: dict[tuple[str, int], int]
) -> None:
    """Check that the checkpoint of a clean stop has the high watermarks of `before`, or later ones,
    or the logs' ends."""
    now = high_watermarks(machine.disk, directory)
    for key, paths in logs_in(machine.disk, directory):
        end, _ = sound_end(machine.disk, paths[-1])
        known = min(before.get(key, 0), end)
        if known:
            reached("a stop kept the high watermark of a log that was not open")
        if now.get(key, 0) < known:
            raise Violation(
                f"{machine.name}: a clean stop left the high watermark {now.get(key, 0)} of"
                f" {key[0]}-{key[1]} in {directory}; before, the checkpoint had {before[key]}, and"
                f" the log ends at {end}"
            )
