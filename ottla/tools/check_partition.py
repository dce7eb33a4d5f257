"""Checks one partition's directory: its segments in order, and the small files beside them."""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64decode
from dataclasses import dataclass, field, replace

from ottla.log.files.epochs import LeaderEpochs
from ottla.log.files.names import COPIED_GAPS
from ottla.log.files.producers import Producers
from ottla.log.files.snapshots import decode
from ottla.log.partition.derived_state import REREAD_MAX
from ottla.tools.check_segment import SegmentCheck
from ottla.tools.dump_small import read_small
from ottla.tools.findings import (
    CREATED_AGAIN,
    REBUILD,
    RESTORE,
    Finding,
    Repeats,
    Report,
    offsets_text,
    size_text,
)
from ottla.wire.wording import counted

SEGMENT = re.compile(r"(\d{20})\.log")
SNAPSHOT = re.compile(r"(\d{20})\.snapshot")
CHANGES = (".cleaned", ".swap", ".tmp")


@dataclass(frozen=True, slots=True)
class RememberedPartition:
    """The entries about a partition in its log directory's files; None for missing entries."""

    recovery_point: int | None = None
    log_start: int | None = None
    cleaned: bool = False
    online: bool = False
    """Whether a broker may have the log open. If so, only closed, durable segments are checked."""
    clean: bool = True
    """Whether the last stop was clean. If so, the next start does not read the log again."""

    @property
    def reread_from(self) -> int | None:
        """The offset from which the next start reads the log again; None if it reads nothing again,
        or if a broker may have the log open."""
        return None if self.clean or self.online else self.recovery_point or 0


@dataclass(slots=True)
class Checked:
    """The contents found in a partition."""

    start_offset: int
    end_offset: int
    size: int
    topic_id: bytes | None
    sound: bool
    gaps_below: int = 0
    """All gaps between segments are below this offset; 0 if there are none. Apache Kafka's
    compaction leaves such gaps: they are no damage."""
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    """The leader epochs of `leader-epoch-checkpoint` and of the batches."""
    producer_id_max: int = -1
    """The highest producer id in the batches and snapshots, -1 without any."""


def check_partition(path: str, known: RememberedPartition, deep: bool, report: Report) -> Checked:
    """Check everything in a partition's directory. Raises OSError."""
    errors = report.errors
    names = sorted(os.listdir(path))
    bases = [int(found[1]) for name in names if (found := SEGMENT.fullmatch(name))]
    check = PartitionCheck(path, names, bases, known, deep, report)
    check.look_at_names()
    topic_id = check.read_topic_id()
    check.read_epochs()
    opened = check.segments()
    check.repeats.tell(report)
    checked = Checked(
        max(bases[0] if bases else 0, known.log_start or 0),
        check.end_offset, check.size, topic_id, report.errors == errors, check.gaps_below,
        check.all_epochs(), check.producer_id_max,
    )  # fmt: skip
    if checked.sound and not bases:     # compare_checkpoints reports lost segments
        report.say(f"{path}: no segments")
    elif checked.sound and opened < len(bases):
        unread = counted(len(bases) - opened, "segment")
        report.say(
            f"{path}: {counted(opened, 'closed segment')}, "
            f"{counted(check.batches, 'batch', 'batches')}, {size_text(check.size)}: sound; "
            f"not checked: {unread} that a broker may be writing"
            if opened else
            f"{path}: not checked: a broker may be writing its {unread}"
        )
    elif checked.sound:
        report.say(
            f"{path}: {counted(len(bases), 'segment')}, "
            f"{counted(check.batches, 'batch', 'batches')}, "
            f"{offsets_text(checked.start_offset, checked.end_offset)}, "
            f"{size_text(check.size)}: sound"
        )
    return checked


