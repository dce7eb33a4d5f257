"""The metadata of a cluster's member: every broker reads the metadata log in ZooKeeper, entry after
entry, and the controller also writes it.

The controller writes one entry at a time, and does not read its own entries. If it does not learn
whether a write succeeded, it resigns. The callers that wait for this write are answered once the
log shows whether it succeeded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ottla.broker.cluster.metadata_log import (
    Decide,
    Metadata,
    NotController,
    OutcomeUnknown,
    Results,
)
from ottla.replication.cluster_store import Behind, ClusterStore, GoneBack, apply_entries
from ottla.replication.coordination import ConnectionLost, CoordinationError, CoordinationRefused
from ottla.replication.election import Term
from ottla.replication.entries import FORMAT, Entry, EntryHeader, encode_entry
from ottla.replication.metadata import MetadataImage, MetadataRecord, topics_of
from ottla.replication.records import UnreadableMetadata
from ottla.replication.store import Encoded
from ottla.wire.marks import reached

log = logging.getLogger("ottla.metadata")


@dataclass(frozen=True, slots=True)
class Write:
    """An entry that is about to be written."""

    number: int
    batch: str
    data: bytes


class ClusterLog(Metadata):
    """A member's metadata. `new_id` makes ids for writes. `failed` is called with the reason when
    reading has ended for good. If ZooKeeper turns out to be restored from a backup, `gone_back` is
    called first, with the last entry that this broker has read."""

    def __init__(
        self,
        store: ClusterStore,
        image: MetadataImage,
        node_id: int,
        new_id: Callable[[], str],
        failed: Callable[[str], None],
        gone_back: Callable[[int], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(image, loop)
        self.store, self.node_id, self.new_id = store, node_id, new_id
        self.failed, self.gone_back = failed, gone_back
        self.deposed: Callable[[], None] = lambda: None
        """Called when this broker is no longer the controller. The `Controller`, which writes
        through this log, sets this function."""
        self.term: Term | None = None
        self.is_controller = False
        self.order = asyncio.Lock()
        """Held while an entry is written or read, so that no entry is applied twice."""
        self.pending: dict[str, tuple[int, OutcomeUnknown]] = {}
        """Writes of unknown outcome, keyed by batch id. Each value begins with the number that the
        entry would have in the log."""
        self.reader: asyncio.Task[None] | None = None
        self.news = False
        self.unsure = False
        """Whether the connection has broken since the last read. If so, ZooKeeper may have been
        restored from a backup meanwhile."""
        self.seen_moved = asyncio.Event()

    async def decide(self, function: Decide[Any], *arguments: Any) -> Any:
        """Make a decision, as `Metadata.decide` does. Raises NotController unless this broker is
        the controller."""
        if not self.is_controller:
            raise NotController(f"broker {self.node_id} is not the controller")
        return await super().decide(function, *arguments)

    async def decide_first(self, function: Decide[Any], *arguments: Any) -> Any:
        """Make one of the first decisions of this broker's term, before `decide` accepts any."""
        return await super().decide(function, *arguments)

    def begin_term(self, term: Term) -> None:
        """Begin to decide: this broker was elected and has read the log to its end."""
        self.term = term

    def end_term(self) -> None:
        """This broker is no longer the controller: refuse the decisions that have not begun yet."""
        self.term, self.is_controller = None, False
        asked, self.asked = self.asked, []
        for _, future in asked:
            if not future.done():
                future.set_exception(self._not_controller())

    def _not_controller(self) -> NotController:
        return NotController(f"broker {self.node_id} is no longer the controller")

    def begin(
        self, records: Sequence[MetadataRecord], image: MetadataImage, encoded: Encoded
    ) -> Write:
        """Encode the next entry. Raises EntryTooLarge or NotController."""
        if self.term is None:
            raise self._not_controller()
        batch, offset = self.new_id(), image.offset - len(records)
        header = EntryHeader(FORMAT, self.node_id, self.term.epoch, batch, offset, len(records))
        return Write(self.decided.entry + 1, batch, encode_entry(header, encoded.records))

    async def keep(self, write: Write, image: MetadataImage) -> MetadataImage:
        """Write the entry. Raises NotController if the entry certainly was not written, and
        OutcomeUnknown if it may have been written."""
        async with self.order:
            term = self.term
            if term is None or self.decided.entry + 1 != write.number:
                raise self._not_controller()
            try:
                await self.store.append(write.number, write.data, term.version)
            except ConnectionLost as error:
                reached("a controller does not know whether its write was done")
                log.warning(
                    "the connection to ZooKeeper broke: it is not known yet whether metadata entry"
                    " %d was written", write.number,
                )
                unknown = OutcomeUnknown()
                self.pending[write.batch] = write.number, unknown
                self.deposed()
                raise unknown from error
            except CoordinationError as error:
                if isinstance(error, CoordinationRefused):
                    reached("a deposed controller's write was refused")
                    log.warning(
                        "metadata entry %d was not written: another broker is the controller",
                        write.number,
                    )
                else:
                    log.warning("metadata entry %d could not be written: %s", write.number, error)
                self.deposed()
                raise self._not_controller() from error
            self.store.last = write.number, write.batch
            self.decided = replace(image, entry=write.number)
            # If a write of an earlier term for this entry number is still pending, that write has
            # failed. Its callers usually get the error when this broker reads the entry with this
            # number. But this broker does not read the entries that it has written itself.
            self._give_up(write.number)
            return self.decided

    def read_on(self) -> None:
        """There may be new entries in the log: read them in the background."""
        self.news = True
        if self.reader is None:
            self.reader = self.loop.create_task(self._read())

    async def _read(self) -> None:
        try:
            while self.news:
                self.news = False
                await self.read_to_end()
        except CoordinationError:
            pass                                # the member continues when it is connected again
        except UnreadableMetadata:
            pass                                # `failed` ends the broker
        finally:
            self.reader = None

    async def read_to_end(self) -> None:
        """Read all available entries. Raises CoordinationError, or UnreadableMetadata after calling
        `failed`."""
        try:
            while await self._read_some():
                pass
        except UnreadableMetadata as error:
            self.failed(str(error))
            raise

    async def _check_last(self) -> None:
        """After the connection broke, check that the log still has the last entry that was read."""
        self.unsure = False
        try:
            await self.store.check_last(self.decided.entry)
        except BaseException as error:
            self.unsure = True
            if isinstance(error, GoneBack):
                reached("ZooKeeper has gone back in time")
                self.gone_back(self.decided.entry)
            raise

    async def _read_some(self) -> bool:
        async with self.order:
            if self.unsure:
                await self._check_last()
            try:
                entries = await self.store.after(self.decided.entry, self.read_on)
            except Behind:
                await self._jump()
                return True
            if not entries:
                return False
            image = apply_entries(self.decided, entries)
            results = self._outcomes(entries)
            self._show(image, topics_of(r for entry in entries for r in entry.records), results)
            return True

    async def _jump(self) -> None:
        """Continue from the newest snapshot, since the entries before it have been deleted."""
        old = self.decided
        image = await self.store.newest(old)
        names = old.topics.keys() | image.topics.keys()
        changed = {n for n in names if old.topics.get(n) != image.topics.get(n)}
        log.info("metadata: entries %d to %d were read from a snapshot", old.entry + 1, image.entry)
        reached("a broker jumped to a metadata snapshot")
        if old.topics.keys() - image.topics.keys():
            reached("a broker jumped to a snapshot past the deletion of a topic")
        if image.brokers != old.brokers:
            reached("a broker jumped to a snapshot past a change of the brokers")
        self._show(image, changed, self._give_up(image.entry))

    def _outcomes(self, entries: Sequence[Entry]) -> Results:
        """The results of the pending writes that these entries come from. Other pending writes of
        the same entry numbers have failed: their callers get an error."""
        done: Results = []
        for entry in entries:
            waiting = self.pending.pop(entry.header.batch, None)
            if waiting is not None:
                reached("a write of unknown outcome turns out to be done")
                done += waiting[1].results
        self._give_up(entries[-1].number)
        return done

    def _give_up(self, upto: int) -> Results:
        for batch, (number, unknown) in list(self.pending.items()):
            if number <= upto:
                del self.pending[batch]
                reached("a write of unknown outcome turns out to be lost")
                for future, _ in unknown.results:
                    if not future.done():
                        future.set_exception(self._not_controller())
        return []

    async def catch_up(self) -> None:
        """Return once `image` includes every decision that the controller made before this call.

        Raises UnreadableMetadata, and CoordinationError if ZooKeeper does not answer.
        """
        await self.store.coordination.sync()
        await self.read_to_end()
        while self.shower is not None:
            await asyncio.wait([self.shower])

    async def _show_all(self) -> None:
        await super()._show_all()
        self.seen_moved.set()

    async def until(self, true: Callable[[MetadataImage], bool]) -> None:
        """Return once the image satisfies a condition."""
        while not true(self.image):
            self.seen_moved.clear()
            await self.seen_moved.wait()

    def close(self) -> None:
        """Stop reading; callers that still wait are refused."""
        if self.reader is not None:
            self.reader.cancel()
        self.end_term()
        self._give_up(1 << 62)
