"""The single writer of the metadata log.

A decision is a pure function from the image to records and a result. Decisions are made one after
the other, each on the image that the one before it left; those that arrive while a sync runs share
the next one. Nobody sees an image before its records are durable: then it replaces the one before
it, whoever follows the image is told, and the results go to those who asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ottla.broker.threads.slices import in_slices
from ottla.replication.metadata import (
    BrokerImage,
    BrokerRegistered,
    Decision,
    Endpoint,
    MetadataImage,
    MetadataRecord,
    topics_of,
)
from ottla.replication.store import MetadataStore
from ottla.wire.errors import StorageFailed

log = logging.getLogger("ottla.metadata")

Result = TypeVar("Result")
Follower = Callable[[MetadataImage, MetadataImage, Collection[str]], Iterable[None] | None]


class MetadataLog:
    """The image as of now, and the way to change it."""

    def __init__(self, store: MetadataStore, loop: asyncio.AbstractEventLoop) -> None:
        self.store, self.loop = store, loop
        self.image = store.load()
        self.followers: list[Follower] = []
        self.asked: list[tuple[Callable[[MetadataImage], Decision[Any]], asyncio.Future[Any]]] = []
        self.writer: asyncio.Task[None] | None = None
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-metadata")

    def subscribe(self, follower: Follower) -> None:
        """Call `follower(old, new, topics)` once records are durable, before anybody is answered.

        `topics` are those that changed. A follower may return steps to be walked through; between
        them the loop serves others, who see the old image until the last step is done.
        """
        self.followers.append(follower)

    async def decide(
        self, function: Callable[..., Decision[Result]], *arguments: Any
    ) -> Result:
        """Make a decision: `function(image, *arguments)`; returns its result once it is durable.

        What the function raises is raised here and nothing changes.
        """
        future: asyncio.Future[Result] = self.loop.create_future()
        self.asked.append((lambda image: function(image, *arguments), future))
        if self.writer is None:
            self.writer = self.loop.create_task(self._write())
        # A client that goes away does not take back what was decided for it.
        return await asyncio.shield(future)

    async def decide_each(
        self,
        refused: Callable[[StorageFailed], Result],
        function: Callable[..., Decision[Result]],
        *arguments: Any,
    ) -> Result:
        """The same for an API that has no error of the whole: what the store refuses, such as on
        a full disk, is what `refused` makes of it, an error for each item."""
        try:
            return await self.decide(function, *arguments)
        except StorageFailed as error:
            return refused(error)

    async def _write(self) -> None:
        try:
            while self.asked:
                group, self.asked = self.asked, []
                await self._write_group(group)
        finally:
            self.writer = None

    async def _write_group(
        self, group: list[tuple[Callable[[MetadataImage], Decision[Any]], asyncio.Future[Any]]]
    ) -> None:
        old = image = self.image
        records: list[MetadataRecord] = []
        results: list[tuple[asyncio.Future[Any], Any]] = []
        for function, future in group:
            if future.done():
                continue
            try:
                decision = function(image)
                decided = image.apply(decision.records)
            except Exception as error:
                _fail(future, error)
                continue
            image = decided
            records += decision.records
            results.append((future, decision.result))
        if records:
            try:
                try:
                    write = self.store.begin(records, image)
                except StorageFailed:
                    if len(results) == 1:
                        raise
                    # On a full disk what makes room passes, where others that came with it do not.
                    for asked in group:
                        await self._write_group([asked])
                    return
                try:
                    await self.loop.run_in_executor(self.thread, write.run)
                except Exception as error:
                    write.give_up(error)
                    raise
                write.finish()
            except Exception as error:
                log.error("metadata could not be written: %s", error)
                for future, _ in results:
                    _fail(future, StorageFailed(f"metadata could not be written: {error}"))
                return
            await self._tell(old, image, topics_of(records))
            self.image = image
        for future, result in results:
            if not future.done():
                future.set_result(result)

    async def _tell(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        for follower in self.followers:
            try:
                await in_slices(follower(old, new, topics) or ())
            except Exception:
                log.exception("following the metadata failed in %r", follower)

    async def settle(self) -> None:
        """Return once nobody waits for a decision, or for its followers."""
        while self.writer is not None:
            await asyncio.wait([self.writer])

    async def register_broker(
        self, node_id: int, endpoints: Iterable[tuple[str, str, int]], rack: str | None = None
    ) -> None:
        """Say where clients reach this broker; nothing is written where that is known already."""
        addresses = tuple(Endpoint(*each) for each in endpoints)

        def register(image: MetadataImage) -> Decision[None]:
            known = image.brokers.get(node_id)
            if known is not None and (known.endpoints, known.rack) == (addresses, rack):
                return Decision((), None)
            broker = BrokerImage(node_id, image.offset + 1, addresses, rack)
            return Decision([BrokerRegistered(broker)], None)

        await self.decide(register)

    def close(self) -> None:
        """Wait for the write that runs."""
        self.thread.shutdown(wait=True)
        self.store.close()


def for_each(items: Sized) -> Callable[[StorageFailed], list[Any]]:
    """For `decide_each`: the error once for each item."""
    return lambda error: [error] * len(items)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
