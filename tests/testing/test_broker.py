"""`ottla.testing.Broker`: time, faults, kills and the end of the test run, seen by clients."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from ottla.client.connection import Connection
from ottla.client.errors import Refused, Unreachable
from ottla.testing import Broker, BrokerFailed
from ottla.testing.directories import make_directory, remove_leftovers
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DescribeGroupsRequest,
    ListGroupsRequest,
    ListOffsetsRequest,
    MetadataRequest,
)

DAY_MS = 24 * 3600 * 1000
WAIT_SECONDS = 20.0


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker({"log.retention.check.interval.ms": 60_000}) as broker:
        yield broker


@pytest.fixture
def broker(running: Broker) -> Iterator[Broker]:
    yield running
    running.heal()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    return broker.create_topic(request.node.name.replace("[", "-").replace("]", ""))


def connection(broker: Broker) -> Connection:
    return Connection((broker.host, broker.port))


def produce(broker: Broker, topic: str, *values: bytes, **options: object) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10, **options
    )
    try:
        for value in values:
            producer.send(topic, value).get(WAIT_SECONDS)
    finally:
        producer.close(0)


def read(broker: Broker, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT_SECONDS * 1000),
    )
    try:
        return [next(consumer).value for _ in range(count)]
    finally:
        consumer.close()


def start_offset(broker: Broker, topic: str) -> int:
    part = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-2)
    topics = [ListOffsetsRequest.Topic(name=topic, partitions=[part])]
    answer = broker.request(ListOffsetsRequest(replica_id=-1, topics=topics))
    return int(answer.topics[0].partitions[0].offset)


def test_stock_clients_find_it_through_the_proxy(broker: Broker, topic: str) -> None:
    produce(broker, topic, b"one", b"two")
    assert read(broker, topic, 2) == [b"one", b"two"]
    assert broker.get_bootstrap_server() == f"127.0.0.1:{broker.port}"


def test_records_older_than_retention_are_gone_after_the_clock_has_moved(broker: Broker) -> None:
    configs = {"retention.ms": DAY_MS, "segment.ms": 3_600_000}
    topic = broker.create_topic("short-lived", configs=configs)
    produce(broker, topic, b"old")
    before_ms = int(time.time() * 1000)
    assert broker.advance(hours=25) - before_ms >= 25 * 3_600_000
    assert start_offset(broker, topic) == 1


def test_a_member_that_does_not_heartbeat_for_hours_is_removed(broker: Broker, topic: str) -> None:
    produce(broker, topic, b"x")
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap_servers, group_id="sleepers",
        auto_offset_reset="earliest", consumer_timeout_ms=int(WAIT_SECONDS * 1000),
        heartbeat_interval_ms=30_000, session_timeout_ms=60_000, max_poll_interval_ms=70_000,
    )
    try:
        next(consumer)
        asked = DescribeGroupsRequest(groups=["sleepers"])
        assert len(broker.request(asked).groups[0].members) == 1
        broker.advance(hours=3)
        assert broker.request(asked).groups[0].members == []
    finally:
        consumer.close()


def test_the_next_n_requests_of_an_api_are_answered_with_an_error(
    broker: Broker, topic: str
) -> None:
    with broker.record() as recording, broker.fail(
        "Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, count=3
    ) as fault:
        produce(broker, topic, b"persistent")
        assert fault.hits == 3
    assert read(broker, topic, 1) == [b"persistent"]
    codes = [
        frame.message.responses[0].partition_responses[0].error_code
        for frame in recording.responses("Produce")
    ]
    assert codes == [6, 6, 6, 0]
    assert str(recording).count("NOT_LEADER_OR_FOLLOWER") == 3


def test_an_error_after_the_append_shows_duplicates_without_idempotence(
    broker: Broker, topic: str
) -> None:
    broker.fail("Produce", "REQUEST_TIMED_OUT", after=True)
    produce(broker, topic, b"twice", enable_idempotence=False)
    assert read(broker, topic, 2) == [b"twice", b"twice"]


def test_an_error_ends_up_with_a_client_that_does_not_try_again(broker: Broker, topic: str) -> None:
    with broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", count=None):
        with pytest.raises(KafkaError, match="TopicAuthorizationFailed"):
            produce(broker, topic, b"never")
    produce(broker, topic, b"later")
    assert read(broker, topic, 1) == [b"later"]


def test_reads_keep_what_clients_need_beside_the_error(broker: Broker, topic: str) -> None:
    with broker.fail("Metadata", "LEADER_NOT_AVAILABLE"), connection(broker) as client:
        first = client.call(MetadataRequest(topics=[MetadataRequest.Topic(name=topic)]), 12)
        assert first.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert first.brokers[0].port == broker.port
        second = client.call(MetadataRequest(topics=[MetadataRequest.Topic(name=topic)]), 12)
        assert second.topics[0].error_code == 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_dropped_connection_is_made_again_and_the_record_is_there_once(
    broker: Broker, topic: str, after: bool
) -> None:
    fault = broker.drop("Produce", count=2, after=after)
    produce(broker, topic, b"a", b"b")
    assert fault.hits == 2
    assert read(broker, topic, 2) == [b"a", b"b"]


def test_a_delayed_request_is_answered_later(broker: Broker) -> None:
    with connection(broker) as client:
        client.negotiate()
        broker.delay("ListGroups", 0.3)
        began = time.monotonic()
        client.call(ListGroupsRequest())
        assert time.monotonic() - began >= 0.3


def test_other_connections_are_not_held_up_by_a_delay(broker: Broker) -> None:
    with connection(broker) as slow, connection(broker) as quick:
        slow.negotiate()
        broker.delay("ListGroups", 3600)
        slow.send(ListGroupsRequest())
        quick.negotiate()
        assert not select.select([slow.socket], [], [], 0)[0]


def test_answers_stay_in_order_when_some_are_the_proxys_own(broker: Broker) -> None:
    with connection(broker) as client:
        client.negotiate()
        broker.fail("ListGroups", "COORDINATOR_NOT_AVAILABLE")
        asked = [
            client.send(MetadataRequest(topics=[]), 12), client.send(ListGroupsRequest(), 4),
            client.send(MetadataRequest(topics=[]), 12), client.send(ListGroupsRequest(), 4),
        ]
        answers = [client.answer(sent) for sent in asked]
        assert [answers[1].error_code, answers[3].error_code] == [15, 0]


def test_answers_stay_in_order_when_an_earlier_one_is_delayed(broker: Broker) -> None:
    with connection(broker) as client, connection(broker) as other:
        client.call(ListGroupsRequest(), 4)
        broker.delay("ListGroups", 0.3, after=True)
        broker.fail("ListGroups", "COORDINATOR_NOT_AVAILABLE")
        asked = [client.send(ListGroupsRequest(), 4)]
        other.negotiate()       # meanwhile the proxy gets the answer that it delays
        asked += [client.send(ListGroupsRequest(), 4) for _ in range(2)]
        assert [client.answer(sent).error_code for sent in asked] == [0, 15, 0]


def test_a_fault_may_be_for_one_client_only(broker: Broker) -> None:
    broker.drop("Metadata", client_id="unlucky", count=None)
    with Connection((broker.host, broker.port), client_id="lucky") as lucky:
        lucky.call(MetadataRequest(topics=[]), 12)
    with Connection((broker.host, broker.port), client_id="unlucky") as unlucky:
        with pytest.raises(Unreachable):
            unlucky.call(MetadataRequest(topics=[]), 12)


def test_what_was_acknowledged_is_there_after_kill_9_on_the_same_port(
    broker: Broker, topic: str
) -> None:
    produce(broker, topic, b"kept")
    port, pid = broker.port, broker.pid
    broker.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, port))
    with pytest.raises(BrokerFailed, match="not running"):
        broker.advance(hours=1)
    broker.start()
    assert (broker.port, broker.pid != pid) == (port, True)
    assert read(broker, topic, 1) == [b"kept"]


def test_time_that_passed_stays_over_a_restart(broker: Broker) -> None:
    before = broker.advance(hours=5)
    broker.restart()
    assert broker.advance(ms=0) >= before


def test_a_full_disk_refuses_writes_and_serves_reads(broker: Broker, topic: str) -> None:
    produce(broker, topic, b"before")
    with broker.full_disk():
        with pytest.raises(KafkaError):
            produce(broker, topic, b"x" * 1000, retries=0, enable_idempotence=False)
        assert read(broker, topic, 1) == [b"before"]
    produce(broker, topic, b"after")
    assert read(broker, topic, 2) == [b"before", b"after"]


def test_a_full_disk_is_full_after_a_restart_too(broker: Broker, topic: str) -> None:
    with broker.full_disk():
        broker.kill()
        broker.start()
        with pytest.raises(KafkaError):
            produce(broker, topic, b"x", retries=0)
    broker.restart()
    produce(broker, topic, b"y")


def test_a_paused_broker_answers_when_it_goes_on(broker: Broker) -> None:
    with connection(broker) as client:
        client.negotiate()
        broker.pause()
        sent = client.send(MetadataRequest(topics=[]), 12)
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        client.socket.settimeout(WAIT_SECONDS)
        broker.resume()
        assert client.answer(sent).brokers[0].port == broker.port


def test_a_late_answer_to_a_command_is_not_taken_for_that_of_the_next(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = broker.advance(ms=0)
    broker.pause()
    with monkeypatch.context() as patched:
        patched.setattr("ottla.testing.children.COMMAND_SECONDS", 0.05)
        for late in (broker.free_disk, lambda: broker.advance(hours=9)):
            with pytest.raises(BrokerFailed, match="did not answer within"):
                late()
    broker.resume()
    assert broker.advance(ms=0) >= began + 9 * 3_600_000
    broker.restart()
    assert broker.advance(ms=0) >= began + 9 * 3_600_000, "the clock does not go back"


def test_a_broker_that_is_dead_does_not_advance_its_clock(broker: Broker) -> None:
    began = broker.advance(ms=0)
    os.kill(broker.pid, signal.SIGKILL)
    with pytest.raises(BrokerFailed, match=r"is not running|ended with status"):
        broker.advance(hours=9)
    broker.start()
    assert began <= broker.advance(ms=0) < began + 9 * 3_600_000


def test_bytes_that_are_no_kafka_reach_the_broker_too(broker: Broker) -> None:
    with socket.create_connection((broker.host, broker.port)) as foreign:
        foreign.settimeout(WAIT_SECONDS)
        foreign.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert foreign.recv(100) == b""


def test_disconnect_ends_all_connections(broker: Broker) -> None:
    with connection(broker) as client:
        client.negotiate()
        assert broker.disconnect() >= 1
        assert client.is_closed()


def test_nonsense_is_refused_with_a_hint(broker: Broker) -> None:
    with pytest.raises(ValueError, match="did you mean Produce"):
        broker.fail("Prduce", 6)
    with pytest.raises(ValueError, match="clock cannot go back"):
        broker.advance(hours=-1)
    with pytest.raises(Refused, match="invalid/name"):
        broker.create_topic("invalid/name")
    broker.create_topic("orders")
    for name, told in (("order", "topic 'order' not found; similar: orders"),
                       ("xyz", "topic 'xyz' not found")):
        with pytest.raises(Refused, match=f"^{told}$") as unknown:
            broker.delete_topic(name)
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for call in (broker.create_topic, broker.delete_topic):
        with pytest.raises(TypeError, match="name=3: expected a topic's name"):
            call(3)     # type: ignore[operator]
    with pytest.raises(ValueError, match=f"partitions={1 << 31}: the highest value is"):
        broker.create_topic("many", 1 << 31)
    with pytest.raises(BrokerFailed, match=r"num\.partitions: 'many' is not allowed") as failed:
        Broker({"num.partitions": "many"}).__enter__()
    assert "Traceback" not in str(failed.value)
    with pytest.raises(BrokerFailed, match="with Broker"):
        _ = Broker().bootstrap_servers


def test_a_broker_that_was_closed_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker() as broker:
        directory, pid, port = broker.directory, broker.pid, broker.port
        assert (directory / "data").is_dir()
    with pytest.raises(BrokerFailed, match="the broker has been closed"):
        _ = broker.bootstrap_servers
    assert not directory.exists() and broker.log == ""
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, port))
    with Broker(directory=tmp_path / "kept") as broker:
        broker.create_topic("kept")
    with Broker(directory=tmp_path / "kept") as broker:
        assert [t.name for t in broker.request(MetadataRequest(topics=None)).topics] == ["kept"]
    monkeypatch.chdir(tmp_path)
    with Broker(directory="kept") as broker:
        monkeypatch.chdir("/")
        broker.kill()
        broker.start()
        assert [t.name for t in broker.request(MetadataRequest(topics=None)).topics] == ["kept"]


RUNNER = """
import os, sys
from ottla.testing import Broker
broker = Broker().start()
pid = broker.pid
{then}
print(pid, broker._proxy.process.pid, broker.directory, flush=True)
sys.stdin.read()
"""


THEN = {
    "running": "",
    "killed": "broker.kill()",
    "paused": "broker.pause()",
    "forked": "if os.fork() == 0: sys.stdin.read(); os._exit(0)",
}


@pytest.mark.parametrize("state", THEN)
def test_broker_and_data_are_gone_when_the_test_run_is_killed(state: str) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER.format(then=THEN[state])],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    assert runner.stdout is not None and runner.stdin is not None
    broker_pid, proxy_pid, directory = runner.stdout.readline().split()
    pidfds = []
    for pid in (int(broker_pid), int(proxy_pid)):
        try:
            pidfds.append(os.pidfd_open(pid))
        except ProcessLookupError:
            assert state == "killed"
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], WAIT_SECONDS)[0], "a process has outlived its tests"
        os.close(pidfd)
    assert not Path(directory).exists()
    runner.stdin.close()
    runner.stdout.close()


def test_what_a_killed_run_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left, fd = make_directory(tmp_path)
    (left / "data").mkdir()
    os.utime(left, (0, 0))
    remove_leftovers(tmp_path)
    assert left.exists(), "it is still held"
    os.close(fd)
    remove_leftovers(tmp_path)
    assert not left.exists()


def test_its_log_has_the_times_of_every_brokers_log(broker: Broker) -> None:
    at = broker.log.split(maxsplit=1)[0]
    assert datetime.fromisoformat(at).utcoffset() is not None, at
