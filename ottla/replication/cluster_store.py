"""A cluster's metadata log in ZooKeeper: immutable entries and their snapshots.

    /cluster/id                  {"version":"1","id":…}
    /controller                  the current controller; ephemeral (`election`)
    /controller_epoch            the controller's epoch; every write checks this node's version
    /brokers/ids/N               the registered brokers; ephemeral (`registration`)
    /metadata/log/0000000000042  one entry
    /metadata/newest             the snapshot that a reader starts from
    /metadata/snapshots/42/3     one piece of the snapshot at entry 42

Each write of an entry checks that the writer is still the controller, and that the preceding entry
exists. So the log has no gaps, and a deposed controller can write nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from zlib import crc32

from ottla.replication.coordination import (
    Check,
    Coordination,
    Create,
    Delete,
    NoNode,
    Operation,
    Set,
    Watch,
    each,
    make,
)
from ottla.replication.entries import (
    PIECE_SIZE_MAX,
    SNAPSHOT_RAW_SIZE_MAX,
    Entry,
    EntryHeader,
    decode_entry,
    decode_snapshot,
    encode_snapshot,
)
from ottla.replication.metadata import MetadataImage, MetadataRecord
from ottla.replication.records import GARBAGE, UnreadableMetadata
from ottla.replication.standalone import snapshot_records

CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
LOG = "/metadata/log"
NEWEST = "/metadata/newest"
SNAPSHOTS = "/metadata/snapshots"
KAFKAS_TOPICS = "/brokers/topics"
LAYOUT = (
    "/cluster", "/brokers", "/brokers/ids", "/metadata", LOG, SNAPSHOTS,
)
READ_AHEAD = 32
"""The most entries requested at once."""
SNAPSHOT_AFTER_ENTRIES = 1000
"""The controller writes a snapshot after this many entries: a starting broker needs one read for
each entry after the last snapshot."""
ENTRY_DIGITS = 13
DELETED_AT_A_TIME = 100
PIECES_MAX = SNAPSHOT_RAW_SIZE_MAX // PIECE_SIZE_MAX


class ClusterRefused(Exception):
    """This ZooKeeper must not be used: it belongs to another system or cluster."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The snapshot that a reader starts from. `before` is the entry of the previous snapshot:
    entries before it may be deleted."""

    entry: int
    pieces: int
    crc: int
    before: int


@dataclass(frozen=True, slots=True)
class Mark:
    """An entry that was read, and the ZooKeeper transaction that created it."""

    entry: int
    czxid: int


class GoneBack(UnreadableMetadata):
    """ZooKeeper no longer has an entry that this broker has read: ZooKeeper was restored from a
    backup, or emptied."""

    def __init__(self, entry: int) -> None:
        super().__init__(
            f"entry {entry} of the metadata log in ZooKeeper is missing, or is not the one that"
            " this broker has read: ZooKeeper was restored from a backup, or emptied. To accept"
            " its present metadata, stop all brokers and run `ottla cluster accept-backup` on the"
            " log directories of each broker. Changes that ZooKeeper no longer has are then lost"
        )


class Behind(Exception):
    """The next entry to read has been deleted, since a snapshot contains its records."""


def number_of(name: str, digits: int = 0) -> int | None:
    """The number in the name of an entry, which has `digits` digits, or of a snapshot, which has no
    leading zeros (`digits` is 0). Returns None for any other name, even if `int` could parse it:
    callers ignore such nodes."""
    if len(name) > ENTRY_DIGITS or not (name.isascii() and name.isdecimal()):
        return None
    number = int(name)
    return number if name == f"{number:0{digits}d}" else None


def entry_path(number: int) -> str:
    """The path of an entry; the names sort in the order of the numbers."""
    return f"{LOG}/{number:0{ENTRY_DIGITS}d}"


def cluster_id_text(cluster_id: str) -> bytes:
    """The text of `/cluster/id`."""
    return json.dumps({"version": "1", "id": cluster_id}, separators=(",", ":")).encode()


def id_of_cluster(data: bytes) -> str:
    """The id in `/cluster/id`. Raises ClusterRefused."""
    try:
        cluster_id = json.loads(data)["id"]
    except GARBAGE:
        cluster_id = None
    if not isinstance(cluster_id, str) or not cluster_id:
        raise ClusterRefused(f"{CLUSTER_ID} in ZooKeeper contains no cluster id: {data[:100]!r}")
    return cluster_id


class ClusterStore:
    """Reads and writes the log. Raises CoordinationError if ZooKeeper does not answer, and
    UnreadableMetadata for data that this version cannot read."""

    def __init__(self, coordination: Coordination) -> None:
        self.coordination = coordination
        self.ahead = 1
        """How many entries the next read asks for: usually one is new, but a starting broker reads
        many."""
        self.last = 0, ""
        """The last entry that was read or written here: its number and its header's `batch`."""

    async def prepare(self) -> None:
        """Create the permanent nodes. Raises ClusterRefused if the root is Apache Kafka's."""
        if await self.coordination.exists(KAFKAS_TOPICS) is not None:
            raise ClusterRefused(
                "zookeeper.connect leads to a path that Apache Kafka uses: it contains"
                " /brokers/topics. Add a chroot for Ottla to the setting, such as /ottla"
            )
        for path in LAYOUT:
            await make(self.coordination, path)
        await make(self.coordination, CONTROLLER_EPOCH, b"0")

    async def cluster_id(self, proposed: str) -> str:
        """The cluster's id: `proposed`, unless another broker has proposed an id before."""
        await make(self.coordination, CLUSTER_ID, cluster_id_text(proposed))
        data, _ = await self.coordination.get(CLUSTER_ID)
        return id_of_cluster(data)

    async def load(self, cluster_id: str) -> MetadataImage:
        """The image after all entries written so far."""
        await self.coordination.sync()
        image = await self.newest(MetadataImage.empty(cluster_id))
        while True:
            try:
                entries = await self.after(image.entry)
            except Behind:
                image = await self.newest(image)
                continue
            if not entries:
                return image
            image = apply_entries(image, entries)

    async def after(self, number: int, watch: Watch | None = None) -> list[Entry]:
        """The entries after `number`, at most `ahead` of them.

        If there are none, `watch` is called when entry `number + 1` may exist. Raises Behind if the
        next entries were deleted because a snapshot contains them.
        """
        entries = await self._read(number)
        if entries:
            return entries
        newest = await self._newest()
        if newest is not None and newest.entry > number:
            raise Behind
        if watch is not None and await self.coordination.exists(entry_path(number + 1), watch):
            return await self._read(number)         # the entry was created meanwhile
        return []

    async def _read(self, number: int) -> list[Entry]:
        numbers = range(number + 1, number + 1 + self.ahead)
        answers = await each([self.coordination.get(entry_path(n)) for n in numbers])
        entries = []
        for n, answer in zip(numbers, answers, strict=True):
            if isinstance(answer, NoNode):
                break
            if isinstance(answer, Exception):
                raise answer
            data, stat = answer
            entries.append(decode_entry(n, stat.czxid, data))
        if entries:
            self.last = entries[-1].number, entries[-1].header.batch
        self.ahead = min(2 * self.ahead, READ_AHEAD) if len(entries) == len(numbers) else 1
        return entries

    async def append(self, number: int, data: bytes, epoch_version: int) -> None:
        """Write an entry as the controller; `epoch_version` is the version of `/controller_epoch`
        after this controller's election.

        Raises CoordinationRefused if this broker is no longer the controller, or if `number` is not
        the number of the log's next entry.
        """
        operations: list[Operation] = [Check(CONTROLLER_EPOCH, epoch_version)]
        if number > 1:
            operations.append(Check(entry_path(number - 1)))
        await self.coordination.multi([*operations, Create(entry_path(number), data)])

    async def _newest(self) -> Newest | None:
        try:
            data, _ = await self.coordination.get(NEWEST)
        except NoNode:
            return None
        try:
            newest = Newest(**json.loads(data))
            if any(type(each) is not int or each < 0 for each in astuple(newest)):
                raise TypeError(f"each field must be a whole number and not negative: {newest}")
            if newest.pieces > PIECES_MAX:
                raise ValueError(
                    f"it names a snapshot of {newest.pieces} pieces, but at most {PIECES_MAX} are"
                    " allowed")
        except GARBAGE as error:
            raise UnreadableMetadata(f"{NEWEST} in ZooKeeper is not readable: {error!r}") from error
        return newest

    async def mark(self, entry: int) -> Mark | None:
        """A mark of an entry for `check_mark`; None for an entry that does not exist."""
        stat = await self.coordination.exists(entry_path(entry))
        return None if stat is None else Mark(entry, stat.czxid)

    async def check_mark(self, mark: Mark) -> None:
        """Raise GoneBack unless the log still has the marked entry, or a snapshot contains it."""
        await self.coordination.sync()
        stat = await self.coordination.exists(entry_path(mark.entry))
        if stat is None:
            await self._check_deleted(mark.entry)
        elif stat.czxid != mark.czxid:
            raise GoneBack(mark.entry)

    async def check_last(self, entry: int) -> None:
        """Raise GoneBack unless the log still has `entry` as this store has read or written it, or
        a snapshot contains the entry."""
        if entry == 0:
            return
        await self.coordination.sync()
        try:
            data, stat = await self.coordination.get(entry_path(entry))
        except NoNode:
            await self._check_deleted(entry)
            return
        number, batch = self.last
        if number == entry and decode_entry(entry, stat.czxid, data).header.batch != batch:
            raise GoneBack(entry)

    async def _check_deleted(self, entry: int) -> None:
        """The log no longer has this entry: raise GoneBack unless a snapshot contains it."""
        newest = await self._newest()
        if newest is None or newest.entry < entry:
            raise GoneBack(entry)

    async def newest(self, image: MetadataImage) -> MetadataImage:
        """The image of the newest snapshot, or `image` if no snapshot is newer."""
        tried = None
        while True:
            newest = await self._newest()
            if newest is None or newest.entry <= image.entry:
                return image
            if newest == tried:
                raise UnreadableMetadata(
                    f"pieces of the snapshot {SNAPSHOTS}/{newest.entry} in ZooKeeper are missing"
                )
            tried = newest
            paths = [f"{SNAPSHOTS}/{newest.entry}/{n}" for n in range(newest.pieces)]
            answers = await each([self.coordination.get(path) for path in paths])
            if any(isinstance(answer, NoNode) for answer in answers):
                continue                            # a newer snapshot may have replaced this one
            pieces = []
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
                pieces.append(answer[0])
            if crc32(b"".join(pieces)) != newest.crc:
                raise UnreadableMetadata(
                    f"the snapshot {SNAPSHOTS}/{newest.entry} in ZooKeeper has a wrong checksum"
                )
            header, records = decode_snapshot(newest.entry, pieces)
            name = f"the snapshot {SNAPSHOTS}/{newest.entry} in ZooKeeper"
            folded = _applied(MetadataImage.empty(image.cluster_id), records, name)
            return replace(folded, offset=header.offset, entry=newest.entry)

    async def wants_snapshot(self, image: MetadataImage) -> bool:
        """Whether enough entries have been added for a new snapshot."""
        newest = await self._newest()
        return image.entry - (newest.entry if newest else 0) >= SNAPSHOT_AFTER_ENTRIES

    async def write_snapshot(self, image: MetadataImage, epoch_version: int) -> None:
        """Write a snapshot and keep the previous one. Then delete all older snapshots, and the
        entries before the previous snapshot."""
        newest = await self._newest()
        before = newest.entry if newest is not None else 0
        fence = Check(CONTROLLER_EPOCH, epoch_version)
        body = await self.write_pieces(image, before, fence)
        await self.coordination.multi([
            fence, Create(NEWEST, body) if newest is None else Set(NEWEST, body)
        ])
        for name in await self.coordination.children(SNAPSHOTS):
            entry = number_of(name)
            if entry is not None and entry not in (image.entry, before):
                await self._remove_snapshot(entry, fence)
        names = await self.coordination.children(LOG)
        numbers = [number_of(name, ENTRY_DIGITS) for name in names]
        old = [number for number in numbers if number is not None and number < before]
        for at in range(0, len(old), DELETED_AT_A_TIME):
            some = old[at : at + DELETED_AT_A_TIME]
            await self.coordination.multi([fence, *(Delete(entry_path(n)) for n in some)])

    async def write_pieces(self, image: MetadataImage, before: int, fence: Check) -> bytes:
        """Write the pieces of a snapshot that replaces the snapshot at entry `before` (0: there is
        none). Returns the bytes for `/metadata/newest`: readers use the snapshot once these bytes
        are in that node."""
        assert before < image.entry, "the snapshot to replace is not older than the new one"
        records = list(snapshot_records(image))
        header = EntryHeader(
            1, image.controller_id, image.controller_epoch, "", image.offset, len(records)
        )
        pieces = encode_snapshot(header, records)
        directory = f"{SNAPSHOTS}/{image.entry}"
        await self._remove_snapshot(image.entry, fence)         # an unfinished earlier attempt
        await self.coordination.multi([fence, Create(directory)])
        for number, piece in enumerate(pieces):
            await self.coordination.multi([fence, Create(f"{directory}/{number}", piece)])
        return json.dumps({
            "entry": image.entry, "pieces": len(pieces), "crc": crc32(b"".join(pieces)),
            "before": before,
        }).encode()

    async def _remove_snapshot(self, entry: int, fence: Check) -> None:
        directory = f"{SNAPSHOTS}/{entry}"
        try:
            pieces = await self.coordination.children(directory)
        except NoNode:
            return
        removals = [Delete(f"{directory}/{piece}") for piece in pieces]
        await self.coordination.multi([fence, *removals, Delete(directory)])


