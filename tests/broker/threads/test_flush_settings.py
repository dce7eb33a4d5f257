"""flush.messages and flush.ms, in addition to the flush that acks=all waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.upkeep.due_flushes import DueFlushes
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.wire.messages import IncrementalAlterConfigsRequest
from tests.broker.held_workers import slow_flush
from tests.broker.produce_fetch import batch, code, fetch, produce, produce_request, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.fakes import FakeClock
from tests.log.faulty_disk import FaultyDisk
from tests.waiting import until

TOPIC = 2
SET = 0


def change(client: WireClient, topic: str, **settings: object) -> None:
    """Change a topic's settings, as kafka-configs does."""
    configs = [
        IncrementalAlterConfigsRequest.Resource.Config(
            name=name.replace("_", "."), config_operation=SET, value=str(value)
        )
        for name, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=TOPIC, resource_name=topic, configs=configs
    )
    answer = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


def log_of(broker: RunningBroker, topic: str) -> PartitionLog:
    partition = broker.server.replicas.partition(topic, 0)
    assert partition is not None
    return partition.log


def unflushed(broker: RunningBroker, topic: str) -> int:
    """The number of offsets that a power cut may remove."""
    log = log_of(broker, topic)
    return broker.call(lambda: log.log_end_offset - log.recovery_point)


def test_acks_1_waits_for_the_flush_that_flush_messages_asks_for() -> None:
    with RunningBroker(Path("/data"), FaultyDisk()) as broker, WireClient(broker.address) as client:
        create(client, "t")
        assert produce(client, "t", batch(b"a"), acks=1).error_code == 0
        assert unflushed(broker, "t") == 1, "acks=1 alone asks for no flush"
        change(client, "t", flush_messages=3)
        for value in (b"b", b"c", b"d", b"e", b"f"):
            assert produce(client, "t", batch(value), acks=1).error_code == 0
            assert unflushed(broker, "t") < 3
        assert values(fetch(client, "t")) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_a_batch_that_waits_for_flush_messages_is_neither_answered_nor_read_before() -> None:
    with RunningBroker(Path("/data"), FaultyDisk()) as broker, WireClient(broker.address) as client:
        create(client, "t")
        change(client, "t", flush_messages=2)
        with WireClient(broker.address) as other, slow_flush(broker):
            first = client.send(produce_request("t", batch(b"a"), acks=1), 9)
            second = client.send(produce_request("t", batch(b"b"), acks=1), 9)
            assert code(client.answer(first)) == 0
            log = log_of(broker, "t")
            until(lambda: broker.call(lambda: log.log_end_offset) >= 2, "the batch is in the log")
            assert values(fetch(other, "t")) == [b"a"]
        assert code(client.answer(second)) == 0
        assert values(fetch(client, "t")) == [b"a", b"b"]


def test_flush_messages_holds_without_ottlas_own_flush_and_for_acks_0() -> None:
    overrides = {"ottla_acks_all_flush": "false", "log_flush_interval_messages": 2}
    with (
        RunningBroker(Path("/data"), FaultyDisk(), **overrides) as broker,
        WireClient(broker.address) as client,
    ):
        create(client, "t")
        for acks in (-1, 0, -1, 0, -1, 0, 1):
            sent = client.send(produce_request("t", batch(b"v"), acks=acks), 9)
            if acks:
                assert code(client.answer(sent)) == 0
        assert unflushed(broker, "t") < 2
        assert len(values(fetch(client, "t"))) == 7


class OneLog:
    """Takes the place of the partitions and of the flusher that DueFlushes uses: one partition, and
    a list of the flushes that were requested."""

    def __init__(self, path: str, clock: FakeClock, **config: Any) -> None:
        self.clock = clock
        self.log = PartitionLog.open(Disk(), clock, path, LogConfig(**config))
        self.by_name = {"t": [self], "idle": [None], "none": []}
        self.wanted: list[object] = []
        self.want = self.wanted.append
        self.flushes = DueFlushes(self, self, clock, in_thread=lambda work: work())  # type: ignore

    def round(self) -> bool:
        """Run one round, and the flush that it requests; returns whether it requested a flush."""
        asyncio.run(self.flushes.flush_overdue())
        due, self.wanted[:] = bool(self.wanted), []
        if due:
            self.log.flush()
        return due


def test_flush_ms_flushes_what_has_waited_so_long_since_the_last_flush(tmp_path: Path) -> None:
    clock = FakeClock()
    one = OneLog(str(tmp_path / "t-0"), clock, flush_ms=5000)
    clock.advance(60_000)
    assert not one.round(), "there is nothing to flush"
    one.log.append_bytes(batch(b"a"), 0)
    assert one.round(), "the last flush is long ago"
    one.log.append_bytes(batch(b"b"), 0)
    clock.set_wall_clock(-3_600_000)
    clock.advance(4_999)
    assert not one.round()
    clock.advance(1)
    assert one.round()
    clock.advance(5_000)
    assert not one.round(), "nothing new"
    one.log.configure(LogConfig())
    one.log.append_bytes(batch(b"c"), 0)
    clock.advance(10**9)
    assert not one.round(), "without flush.ms nothing is flushed by time"


@pytest.mark.parametrize("how", ["roll", "close"])
def test_preallocated_room_is_given_back_when_the_segment_ends(tmp_path: Path, how: str) -> None:
    log = PartitionLog.open(
        Disk(), FakeClock(), str(tmp_path / "t-0"),
        LogConfig(segment_bytes=1 << 20, preallocate=True),
    )
    log.append_bytes(batch(b"a" * 10_000), 0)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    taken = path.stat()
    assert taken.st_size < 11_000, "a scan meets no zeros"
    if taken.st_blocks * 512 < 1 << 20:
        pytest.skip("this file system reserves nothing")
    getattr(log, how)()
    kept = path.stat()
    assert (kept.st_size, kept.st_blocks * 512 <= 16_384) == (taken.st_size, True)
