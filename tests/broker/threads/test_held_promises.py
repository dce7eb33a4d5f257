"""What acks=all, and acks=1 with flush.messages=1, promise when a flush is slow, when it fails, and
when a topic is deleted meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from pathlib import Path

import pytest

from ottla.testing.disk_room import RoomyDisk
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import ApiVersionsRequest, ProduceRequest
from tests.broker.held_workers import slow_flush
from tests.broker.produce_fetch import (
    batch,
    code,
    fetch,
    fetch_request,
    produce,
    produce_request,
    values,
)
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create, delete
from tests.log.faulty_disk import FaultyDisk
from tests.waiting import until

waits_for_flush = pytest.mark.parametrize(
    ("acks", "settings"), [(-1, {}), (1, {"log_flush_interval_messages": 1})], ids=["all", "1"])


def appended(broker: RunningBroker, topic: str) -> None:
    """Wait until a batch is in the topic's log."""
    partition = broker.server.replicas.partition(topic, 0)
    assert partition is not None
    until(lambda: broker.call(lambda: partition.log.log_end_offset), "the batch is in the log")


@waits_for_flush
def test_a_topic_deleted_before_its_flush_leaves_the_others_their_acknowledgements(
    data: Path, acks: int, settings: dict[str, int]
) -> None:
    with RunningBroker(data, RoomyDisk(), **settings) as broker, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(WireClient(broker.address)) for _ in range(4)]
        for topic in ("a", "b", "c"):
            create(clients[3], topic)
        with slow_flush(broker):
            sent = []
            for client, topic in zip(clients, ("a", "b", "c"), strict=False):
                sent.append(client.send(produce_request(topic, batch(b"v"), acks=acks), 9))
                appended(broker, topic)
            delete(clients[3], "b")
        codes = [
            code(client.answer(each)) for client, each in zip(clients, sent, strict=False)
        ]
        assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]
        # The flush includes the logs of the other topics.
        for topic in ("a", "c"):
            log = broker.server.replicas.by_name[topic][0].log
            assert log.recovery_point == log.log_end_offset == 1
            assert not broker.call(log.begin_flush)


@waits_for_flush
def test_a_failed_flush_refuses_everything_in_its_directory_and_keeps_the_connection(
    acks: int, settings: dict[str, int]
) -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/data"), disk, **settings) as broker, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(WireClient(broker.address)) for _ in range(3)]
        for topic in ("a", "b"):
            create(clients[0], topic)
        waiting = clients[2].send(fetch_request("b", max_wait_ms=20_000), 11)
        with slow_flush(broker):
            sent = []
            for client, topic in zip(clients, ("a", "b"), strict=False):
                sent.append(client.send(produce_request(topic, batch(b"v"), acks=acks), 9))
                appended(broker, topic)
            disk.errors["sync"] = errno.EIO
        storage_error = ErrorCode.KAFKA_STORAGE_ERROR
        for client, each in zip(clients, sent, strict=False):
            assert code(client.answer(each)) == storage_error
        # The batch that was not acknowledged was not readable either.
        assert clients[2].answer(waiting).responses[0].partitions[0].error_code == storage_error
        for client, topic in zip(clients, ("a", "b"), strict=False):
            assert produce(client, topic, batch(b"w")).error_code == storage_error
            assert produce(client, topic, batch(b"w"), acks=1).error_code == storage_error
            assert fetch(client, topic).error_code == storage_error
            assert client.call(ApiVersionsRequest(), 0).error_code == 0
        disk.errors.clear()


def test_a_full_disk_refuses_writes_and_serves_reads() -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/data"), disk) as broker, WireClient(broker.address) as client:
        create(client, "t")
        assert produce(client, "t", batch(b"a")).error_code == 0
        disk.free = 10
        for acks in (-1, 1):
            refused = produce(client, "t", batch(b"b"), acks=acks)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values(fetch(client, "t")) == [b"a"]
        disk.free = 1 << 30
        assert produce(client, "t", batch(b"c")).error_code == 0
        assert values(fetch(client, "t")) == [b"a", b"c"]


