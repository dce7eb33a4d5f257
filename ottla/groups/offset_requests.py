"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete and the expiry of offsets (KIP-211)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ottla.groups.records import CommittedOffset, OffsetKey, Record
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.groups.offsets import Offsets
    from ottla.groups.result import Result
    from ottla.groups.settings import GroupSettings

NONE = ErrorCode.NONE
NEVER_MS = (1 << 63) - 1
"""The largest timestamp that a record can hold."""


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    topic_id: bytes = bytes(16)


@dataclass(slots=True)
class Setter:
    """A client that commits offsets without being a member, and what one of its requests has
    changed. Such a client is a tool, or a consumer that manages its partitions itself."""

    user: str
    client: str | None
    host: str
    topics: set[str] = field(default_factory=set)
    """The topics whose offsets were committed."""
    back: int = 0
    """The number of records by which offsets were set back, in total."""


class Commit(NamedTuple):
    """An OffsetCommit or, if `transactional`, a TxnOffsetCommit.

    `generation` is the member epoch of a KIP-848 member; -1 with an empty member id
    means a client that manages its partitions itself.
    """

    group_id: str
    offsets: Sequence[OffsetToCommit]
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    retention_ms: int = -1
    version: int = 10
    """The version of the OffsetCommit or TxnOffsetCommit, on which the error codes depend."""
    transactional: bool = False
    setter: Setter | None = None
    """The client that sets the offsets, if it is not a member."""

    @property
    def knows_kip_848(self) -> bool:
        """Whether the client knows GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH as answers. Older
        clients get ILLEGAL_GENERATION instead: a producer would fail for good after a code that it
        does not know, but aborts its transaction after ILLEGAL_GENERATION."""
        return self.version >= (6 if self.transactional else 9)


def commit_records(
    request: Commit, result: Result, settings: GroupSettings
) -> list[ErrorCode]:
    """Record every offset whose metadata is not too large; returns a code for each, in order."""
    expire_ms = -1
    if request.retention_ms >= 0:
        expire_ms = min(result.wall_ms + request.retention_ms, NEVER_MS)
    codes = []
    for topic, partition, offset, leader_epoch, metadata, topic_id in request.offsets:
        if len(metadata) > settings.offset_metadata_max_bytes:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        value = CommittedOffset(
            offset, leader_epoch, metadata, result.wall_ms, expire_ms, topic_id
        )
        result.records.append(Record(OffsetKey(request.group_id, topic, partition), value))
        codes.append(NONE)
    return codes


def records_back(request: Commit, codes: Sequence[ErrorCode], offsets: Offsets) -> int:
    """The number of records by which a commit sets offsets back, in total. Only accepted offsets
    count."""
    committed = offsets.of_group(request.group_id)
    back = 0
    for each, code in zip(request.offsets, codes, strict=True):
        before = None if code else committed.get((each.topic, each.partition))
        if before is not None:
            back += max(0, before.offset - each.offset)
    return back


class FetchedOffset(NamedTuple):
    """One partition of an OffsetFetch; without a commit the value is None."""

    topic: str
    partition: int
    value: CommittedOffset | None
    code: ErrorCode = ErrorCode.NONE


def fetch_offsets(
    offsets: Offsets,
    group_id: str,
    wanted: Sequence[tuple[str, int]] | None,
    require_stable: bool,
) -> list[FetchedOffset]:
    """The committed offsets of the partitions in `wanted`, or of all partitions with an offset if
    `wanted` is None.

    With `require_stable`, partitions with a pending transactional offset get
    UNSTABLE_OFFSET_COMMIT instead (KIP-447).
    """
    committed = offsets.of_group(group_id)
    indexes = fetchable(offsets, group_id, require_stable) if wanted is None else wanted
    fetched = []
    for topic, partition in indexes:
        if require_stable and offsets.is_pending(group_id, topic, partition):
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT
            fetched.append(FetchedOffset(topic, partition, None, code))
        else:
            fetched.append(FetchedOffset(topic, partition, committed.get((topic, partition))))
    return fetched


def fetchable(offsets: Offsets, group_id: str, require_stable: bool) -> list[tuple[str, int]]:
    """The partitions with an offset; with `require_stable`, also those with a pending offset."""
    return offsets.indexes_of(group_id) if require_stable else [*offsets.of_group(group_id)]


def has_expired(value: CommittedOffset, base_ms: int, wall_ms: int, retention_ms: int) -> bool:
    """Whether an offset has expired."""
    if value.expire_ms >= 0:
        return wall_ms >= value.expire_ms
    return wall_ms - base_ms >= retention_ms
