"""A failed question about offsets or a topic is an error, or is asked again. It does not count as
the answer that there are none."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.spark_interop import offsets, topics
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import NoBroker, PipelineError
from ottla.spark_interop.pipelines import mirror
from ottla.testing import Broker

CLUSTER = Cluster("nowhere:9092")


def test_a_position_that_is_refused_is_an_error() -> None:
    with Broker() as broker:
        topic = broker.create_topic("refused")
        broker.fail("OffsetFetch", "TOPIC_AUTHORIZATION_FAILED", count=None)
        with pytest.raises(PipelineError, match=r"^group team.*[Aa]uthorization"):
            offsets.group_offsets(broker.bootstrap_servers, "team", topic)


def test_a_topic_that_cannot_be_described_is_not_one_without_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = SimpleNamespace(
        error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), partitions={}
    )
    admin = SimpleNamespace(list_topics=lambda **_: SimpleNamespace(topics={"t": topic}))
    monkeypatch.setattr(Cluster, "admin", lambda _: admin)
    with pytest.raises(PipelineError, match="topic t at nowhere:9092: "):
        CLUSTER.partitions("t")


@pytest.mark.parametrize("ask", [
    lambda at: topics.stream_topic(None, at, "t"),      # type: ignore[arg-type]
    lambda at: offsets.group_offsets(at, "g", "t"),
    lambda at: mirror.mirror_lag(at, at, "t"),
])  # fmt: skip
def test_a_broker_that_is_not_there_is_one_sentence_without_a_wait(
    ask: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for client in ("admin", "client"):
        monkeypatch.setattr(Cluster, client, lambda *_, **__: pytest.fail("librdkafka would wait"))
    for address in ("127.0.0.1:1", "PLAINTEXT://127.0.0.1:1"):
        with pytest.raises(NoBroker, match=rf"^no broker answers at {address} \({address}: conn"):
            ask(address)


@pytest.mark.parametrize("code", [
    "NOT_LEADER_OR_FOLLOWER", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE",
])
def test_offsets_are_asked_for_again_while_a_leader_is_elected(code: str) -> None:
    with Broker() as broker:
        topic = broker.create_topic("elected")
        fault = broker.fail("ListOffsets", code)
        assert Cluster(broker.bootstrap_servers).ends(topic) == {0: 0}
        assert fault.hits == 1
        broker.fail("ListOffsets", "TOPIC_AUTHORIZATION_FAILED", count=None)
        with pytest.raises(PipelineError, match=r"topic elected at .*: TOPIC_AUTHORIZATION_FAILED"):
            Cluster(broker.bootstrap_servers).ends(topic)


@pytest.mark.parametrize("name", [
    "_DESTROY_BROKER", "_TRANSPORT", "NOT_CONTROLLER", "COORDINATOR_NOT_AVAILABLE",
])  # fmt: skip
def test_a_question_is_asked_again_when_its_broker_leaves_the_cluster(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [KafkaError(getattr(KafkaError, name))]

    def ask(_: object) -> str:
        if errors:
            raise KafkaException(errors.pop())
        return "answer"

    monkeypatch.setattr(Cluster, "admin", lambda _: None)
    monkeypatch.setattr(Cluster, "reach", lambda _: None)
    monkeypatch.setattr("ottla.spark_interop.cluster.time.sleep", lambda _: None)
    assert CLUSTER.asked(ask) == "answer" and not errors


@pytest.mark.parametrize(("api", "ask"), [
    ("Metadata", lambda cluster, topic: cluster.partitions(topic)),
    ("DescribeConfigs", lambda cluster, topic: cluster.settings(topic)),
    ("CreateTopics", lambda cluster, topic: cluster.create(f"{topic}-new", 1)),
    ("OffsetFetch", lambda cluster, topic: offsets.group_offsets(cluster, "g", topic) == {}),
])  # fmt: skip
def test_a_question_that_lost_its_connection_is_asked_again(
    api: str, ask: Callable[[Cluster, str], object]
) -> None:
    with Broker() as broker:
        topic = broker.create_topic("asked")
        fault = broker.drop(api, count=8)
        assert ask(Cluster(broker.bootstrap_servers), topic)
        assert fault.hits == 8          # more often than librdkafka asks by itself


def test_a_topic_is_created_once_a_broker_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"t": SimpleNamespace(error=None, partitions={0: None, 1: None})}
    listings = [{}, known]
    done = SimpleNamespace(result=lambda: None)
    admin = SimpleNamespace(
        create_topics=lambda *_, **__: {"t": done},
        list_topics=lambda **_: SimpleNamespace(topics=listings.pop(0)),
    )
    monkeypatch.setattr(Cluster, "admin", lambda _: admin)
    monkeypatch.setattr(Cluster, "topic_ids", lambda *_: {"t": None})
    monkeypatch.setattr("ottla.spark_interop.cluster.time.sleep", lambda _: None)
    assert CLUSTER.create("t", 2)
    assert not listings


@pytest.mark.parametrize("text", [
    '{"events": {"0": 7, "1": 0}}', "{'events': {'0': 7, '1': 0}}",
    {"events": {"0": 7, "1": 0}},
])  # fmt: skip
def test_the_offsets_of_a_progress_report_are_read_from_each_pyspark(text: object) -> None:
    assert offsets.offsets_of(text) == {"events": {"0": 7, "1": 0}}


@pytest.mark.parametrize("text", [None, "null", "None", ""])
def test_a_source_without_offsets_has_none(text: object) -> None:
    assert offsets.offsets_of(text) == text


def test_the_metrics_of_an_idle_query_are_of_its_last_batch() -> None:
    """Spark's report of a trigger that found nothing has the number of the next batch."""
    ended = {"t": {"0": 9}}
    source = SimpleNamespace(description="KafkaV2[Subscribe[t]]", endOffset=ended,
                             latestOffset=ended)  # fmt: skip

    def report(number: int, rows: int, ran: bool, ms: int) -> SimpleNamespace:
        return SimpleNamespace(
            batchId=number, numInputRows=rows, durationMs={"addBatch": ms} if ran else {},
            batchDuration=ms, inputRowsPerSecond=rows, processedRowsPerSecond=rows,
            sources=[source],
        )  # fmt: skip

    def metrics(*reports: SimpleNamespace) -> str:
        last = reports[-1] if reports else None
        query: Any = SimpleNamespace(name="q", recentProgress=[*reports], lastProgress=last)
        return offsets.lag_metrics(query)

    ran, idle = report(4, 7, True, 2000), report(5, 0, False, 3)
    for reports in ((ran,), (ran, idle), (idle, ran, idle, idle)):
        told = metrics(*reports)
        assert 'batch_id{query="q"} 4\n' in told and 'batch_duration_seconds{query="q"} 2\n' in told
    told = metrics(idle)        # a query that was started again
    assert 'batch_id{query="q"} 4\n' in told and "batch_duration_seconds{" not in told
    assert 'end_offset{query="q",topic="t",partition="0"} 9\n' in told
    assert metrics(report(0, 0, False, 3)) == metrics() == ""