def test_a_read_error_is_told_of_the_partition_that_has_it() -> None:
    disk = FaultyDisk()
    with RunningBroker(Path("/data"), disk) as broker, WireClient(broker.address) as client:
        create(client, "t")
        assert produce(client, "t", batch(b"a")).error_code == 0
        disk.errors["read"] = errno.EIO
        assert fetch(client, "t").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.errors.clear()
        assert values(fetch(client, "t")) == [b"a"]


@waits_for_flush
def test_a_short_timeout_behind_a_long_one_is_kept(
    data: Path, acks: int, settings: dict[str, int]
) -> None:
    with (
        RunningBroker(data, RoomyDisk(), **settings) as broker,
        WireClient(broker.address) as client,
    ):
        create(client, "t")
        request = produce_request("t", batch(b"v"), acks=acks)
        request.timeout_ms = 1_000_000
        assert code(client.call(request, 9)) == 0
        request.timeout_ms = 50
        with slow_flush(broker):
            assert code(client.call(request, 9)) == ErrorCode.REQUEST_TIMED_OUT
        assert code(client.call(request, 9)) == 0


@waits_for_flush
def test_a_timeout_leaves_the_codes_that_are_known(
    data: Path, acks: int, settings: dict[str, int]
) -> None:
    with (
        RunningBroker(data, RoomyDisk(), **settings) as broker,
        WireClient(broker.address) as client,
        WireClient(broker.address) as admin,
    ):
        for topic in ("a", "b"):
            create(admin, topic)
        request = produce_request("a", batch(b"v"), acks=acks)
        request.topic_data.append(produce_request("b", batch(b"v"), acks=acks).topic_data[0])
        request.timeout_ms = 1_000
        with slow_flush(broker):
            sent = client.send(request, 9)
            appended(broker, "b")
            delete(admin, "a")
            answer = client.answer(sent)
        codes = [each.partition_responses[0].error_code for each in answer.responses]
        assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]


@waits_for_flush
def test_a_retry_of_what_is_not_flushed_yet_waits_for_the_same_flush(
    data: Path, acks: int, settings: dict[str, int]
) -> None:
    numbered = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    with (
        RunningBroker(data, RoomyDisk(), **settings) as broker,
        WireClient(broker.address) as first,
        WireClient(broker.address) as second,
    ):
        create(first, "t")
        with slow_flush(broker):
            first.send(produce_request("t", numbered, acks=acks), 9)
            appended(broker, "t")
            first.close()
            retry = produce_request("t", numbered, acks=acks)
            retry.timeout_ms = 50
            assert code(second.call(retry, 9)) == ErrorCode.REQUEST_TIMED_OUT
            assert values(fetch(second, "t")) == []
        answer: ProduceRequest = second.call(produce_request("t", numbered, acks=acks), 9)
        assert code(answer) == 0
        assert values(fetch(second, "t")) == [b"v"]
    with (
        RunningBroker(data, RoomyDisk(), **settings) as broker,
        WireClient(broker.address) as client,
    ):
        assert produce(client, "t", numbered, acks=acks).base_offset == 0
        assert values(fetch(client, "t")) == [b"v"]


def test_who_gives_up_waiting_for_a_flush_leaves_none_that_never_ends(data: Path) -> None:
    with RunningBroker(data, RoomyDisk()) as broker, WireClient(broker.address) as client:
        create(client, "t")
        partition = broker.server.replicas.partition("t", 0)
        assert partition is not None
        assert produce(client, "t", batch(b"a"), acks=1).error_code == 0

        async def give_up() -> None:
            loop = asyncio.get_running_loop()
            waiting = asyncio.ensure_future(broker.server.flusher.make_durable(partition))
            while not partition.log.flushing:
                turn = loop.create_future()
                loop.call_soon(turn.set_result, None)
                await turn
            waiting.cancel()

        with slow_flush(broker):
            broker.run(give_up())
        assert produce(client, "t", batch(b"b")).error_code == 0
        assert broker.call(lambda: partition.log.recovery_point) == 2
        broker.run(broker.server.flusher.make_durable(partition))
