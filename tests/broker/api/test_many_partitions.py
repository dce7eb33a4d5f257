"""Requests about many partitions get everything in the end, and no other client waits long."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.start.log_directories import open_segments_max
from ottla.log.files.clock import Clock
from ottla.wire.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
)
from tests.broker.produce_fetch import batch, fetch_request, values
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create

COUNT = 200


class HastyClock(Clock):
    """A second passes with every reading of the clock, so every time limit is reached at once."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1
        return self.seconds


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that keeps few files open, with a record in each of many partitions of `wide`."""
    data = tmp_path_factory.mktemp("data")
    with RunningBroker(data, ottla_open_segments_max="10") as running:
        with WireClient(running.address) as client:
            create(client, "wide", COUNT)
            produce_to_all(client)
        yield running


def create_at_once(client: WireClient, partitions: dict[str, int]) -> None:
    made = CreateTopicsRequest.Topic
    topics = [
        made(name=name, num_partitions=count, replication_factor=1)
        for name, count in partitions.items()
    ]
    answer = client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
    assert {topic.error_code for topic in answer.topics} == {0}


def produce_to_all(client: WireClient) -> None:
    made = ProduceRequest.TopicData
    data = [made.PartitionData(index=n, records=batch(b"%d" % n)) for n in range(COUNT)]
    topic_data = [made(name="wide", partition_data=data)]
    answer = client.call(ProduceRequest(acks=1, timeout_ms=9000, topic_data=topic_data), 9)
    assert {each.error_code for each in answer.responses[0].partition_responses} == {0}


def fetch_all(client: WireClient, session_id: int, epoch: int) -> tuple[int, dict[int, bytes]]:
    """Fetch in a session: all partitions at first (epoch 0), later without naming any. Returns the
    session id, and the first value of each partition that had records in the answer."""
    request = fetch_request("wide", session_id=session_id, session_epoch=epoch)
    made = FetchRequest.Topic.Partition
    request.topics[0].partitions = [
        made(partition=n, fetch_offset=0, partition_max_bytes=1000) for n in range(COUNT)
    ]
    if epoch:
        request.topics = []
    answer = client.call(request, 11)
    found = {
        each.partition_index: values(each)
        for topic in answer.responses
        for each in topic.partitions
    }
    return answer.session_id, {n: got[0] for n, got in found.items() if got and got[0]}


def test_a_fetch_of_many_partitions_goes_on_with_the_next(broker: RunningBroker) -> None:
    context = broker.server.broker
    patient, context.clock = context.clock, HastyClock()
    try:
        with WireClient(broker.address) as client:
            found: dict[int, bytes] = {}
            session_id = rounds = 0
            while len(found) < COUNT:
                session_id, more = fetch_all(client, session_id, rounds)
                assert 0 < len(more) < COUNT
                found |= more
                rounds += 1
                assert rounds <= COUNT
    finally:
        context.clock = patient
    assert found == {n: b"%d" % n for n in range(COUNT)}


def test_in_time_it_is_answered_whole(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        context = broker.server.broker
        patient, context.clock = context.clock, StandingClock()
        try:
            assert len(fetch_all(client, 0, 0)[1]) == COUNT
        finally:
            context.clock = patient


class StandingClock(Clock):
    """A clock on which no time passes."""

    def monotonic(self) -> float:
        return 1.0


def test_few_files_are_open_for_many_partitions(broker: RunningBroker) -> None:
    assert len(broker.server.storage.open_files) <= 10


def test_many_topics_come_and_go_with_a_request_each(broker: RunningBroker) -> None:
    names = {f"many-{n}": 3 for n in range(300)}
    with WireClient(broker.address) as client:
        create_at_once(client, names)
        answer = client.call(MetadataRequest(topics=None), 9)
        assert names.keys() <= {topic.name for topic in answer.topics}
        storage = broker.server.storage
        assert all((name, 2) in storage.logs for name in names)
        deleted = client.call(DeleteTopicsRequest(topic_names=list(names), timeout_ms=9000), 5)
        assert {each.error_code for each in deleted.responses} == {0}
        assert not any((name, 2) in storage.logs for name in names)
        assert len(client.call(MetadataRequest(topics=None), 9).topics) == 1


def test_open_segments_stay_within_ulimit_which_is_said_if_they_were_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1000, 1000))
    assert open_segments_max(300, 300) == 250 and not caplog.text
    assert open_segments_max(200, 300) == 200 and not caplog.text
    assert open_segments_max(301, 300) == 250 and "is reduced to 250" in caplog.text
    monkeypatch.setattr(resource, "getrlimit", lambda which: (20, 20))
    assert open_segments_max(300, 300) == 10


def test_a_restart_finds_every_record(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as first, WireClient(first.address) as client:
        create(client, "wide", COUNT)
        produce_to_all(client)
    with RunningBroker(tmp_path) as second, WireClient(second.address) as client:
        assert len(second.server.storage.open_files) <= 1, "the metadata log alone"
        found: dict[int, bytes] = {}
        session_id = rounds = 0
        while len(found) < COUNT:
            session_id, more = fetch_all(client, session_id, rounds)
            found |= more
            rounds += 1
            assert rounds <= COUNT
        assert found == {n: b"%d" % n for n in range(COUNT)}
