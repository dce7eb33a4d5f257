"""A running broker finds damage in old segments, reports it, and serves what precedes it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.upkeep.scrubber import EVERYWHERE, DoubtedSegments
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateTopicsRequest, DescribeLogDirsRequest
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import RunningBroker, WireClient

FAST = 1 << 40
DEADLINE_SECONDS = 20


def start_scrub(broker: RunningBroker) -> asyncio.Task[None]:
    """Begin the scrub now instead of half a minute after the broker's start."""

    async def started() -> asyncio.Task[None]:
        return asyncio.create_task(broker.server.scrubber.scrub_for_ever(0))

    task: asyncio.Task[None] = broker.run(started())
    return task


def test_damage_in_a_running_broker_is_told_and_never_served(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = CreateTopicsRequest.Topic(name="t", num_partitions=2, replication_factor=1)
    settings = {"ottla_log_scrub_bytes_per_second": FAST}
    with RunningBroker(data, **settings) as broker, WireClient(broker.address) as client:
        client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        sizes = []
        partition = broker.server.replicas.partition("t", 0)
        assert partition is not None
        segment = data / "t-0" / f"{0:020d}.log"
        for value in (b"first" * 50, b"second" * 50, b"third" * 50):
            assert produce(client, "t", batch(value)).error_code == 0
            sizes.append(segment.stat().st_size)
        broker.call(partition.log.roll)
        assert produce(client, "t", batch(b"fourth")).error_code == 0
        broker.call(partition.log.flush)
        bytes_now = bytearray(segment.read_bytes())
        bytes_now[sizes[0] + 100] ^= 1
        segment.write_bytes(bytes_now)
        with caplog.at_level(logging.ERROR, "ottla.scrub"):
            task = start_scrub(broker)
            deadline = time.monotonic() + DEADLINE_SECONDS
            while broker.call(lambda: partition.log.damage) is None:
                assert time.monotonic() < deadline
        assert f"is damaged at byte {sizes[0]}" in caplog.text
        assert values(fetch(client, "t")) == [b"first" * 50]
        for offset in (1, 3, 4):
            assert fetch(client, "t", offset).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        refused = produce(client, "t", batch(b"more"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(client, "t", batch(b"more"), partition=1).error_code == 0
        described = client.call(DescribeLogDirsRequest(topics=None), 4)
        lags = {
            each.partition_index: each.offset_lag
            for found in described.results[0].topics if found.name == "t"
            for each in found.partitions
        }  # fmt: skip
        assert lags == {0: 3, 1: 0}
        assert not task.done()
        broker.call(task.cancel)
    with RunningBroker(data, **settings) as broker, WireClient(broker.address) as client:
        assert values(fetch(client, "t")) == [b"first" * 50]
        refused = produce(client, "t", batch(b"more"))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_rate_of_nothing_means_no_scrub(data: Path) -> None:
    def tasks(broker: RunningBroker) -> int:
        assert broker.server.housekeeping is not None
        return len(broker.server.housekeeping.tasks)

    with RunningBroker(data) as broker:
        with_it = tasks(broker)
    with RunningBroker(data, ottla_log_scrub_bytes_per_second=0) as broker:
        assert tasks(broker) == with_it - 1


def test_a_whole_log_is_checked_however_soon_after_the_boot_it_is_doubted() -> None:
    class JustBooted:
        def time(self) -> float:
            return 1.0

        def create_task(self, check: Coroutine[Any, Any, None]) -> None:
            check.close()

    unused: Any = None
    loop: Any = JustBooted()
    partition: Any = object()
    doubted = DoubtedSegments(unused, loop)
    doubted.want(partition, EVERYWHERE)
    assert doubted.wanted == {partition: EVERYWHERE}
