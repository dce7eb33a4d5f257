"""The single writer of the metadata log.

A decision is a pure function from the image to records and a result. Decisions are made one after
the other, each on the image to which the previous decision led. Decisions that arrive during a sync
share the next sync. Once the records of an image are durable, the functions that subscribed to the
metadata are called. The image then replaces the previous one, and the results are returned. Further
decisions are made meanwhile, so `decided` may be ahead of `image`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Generator, Iterable, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ottla.broker.threads.plain_syncs import PlainSyncs
from ottla.broker.threads.slices import Slices, begun, in_slices, run
from ottla.broker.threads.unawaited import retrieve_error
from ottla.replication.entries import EntryTooLarge
from ottla.replication.metadata import (
    BrokerImage,
    BrokerRegistered,
    Decision,
    Endpoint,
    MetadataImage,
    MetadataRecord,
    topics_of,
)
from ottla.replication.records import encode_record
from ottla.replication.steps import Steps
from ottla.replication.store import Encoded, MetadataStore, MetadataWrite
from ottla.wire.errors import ErrorCode, ProtocolError, StorageFailed

log = logging.getLogger("ottla.metadata")

Result = TypeVar("Result")
Follower = Callable[[MetadataImage, MetadataImage, Collection[str]], Iterable[None] | None]


class NotController(ProtocolError):
    """Another broker is the controller and makes the decisions."""

    code = ErrorCode.NOT_CONTROLLER


class OutcomeUnknown(Exception):
    """Records may or may not have been written; the futures in `results` wait for the outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.results: Results = []


Decide = Callable[..., Decision[Result] | Steps[Decision[Result]]]
QueuedDecision = tuple[Decide[Any], asyncio.Future[Any]]
Results = list[tuple[asyncio.Future[Any], Any]]


