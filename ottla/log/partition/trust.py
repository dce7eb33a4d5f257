"""Checks by a few batch headers whether a producer snapshot or leader epochs belong to a log.

The checksum of a file does not show this: another partition's file is just as intact. A file that
does not match is rebuilt from the batches. If compaction or retention has removed a batch, nothing
is concluded from its absence.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ottla.wire.batch import HEADER_BYTES, BatchHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.log.files.epochs import LeaderEpochs
    from ottla.log.files.producers import Producers
    from ottla.log.partition.segment import Segment

FAR = (1 << 63) - 1
LOOKS_MAX = 16
"""How many of a file's newest entries are compared with batches. Each comparison costs two small
reads."""


class BatchFacts(NamedTuple):
    """Fields from the header of a batch."""

    first: int
    last: int
    leader_epoch: int
    transactional: bool
    control: bool
    max_timestamp: int
    producer_id: int


NOTHING = BatchFacts(FAR, FAR, -1, False, False, -1, -1)


def header_at(segment: Segment, offset: int, patient: bool) -> BatchFacts:
    """The header of the batch that contains `offset`, or of the next batch; NOTHING after the last.

    Raises SegmentDamaged, OSError.
    """
    data = segment.data_file().pread(HEADER_BYTES, segment.position_of(offset, patient))
    if len(data) < HEADER_BYTES:
        return NOTHING
    header = BatchHeader(data)
    return BatchFacts(
        header.base_offset, header.last_offset, header.leader_epoch, header.transactional,
        header.control, header.max_timestamp, header.producer_id,
    )


def header_in(segments: Sequence[Segment], offset: int, patient: bool) -> BatchFacts:
    """Like `header_at`, for a log; NOTHING if the segment for the offset does not exist or has no
    batch from the offset on."""
    number = bisect_right(segments, offset, key=base_of) - 1
    return header_at(segments[number], offset, patient) if number >= 0 else NOTHING


def base_of(segment: Segment) -> int:
    """A segment's first offset."""
    return segment.base_offset


def snapshot_fits(
    producers: Producers, offset: int, segments: Sequence[Segment], forgotten_ms: int,
    patient: bool,
) -> bool:
    """Whether a snapshot of the producers before `offset` belongs to this log.

    The snapshot may lack a producer that has written nothing since `forgotten_ms`. Raises
    SegmentDamaged, OSError.
    """
    states = producers.values()
    for state in states[-LOOKS_MAX:]:
        if state.last_offset >= offset or state.transaction_start >= offset:
            return False
        for wanted in (state.last_offset, state.transaction_start):
            if wanted < 0:
                continue
            header = header_in(segments, wanted, patient)
            if header.first <= wanted and header.producer_id != state.producer_id:
                return False
            if wanted == state.last_offset and header.first <= wanted != header.last:
                return False
    newest = header_in(segments, offset - 1, patient)
    return (
        newest.first >= offset
        or newest.producer_id < 0
        or newest.max_timestamp <= forgotten_ms
        or any(state.producer_id == newest.producer_id for state in states)
    )


def epochs_fit(epochs: LeaderEpochs, segments: Sequence[Segment], patient: bool) -> bool:
    """Whether the newest leader epochs match the batches. Raises SegmentDamaged, OSError."""
    end = segments[-1].end_offset
    first_epoch = epochs.entries[0][0] if epochs.entries else -1
    for epoch, start in epochs.entries[-LOOKS_MAX:]:
        header = header_in(segments, start, patient)
        if start > end or (header is not NOTHING and header.leader_epoch < epoch):
            return False
        if header.first <= start and header.leader_epoch != epoch:
            return False
        # The first entry may have been moved up to the log start: its epoch may have begun before.
        before = header_in(segments, start - 1, patient)
        if epoch > first_epoch and before.first < start and before.leader_epoch >= epoch:
            return False
    last = header_in(segments, end - 1, patient)
    return last.first >= end or epochs.of_offset(end - 1) == last.leader_epoch