def apply_entries(image: MetadataImage, entries: Iterable[Entry]) -> MetadataImage:
    """`image` with the next entries applied. Raises UnreadableMetadata if an entry does not follow
    the one before it, or its records cannot be applied."""
    records: list[MetadataRecord] = []
    offset, number = image.offset, image.entry
    for entry in entries:
        if entry.number != number + 1 or entry.header.offset != offset:
            raise UnreadableMetadata(
                f"entry {entry.number} of the metadata log begins with record"
                f" {entry.header.offset}, but entry {number + 1} with record {offset} was expected:"
                " ZooKeeper was restored from a backup, or was changed by hand"
            )
        records += entry.records
        offset, number = offset + len(entry.records), entry.number
    name = f"entry {number} of the metadata log"
    if number > image.entry + 1:
        name = f"one of the entries {image.entry + 1} to {number} of the metadata log"
    applied = _applied(image, records, name)
    assert applied.offset == offset, "the image has another offset than the last entry"
    return replace(applied, entry=number)


def _applied(
    image: MetadataImage, records: Iterable[MetadataRecord], name: str
) -> MetadataImage:
    try:
        return image.apply(records)
    except GARBAGE as error:
        raise UnreadableMetadata(
            f"{name} cannot be applied ({error!r}): ZooKeeper was changed by hand"
        ) from error