class Metadata:
    """The current image, and the only way to change it.

    `image` is the visible image: everything on this broker uses it. `decided` is the image on which
    further decisions are made. A subclass defines how records are kept: `begin` may refuse them,
    and `keep` returns once they are durable.
    """

    is_controller = True
    """Whether decisions can be made here. This is always true for a standalone broker."""

    def __init__(self, image: MetadataImage, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.image = self.decided = image
        self.followers: list[Follower] = []
        self.asked: list[QueuedDecision] = []
        self.writer: asyncio.Task[None] | None = None
        self.unseen: list[tuple[MetadataImage, Collection[str], Results]] = []
        self.shower: asyncio.Task[None] | None = None

    def snapshot(
        self, records: Sequence[MetadataRecord], image: MetadataImage
    ) -> Iterable[MetadataRecord] | None:
        """The records of a snapshot of `image`, if it is time to write one."""
        return None

    def begin(
        self, records: Sequence[MetadataRecord], image: MetadataImage, encoded: Encoded
    ) -> Any:
        """Prepare to keep records that lead to `image`; nothing is kept if this raises."""
        raise NotImplementedError

    async def keep(self, write: Any, image: MetadataImage) -> MetadataImage:
        """Keep what `begin` has prepared; returns the image with which to continue. If this raises
        an error other than OutcomeUnknown, the waiting calls of `decide` raise the same error."""
        raise NotImplementedError

    def subscribe(self, follower: Follower) -> None:
        """Call `follower(old, new, topics)` once records are durable, before any result is
        returned.

        `topics` are the topics that changed. A follower may return an iterator of steps. Between
        the steps, the loop serves other requests, which see the old image until the last step is
        done.
        """
        self.followers.append(follower)

    async def decide(
        self, function: Decide[Result], *arguments: Any
    ) -> Result:
        """Make a decision: `function(image, *arguments)`; returns its result once it is durable.

        If the function raises an error, nothing changes, and this raises the same error. The
        function may be a generator (`replication.steps`): then the loop serves other requests
        between its steps.
        """
        future: asyncio.Future[Result] = self.loop.create_future()
        self.asked.append((lambda image: function(image, *arguments), future))
        if self.writer is None:
            self.writer = self.loop.create_task(self._write())
        # The decision continues if its client disconnects; then no caller retrieves its error.
        future.add_done_callback(retrieve_error)
        return await asyncio.shield(future)

    async def decide_each(
        self,
        refused: Callable[[ProtocolError], Result],
        function: Decide[Result],
        *arguments: Any,
    ) -> Result:
        """Do the same as `decide`, for an API without a top-level error code. If the decision
        cannot be written, for example because the disk is full, each item gets the error."""
        try:
            return await self.decide(function, *arguments)
        except (StorageFailed, NotController, EntryTooLarge) as error:
            return refused(error)

    async def _write(self) -> None:
        try:
            while self.asked:
                group, self.asked = self.asked, []
                await self._write_group(group)
        finally:
            self.writer = None

    async def _write_group(self, group: list[QueuedDecision]) -> None:
        image = base = self.decided
        slices = Slices()
        records: list[MetadataRecord] = []
        results: Results = []
        for function, future in group:
            if future.done():
                continue
            try:
                decision = function(image)
                if isinstance(decision, Generator):
                    decision = await run(decision, slices)
                decided = await run(image.applying(decision.records), slices)
            except Exception as error:
                _fail(future, error)
                continue
            image = decided
            records += decision.records
            results.append((future, decision.result))
        if records:
            try:
                try:
                    encoded = await self._encoded(records, image, slices)
                    if self.decided is not base:
                        # Between two steps this broker was deposed and elected again: make the
                        # decisions once more, on the new image.
                        await self._write_group(group)
                        return
                    write = self.begin(records, image, encoded)
                except ProtocolError:
                    if len(results) == 1:
                        raise
                    # Decide one by one: on a full disk, decisions that free space still succeed.
                    for asked in group:
                        await self._write_group([asked])
                    return
                image = await self.keep(write, image)
            except OutcomeUnknown as unknown:
                unknown.results += results
                return
            except Exception as error:
                for future, _ in results:
                    _fail(future, error)
                return
        elif self.decided is not base:
            # Nothing would be written, but a newer image was read meanwhile: decide again, on it.
            await self._write_group(group)
            return
        self._show(image, topics_of(records), results)

    async def _encoded(
        self, records: Sequence[MetadataRecord], image: MetadataImage, slices: Slices
    ) -> Encoded:
        snapshot = self.snapshot(records, image)
        return Encoded(
            [encode_record(each) async for each in slices.each(records)],
            None if snapshot is None
            else [encode_record(each) async for each in slices.each(snapshot)],
        )

    def _show(self, image: MetadataImage, topics: Collection[str], results: Results) -> None:
        """Make a durable image visible, then return the results."""
        self.decided = image
        self.unseen.append((image, topics, results))
        if self.shower is None:
            self.shower = begun(self._show_all(), self.loop)

    async def _show_all(self) -> None:
        try:
            while self.unseen:
                unseen, self.unseen = self.unseen, []
                image = unseen[-1][0]
                if image is not self.image:
                    # A dict, since it keeps the order of the changes.
                    topics = dict.fromkeys(name for _, names, _ in unseen for name in names)
                    await self._tell(self.image, image, topics)
                    self.image = image
                for _, _, results in unseen:
                    for future, result in results:
                        if not future.done():
                            future.set_result(result)
        finally:
            self.shower = None

    async def _tell(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        for follower in self.followers:
            try:
                steps = follower(old, new, topics)
                if steps is not None:
                    await in_slices(steps)
            except Exception:
                log.exception("%r failed to apply a change of the metadata", follower)

    async def settle(self) -> None:
        """Return once no decision is pending and no subscribed function still runs."""
        while tasks := [task for task in (self.writer, self.shower) if task is not None]:
            await asyncio.wait(tasks)

    def close(self) -> None:
        """Release all resources, once `settle` has returned."""


class MetadataLog(Metadata):
    """The metadata log of a standalone broker, in a store beside its logs."""

    def __init__(self, store: MetadataStore, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(store.load(), loop)
        self.store = store
        self.syncs = PlainSyncs(loop)
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-metadata")

    def snapshot(
        self, records: Sequence[MetadataRecord], image: MetadataImage
    ) -> Iterable[MetadataRecord] | None:
        """The records of a snapshot of `image`, if it is time to write one."""
        return self.store.snapshot(len(records), image)

    def begin(
        self, records: Sequence[MetadataRecord], image: MetadataImage, encoded: Encoded
    ) -> MetadataWrite:
        """Append the records. Raises StorageFailed."""
        try:
            return self.store.begin(records, image, encoded)
        except Exception as error:
            raise _not_written(error) from error

    async def keep(self, write: MetadataWrite, image: MetadataImage) -> MetadataImage:
        """Sync the records, in a thread. Raises StorageFailed."""
        try:
            try:
                await self._sync(write)
            except Exception as error:
                write.give_up(error)
                raise
            write.finish()
        except Exception as error:
            raise _not_written(error) from error
        return image

    async def _sync(self, write: MetadataWrite) -> None:
        ended = asyncio.Event()
        if write.task is None or not self.syncs.begin([write.task], ended.set):
            await self.loop.run_in_executor(self.thread, write.run)
        else:
            await ended.wait()

    async def register_broker(
        self, node_id: int, endpoints: Iterable[tuple[str, str, int]], rack: str | None = None
    ) -> None:
        """Record this broker's addresses; nothing is written if they are known already."""
        addresses = tuple(Endpoint(*each) for each in endpoints)

        def register(image: MetadataImage) -> Decision[None]:
            known = image.brokers.get(node_id)
            if known is not None and (known.endpoints, known.rack) == (addresses, rack):
                return Decision((), None)
            broker = BrokerImage(node_id, image.offset + 1, addresses, rack)
            return Decision([BrokerRegistered(broker)], None)

        await self.decide(register)

    def close(self) -> None:
        """Wait for a write in progress, then close the store."""
        self.syncs.close()
        self.thread.shutdown(wait=True)
        self.store.close()


def _not_written(error: Exception) -> StorageFailed:
    log.error("metadata could not be written: %s", error)
    return StorageFailed(f"metadata could not be written: {error}")


def for_each(items: Sized) -> Callable[[ProtocolError], list[Any]]:
    """For `decide_each`: returns the error once for each item."""
    return lambda error: [error] * len(items)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
