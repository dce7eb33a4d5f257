"""Decisions are made one after the other, each on the image that the previous one has produced;
none is visible before it is durable."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pytest

from ottla.broker.cluster.metadata_log import MetadataLog
from ottla.broker.threads import slices
from ottla.replication.controller.producer_ids import take_producer_ids
from ottla.replication.metadata import (
    ConfigSet,
    Decision,
    MetadataImage,
    MetadataRecord,
    ProducerIdsTaken,
    TopicCreated,
    TopicDeleted,
)
from ottla.replication.store import Encoded
from ottla.wire.errors import ErrorCode, InvalidRequest, ProtocolError, StorageFailed
from tests.waiting import turn


class ListWrite:
    """A write that fails in its thread, or adds its records to the store when it finishes."""

    task = None

    def __init__(self, store: ListStore, records: Sequence[MetadataRecord]) -> None:
        self.store, self.records = store, records

    def run(self) -> None:
        if self.store.failure is not None:
            raise self.store.failure

    def give_up(self, error: Exception) -> None:
        pass

    def finish(self) -> None:
        self.store.groups.append(list(self.records))


class ListStore:
    """A store in memory that fails on request."""

    def __init__(self) -> None:
        self.groups: list[list[MetadataRecord]] = []
        self.failure: Exception | None = None
        self.room_for: type[MetadataRecord] | None = None
        """If set, only records of this type have room."""
        self.metadata_log: MetadataLog | None = None

    def load(self) -> MetadataImage:
        return MetadataImage.empty("c").apply(r for group in self.groups for r in group)

    def snapshot(self, records: int, image: MetadataImage) -> None:
        return None

    def begin(
        self,
        records: Sequence[MetadataRecord],
        image: MetadataImage,
        encoded: Encoded | None = None,
    ) -> ListWrite:
        assert self.metadata_log is None or self.metadata_log.image.offset < image.offset
        if self.room_for and not all(isinstance(record, self.room_for) for record in records):
            raise StorageFailed("full")
        return ListWrite(self, records)

    def close(self) -> None:
        pass


def on_a_loop(test: Any) -> Any:
    """Run `test(log, store)` on a loop with a MetadataLog of its own."""

    async def run() -> None:
        store = ListStore()
        log = store.metadata_log = MetadataLog(store, asyncio.get_running_loop())
        try:
            await test(log, store)
        finally:
            log.close()

    return lambda: asyncio.run(run())


def set_to(image: MetadataImage, value: str) -> Decision[str]:
    """Append `value` to a setting; the result is its previous value."""
    before = image.config_of("group", "g").get("s", "")
    return Decision([ConfigSet("group", "g", "s", before + value)], before)


@on_a_loop
async def test_decisions_made_at_once_build_on_each_other(log: MetadataLog, store: Any) -> None:
    results = await asyncio.gather(*(log.decide(set_to, letter) for letter in "abcd"))
    assert results == ["", "a", "ab", "abc"]
    assert log.image.config_of("group", "g") == {"s": "abcd"}
    assert len(store.groups) == 1, "those that wait together share one sync"
    assert store.load() == log.image


@on_a_loop
async def test_a_decision_that_raises_changes_nothing(log: MetadataLog, store: Any) -> None:
    def refuse(image: MetadataImage) -> Decision[None]:
        raise InvalidRequest("no")

    first, refused, last = await asyncio.gather(
        log.decide(set_to, "a"), log.decide(refuse), log.decide(set_to, "b"), return_exceptions=True
    )
    assert (first, last) == ("", "a")
    assert isinstance(refused, InvalidRequest)
    assert log.image.config_of("group", "g") == {"s": "ab"}


@pytest.mark.parametrize("failure", [OSError("full"), StorageFailed("offline")])
def test_what_could_not_be_kept_did_not_happen(failure: Exception) -> None:
    @on_a_loop
    async def check(log: MetadataLog, store: Any) -> None:
        told: list[MetadataImage] = []
        log.subscribe(lambda old, new, topics: told.append(new))
        store.failure = failure
        for _ in range(2):
            with pytest.raises(ProtocolError) as raised:
                await asyncio.wait_for(log.decide(set_to, "a"), 10)
            assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert log.image == MetadataImage.empty("c")
        store.failure = None
        assert await log.decide(set_to, "b") == ""
        assert told == [log.image]

    check()


@on_a_loop
async def test_on_a_full_disk_what_makes_room_passes_though_others_come_with_it(
    log: MetadataLog, store: Any
) -> None:
    await log.decide(create_topic, "t")
    store.room_for = TopicDeleted
    answers = await asyncio.gather(
        log.decide(create_topic, "u"), log.decide(delete_topic, "t"), log.decide(set_to, "a"),
        return_exceptions=True,
    )
    assert isinstance(answers[0], StorageFailed) and isinstance(answers[2], StorageFailed)
    assert answers[1] == "t"
    assert log.image == store.load() and not log.image.topics


@on_a_loop
async def test_followers_know_the_image_before_those_who_asked(
    log: MetadataLog, store: Any
) -> None:
    order = []
    log.subscribe(lambda old, new, topics: order.append((old.offset, new.offset)))

    async def ask() -> None:
        await log.decide(set_to, "a")
        order.append((-1, -1))

    await ask()
    assert order == [(0, 1), (-1, -1)]


@on_a_loop
async def test_a_broken_follower_does_not_hold_up_the_others(log: MetadataLog, store: Any) -> None:
    told = []
    log.subscribe(lambda old, new, topics: 1 // 0)
    log.subscribe(lambda old, new, topics: told.append(new.offset))
    await log.decide(set_to, "a")
    assert told == [1]


@on_a_loop
async def test_long_followers_let_others_be_served_and_see_the_old_image(
    log: MetadataLog, store: Any
) -> None:
    seen: list[object] = []
    whole, slices.SLICE_SECONDS = slices.SLICE_SECONDS, -1.0

    def steps(old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> Iterator[None]:
        for step in range(3):
            seen.append((step, sorted(topics), log.image is old))
            asyncio.get_running_loop().call_soon(seen.append, "others")
            yield

    log.subscribe(steps)
    try:
        assert await log.decide(create_topic, "t") == "t"
        await log.settle()
    finally:
        slices.SLICE_SECONDS = whole
    assert seen == [(n, ["t"], True) if on else "others" for n in range(3) for on in (1, 0)]
    assert list(log.image.topics) == ["t"]


@on_a_loop
async def test_changes_that_become_visible_together_are_all_told_to_the_followers(
    log: MetadataLog, store: Any
) -> None:
    """Two topics are created, one after the other, while a follower is busy with the first."""
    told: list[list[str]] = []
    whole, slices.SLICE_SECONDS = slices.SLICE_SECONDS, -1.0

    def busy(old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> Iterator[None]:
        told.append([*topics])
        while len(log.decided.topics) < 3:
            yield

    async def create_after(others: int, name: str) -> None:
        while len(log.decided.topics) < others:
            await turn()
        await log.decide(create_topic, name)

    log.subscribe(busy)
    try:
        await asyncio.gather(*(create_after(at, name) for at, name in enumerate("tuv")))
    finally:
        slices.SLICE_SECONDS = whole
    assert told == [["t"], ["u", "v"]]


def create_topic(image: MetadataImage, name: str) -> Decision[str]:
    return Decision([TopicCreated(name, bytes(16), ())], name)


def delete_topic(image: MetadataImage, name: str) -> Decision[str]:
    return Decision([TopicDeleted(name)], name)


@on_a_loop
async def test_a_client_that_goes_away_does_not_take_back_its_decision(
    log: MetadataLog, store: Any
) -> None:
    asked = asyncio.ensure_future(log.decide(set_to, "a"))
    await turn()
    asked.cancel()
    assert await log.decide(set_to, "b") == "a"


@on_a_loop
async def test_the_error_of_a_decision_whose_client_is_gone_is_no_fault_of_the_loop(
    log: MetadataLog, store: Any
) -> None:
    loop, faults = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda loop, context: faults.append(context))
    store.failure = StorageFailed("no space")
    asked = asyncio.ensure_future(log.decide(set_to, "a"))
    later = loop.create_future()
    loop.call_soon(later.set_result, None)
    await later
    asked.cancel()
    await log.settle()
    # The failure's traceback and the task keep the waiting future alive. The loop reports a fault
    # only when such a future is collected.
    store.failure = None
    del asked
    gc.collect()
    assert faults == []


@on_a_loop
async def test_nothing_is_written_for_a_broker_that_came_back_where_it_was(
    log: MetadataLog, store: Any
) -> None:
    await log.register_broker(0, [("PLAINTEXT", "h", 1)])
    await log.register_broker(0, [("PLAINTEXT", "h", 1)])
    assert len(store.groups) == 1
    await log.register_broker(0, [("PLAINTEXT", "h", 2)])
    assert len(store.groups) == 2
    assert log.image.brokers[0].endpoints[0].port == 2
    await log.register_broker(0, [("PLAINTEXT", "h", 2)], "r")
    assert log.image.brokers[0].rack == "r"


@on_a_loop
async def test_a_record_that_cannot_be_applied_fails_its_own_decision_only(
    log: MetadataLog, store: Any
) -> None:
    def impossible(image: MetadataImage) -> Decision[None]:
        return Decision([ConfigSet("group", "g", "s", "x"), ProducerIdsTaken(-1)], None)

    failed, first = await asyncio.wait_for(
        asyncio.gather(log.decide(impossible), log.decide(set_to, "a"), return_exceptions=True), 10
    )
    assert isinstance(failed, ValueError) and first == ""
    assert log.image.config_of("group", "g") == {"s": "a"}


@on_a_loop
async def test_blocks_of_producer_ids_do_not_overlap(log: MetadataLog, store: Any) -> None:
    blocks = await asyncio.gather(*(log.decide(take_producer_ids) for _ in range(5)))
    assert sorted(n for block in blocks for n in block) == list(range(5000))
