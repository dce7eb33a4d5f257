"""Transactions that end while the shard of their group is read from its log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from ottla.broker.coordination import log_coordinator
from ottla.broker.threads.slices import Slices
from ottla.groups.records import Producer
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import OffsetFetchRequest
from tests.broker.running import TIMEOUT_SECONDS, RunningBroker, WireClient
from tests.broker.topics import create
from tests.broker.transactions import add_offsets, commit_offset, end, find, init
from tests.waiting import until

GROUP, KEY = "g", "x"


def committed(client: WireClient, *topics: str) -> list[int]:
    """The committed offsets of partition 0 of each topic, once the group is loaded."""
    made = OffsetFetchRequest.Topic
    request = OffsetFetchRequest(
        group_id=GROUP, topics=[made(name=topic, partition_indexes=[0]) for topic in topics]
    )
    answer = until(
        lambda: (now := client.call(request, 5)).error_code == 0 and now, "the group is loaded")
    return [topic.partitions[0].committed_offset for topic in answer.topics]


def offset(client: WireClient, producer: Producer, topic: str, value: int) -> None:
    """Commit an offset in the producer's transaction."""
    assert add_offsets(client, KEY, producer, GROUP, 3) == ErrorCode.NONE
    assert commit_offset(client, KEY, producer, GROUP, topic, value, 2) == ErrorCode.NONE


@contextmanager
def loading_stands_after_one_batch(broker: RunningBroker) -> Iterator[None]:
    """Load the group again: its first batch at once, and the others when the block ends."""
    stands, goes_on = threading.Event(), asyncio.Event()

    class Held(Slices):
        async def pause(self) -> None:
            stands.set()
            await goes_on.wait()

    def read_again() -> None:
        groups = broker.server.coordinators.groups
        partition = groups.runtime.partition_of(GROUP)
        groups.runtime.unload(partition)
        groups.reload(partition)

    with (
        mock.patch.object(log_coordinator, "LOAD_BYTES", 1),
        mock.patch.object(log_coordinator, "Slices", Held),
    ):
        broker.call(read_again)
        assert stands.wait(TIMEOUT_SECONDS)
        yield
        broker.call(goes_on.set)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_a_transaction_that_ends_while_its_group_is_loaded_ends_no_earlier_one(
    data: Path, commits: bool
) -> None:
    """The earlier transaction has the other outcome, and its marker has not been read yet."""
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        create(client, "a")
        create(client, "b")
        find(client, GROUP, 0)
        find(client, KEY)
        producer = init(client, KEY, 3)
        offset(client, producer, "a", 50)
        assert end(client, KEY, producer, not commits, 3) == producer
        offset(client, producer, "b", 7)
        with loading_stands_after_one_batch(broker):
            assert end(client, KEY, producer, commits, 3) == producer
        assert committed(client, "a", "b") == ([-1, 7] if commits else [50, -1])