class PartitionCheck:
    """The check of one partition."""

    def __init__(
        self,
        path: str,
        names: list[str],
        bases: list[int],
        known: RememberedPartition,
        deep: bool,
        report: Report,
    ) -> None:
        if COPIED_GAPS in names:
            known = replace(known, cleaned=True)
        self.path, self.names, self.bases, self.known = path, names, bases, known
        self.deep, self.report = deep, report
        self.epochs: LeaderEpochs | None = None
        self.repeats = Repeats()
        self.end_offset = known.log_start or 0
        self.size = self.batches = self.gaps_below = 0
        self.epoch_starts: list[tuple[int, int]] = []
        self.producer_id_max = -1

    def add(self, name: str, what: str, advice: str, note: bool = False) -> None:
        """Reports a finding about a file of this partition."""
        self.report.add(Finding(f"{self.path}/{name}", what, advice, note=note))

    def look_at_names(self) -> None:
        """Reports files that record an earlier problem."""
        for name in self.names:
            if name.endswith(".quarantine"):
                size = os.stat(f"{self.path}/{name}").st_size
                self.add(
                    name, "a broker found a hole or damage in the log, and put"
                    f" {counted(size, 'byte')} of the log into this file",
                    "to read it with `ottla log dump`, copy it to a name such as /tmp/0.log; send"
                    " missing records again, then move the file away",
                )  # fmt: skip
            elif name.endswith(".damaged"):
                self.add(
                    name, "the segment of this name was found damaged; the log accepts no writes",
                    RESTORE + "; then start the broker, which removes this file",
                )  # fmt: skip
            elif name.endswith(CHANGES):
                self.add(
                    name, "it was left behind by an interrupted change",
                    "nothing to do: the next start finishes or removes it", note=True,
                )  # fmt: skip

    def read_topic_id(self) -> bytes | None:
        """The topic's id from `partition.metadata`."""
        try:
            lines = read_small(f"{self.path}/partition.metadata").decode().splitlines()
            fields = dict(line.split(": ", 1) for line in lines if line)
            topic_id = urlsafe_b64decode(fields["topic_id"].strip() + "==")
            if len(topic_id) != 16 or fields["version"].strip() != "0":
                raise ValueError
        except FileNotFoundError:
            return None
        except (ValueError, KeyError):
            self.add(
                "partition.metadata", "it does not contain `version: 0` and a topic's id",
                "rewrite both lines; `kafka-topics --describe` shows the id",
            )  # fmt: skip
            return None
        return topic_id

    def last_segment_size(self) -> int:
        """Bytes of the newest segment."""
        return os.stat(f"{self.path}/{self.bases[-1]:020d}.log").st_size

    def read_epochs(self) -> None:
        """Reads `leader-epoch-checkpoint`, in which epochs and offsets must both ascend."""
        name = "leader-epoch-checkpoint"
        try:
            data = read_small(f"{self.path}/{name}")
            self.epochs = LeaderEpochs.decode(data)
            rows = [tuple(map(int, line.split())) for line in data.decode().split("\n")[2:] if line]
            if rows != self.epochs.entries:
                self.add(name, "its leader epochs or their offsets do not ascend", REBUILD)
        except FileNotFoundError:
            # A small log needs no checkpoint: a start reads the epochs from its batches.
            small = len(self.bases) == 1 and self.last_segment_size() <= REREAD_MAX
            if self.bases and not small and not self.known.online:
                self.add(name, "it is missing", CREATED_AGAIN, note=True)
        except (ValueError, IndexError) as error:
            self.add(name, f"it cannot be read: {error}", REBUILD)

    def snapshot(self, offset: int) -> Producers | None:
        """The producers in the snapshot at an offset, None without a usable snapshot."""
        name = f"{offset:020d}.snapshot"
        if name not in self.names:
            return None
        try:
            found = decode(read_small(f"{self.path}/{name}"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            self.add(name, str(error), REBUILD)
            return None
        for state in found.values():
            self.producer_id_max = max(self.producer_id_max, state.producer_id)
        return found

    def all_epochs(self) -> LeaderEpochs:
        """The leader epochs in the checkpoint and in the batches."""
        found = LeaderEpochs(self.epochs.entries if self.epochs is not None else [])
        for epoch, offset in self.epoch_starts:
            found.assign(epoch, offset)
        return found

    def segments(self) -> int:
        """Checks every segment. While a broker is running, checks only closed and durable
        segments. Returns the number of checked segments."""
        start = self.bases[0] if self.bases else 0
        producers = self.snapshot(start) or Producers()
        self.end_offset = start
        for number, base in enumerate(self.bases):
            following = self.bases[number + 1] if number + 1 < len(self.bases) else None
            if self.known.online:
                point = self.known.recovery_point or 0
                if following is None or following > point:
                    return number
            if number:
                self.compare_snapshot(base, producers)
            try:
                self.segment(base, following, producers)
            except FileNotFoundError:
                if not self.known.online:
                    raise
        if not self.known.online:
            self.compare_snapshot(self.end_offset, producers)
        return len(self.bases)

    def segment(self, base: int, following: int | None, producers: Producers) -> None:
        """Checks one segment, and that the next segment begins where this one ends."""
        path = f"{self.path}/{base:020d}.log"
        size = os.stat(path).st_size
        self.size += size
        check = SegmentCheck(
            path, base, size, producers, self.epochs, self.known.cleaned, self.deep,
            self.known.reread_from, self.repeats, self.report,
        )  # fmt: skip
        sound = check.run()
        self.end_offset = check.end_offset
        self.batches += check.batches
        self.epoch_starts += check.epoch_starts
        self.producer_id_max = max(self.producer_id_max, check.producer_id_max)
        if not sound:
            self.judge(check, following is None)
            return
        gaps = self.known.cleaned or size == 0
        if following is None or check.end_offset == following:
            return
        if check.end_offset < following and gaps:
            self.gaps_below = following
        else:
            check.tell(
                f"it ends at offset {check.end_offset}, but the next segment begins at {following}",
                size,
            )

    def judge(self, check: SegmentCheck, last: bool) -> None:
        """Reports a fault. An incomplete end of the log is only noted: a start cuts it off."""
        assert check.fault is not None
        position, what = check.fault
        behind = check.valid_behind()
        point = self.known.recovery_point
        if last and behind is None and (point is None or check.end_offset >= point):
            check.tell(
                f"its end, {counted(check.size - position, 'byte')}, is not a whole batch: {what}",
                position,
                "an incomplete write, never acknowledged: the next start cuts it off",
                note=True,
            )  # fmt: skip
            return
        advice = RESTORE
        if what.startswith(("magic is 0,", "magic is 1,")):
            what += ": a message format from before Kafka 0.11"
            advice = "read the topic with a consumer and produce the records to another topic"
        if behind is not None:
            advice += f". Intact batches follow at byte {behind}"
        check.tell(what, position, advice)

    def compare_snapshot(self, offset: int, producers: Producers) -> None:
        """Checks that a snapshot at this offset agrees with the log about each producer."""
        found = self.snapshot(offset)
        if found is None or self.known.cleaned:
            return
        for state in found.values():
            mine = producers.get(state.producer_id)
            if mine is None or mine.epoch != state.epoch or not mine.kept or not state.kept:
                continue
            if (mine.last_sequence, mine.last_offset) != (state.last_sequence, state.last_offset):
                self.add(
                    f"{offset:020d}.snapshot",
                    f"for producer {state.producer_id} it has sequence {state.last_sequence}, "
                    f"offset {state.last_offset}, but the log has sequence {mine.last_sequence}, "
                    f"offset {mine.last_offset}",
                    REBUILD,
                )
                return
