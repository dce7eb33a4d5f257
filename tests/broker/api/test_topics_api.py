"""CreateTopics, DeleteTopics, CreatePartitions and InitProducerId in every version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    MetadataRequest,
)
from tests.broker.produce_fetch import batch, fetch, produce
from tests.broker.running import NODE_ID, RunningBroker, WireClient

NO_ID = bytes(16)
Topic = CreateTopicsRequest.Topic


def create(
    client: WireClient, *topics: Topic, version: int = 7, **fields: Any
) -> list[CreateTopicsResponse.Topic]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, **fields)
    return client.call(request, version).topics


def delete(client: WireClient, *names: str, version: int = 5) -> list[tuple[str, int]]:
    request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000)
    return [(r.name, r.error_code) for r in client.call(request, version).responses]


def partitions_of(client: WireClient, name: str) -> int | None:
    """How many partitions a topic has; None if the topic does not exist."""
    request = MetadataRequest(
        topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False
    )
    [answer] = client.call(request, 12).topics
    return len(answer.partitions) if answer.error_code == 0 else None


@pytest.mark.parametrize("version", APIS[ApiKey.CREATE_TOPICS].versions)
def test_every_version_creates_a_topic(client: WireClient, version: int) -> None:
    name = f"created-in-{version}"
    configs = [Topic.Config(name="retention.ms", value="5000")]
    [answer] = create(
        client,
        Topic(name=name, num_partitions=3, replication_factor=1, configs=configs),
        version=version,
    )
    assert (answer.name, answer.error_code) == (name, 0)
    assert partitions_of(client, name) == 3
    if version >= 5:
        assert (answer.num_partitions, answer.replication_factor) == (3, 1)
        told = {c.name: (c.value, c.config_source) for c in answer.configs or ()}
        assert told["retention.ms"] == ("5000", 1)
        assert told["max.message.bytes"] == ("1048588", 5)
        assert told["cleanup.policy"] == ("delete", 5)
    if version >= 7:
        assert answer.topic_id != NO_ID


def test_a_new_topic_can_be_used_at_once(client: WireClient) -> None:
    create(client, Topic(name="at-once", num_partitions=1, replication_factor=1))
    assert produce(client, "at-once", batch(b"x")).base_offset == 0


def test_the_brokers_defaults_are_taken_for_minus_one(client: WireClient) -> None:
    [answer] = create(client, Topic(name="by-default", num_partitions=-1, replication_factor=-1))
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 1, 1)


def told_retention(client: WireClient, name: str) -> str | None:
    request = CreateTopicsRequest(
        topics=[Topic(name=name, num_partitions=1, replication_factor=1)], timeout_ms=10_000
    )
    (answer,) = client.call(request, 5).topics
    return {c.name: c.value for c in answer.configs or ()}["retention.ms"]


def test_a_new_topic_is_told_the_brokers_settings_of_now(client: WireClient) -> None:
    before = told_retention(client, "told-before")
    made = IncrementalAlterConfigsRequest.Resource
    for value, operation in (("4711", 0), (None, 1)):
        change = made.Config(name="log.retention.ms", config_operation=operation, value=value)
        request = IncrementalAlterConfigsRequest(
            resources=[made(resource_type=4, resource_name="", configs=[change])]
        )
        assert client.call(request, 1).responses[0].error_code == 0
        assert told_retention(client, f"told-{value}") == (value or before)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (Topic(name="a/b", num_partitions=1, replication_factor=1), 17),
        (Topic(name="", num_partitions=1, replication_factor=1), 17),
        (Topic(name="x", num_partitions=0, replication_factor=1), 37),
        (Topic(name="x", num_partitions=1, replication_factor=3), 38),
        (Topic(name="x", num_partitions=10_001, replication_factor=1), 44),
        (Topic(name="__cluster_metadata", num_partitions=1, replication_factor=1), 42),
        (
            Topic(
                name="x", num_partitions=1, replication_factor=1,
                configs=[Topic.Config(name="retention.ms", value="soon")],
            ),
            40,
        ),
        (
            Topic(
                name="x", num_partitions=1, replication_factor=1,
                configs=[Topic.Config(name="no.such.setting", value="1")],
            ),
            40,
        ),
        (
            Topic(
                name="x", num_partitions=-1, replication_factor=-1,
                assignments=[Topic.Assignment(partition_index=0, broker_ids=[9])],
            ),
            39,
        ),
    ],
)
def test_what_cannot_be_created_is_told_with_a_reason(
    client: WireClient, topic: Topic, code: int
) -> None:
    [answer] = create(client, topic)
    assert answer.error_code == code
    assert answer.error_message
    assert (answer.num_partitions, answer.topic_id) == (-1, NO_ID)
    assert partitions_of(client, topic.name) is None


def test_a_topic_is_created_once_and_not_beside_its_lookalike(client: WireClient) -> None:
    one = Topic(name="look.alike", num_partitions=1, replication_factor=1)
    other = Topic(name="look_alike", num_partitions=1, replication_factor=1)
    assert [create(client, each)[0].error_code for each in (one, one, other)] == [0, 36, 17]


def test_creation_can_be_tried(client: WireClient) -> None:
    topic = Topic(name="only-tried", num_partitions=4, replication_factor=1)
    [answer] = create(client, topic, validate_only=True)
    assert (answer.error_code, answer.num_partitions) == (0, 4)
    assert partitions_of(client, "only-tried") is None


@pytest.mark.parametrize("version", APIS[ApiKey.DELETE_TOPICS].versions)
def test_every_version_deletes_a_topic(client: WireClient, topic: str, version: int) -> None:
    if version < 6:
        assert delete(client, topic, version=version) == [(topic, 0)]
    else:
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name=topic)])
        assert [r.error_code for r in client.call(request, version).responses] == [0]
    assert partitions_of(client, topic) is None
    assert fetch(client, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_is_deleted_by_its_id(client: WireClient) -> None:
    [made] = create(client, Topic(name="by-id", num_partitions=1, replication_factor=1))
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicsRequest.Topic(name=None, topic_id=made.topic_id),
            DeleteTopicsRequest.Topic(name=None, topic_id=b"\1" * 16),
        ]
    )
    responses = client.call(request, 6).responses
    assert [(r.name, r.topic_id, r.error_code) for r in responses] == [
        ("by-id", made.topic_id, 0),
        (None, b"\1" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_a_deleted_topic_comes_back_empty_under_another_id(client: WireClient) -> None:
    [first] = create(client, Topic(name="again", num_partitions=1, replication_factor=1))
    produce(client, "again", batch(b"old"))
    assert delete(client, "again", "nobody") == [("again", 0), ("nobody", 3)]
    [second] = create(client, Topic(name="again", num_partitions=1, replication_factor=1))
    assert second.topic_id != first.topic_id
    answer = fetch(client, "again")
    assert (answer.error_code, answer.high_watermark) == (0, 0)


@pytest.fixture(scope="module")
def keeping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker on which topics cannot be deleted."""
    with RunningBroker(tmp_path_factory.mktemp("kept"), delete_topic_enable="false") as running:
        yield running


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_may_be_disabled(keeping: RunningBroker, version: int, code: int) -> None:
    with WireClient(keeping.address) as client:
        create(client, Topic(name="stays", num_partitions=1, replication_factor=1))
        assert delete(client, "stays", version=version) == [("stays", code)]
        assert partitions_of(client, "stays") == 1


def widen(client: WireClient, version: int = 3, **fields: Any) -> tuple[int, str | None]:
    validate_only = fields.pop("validate_only", False)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsRequest.Topic(**{"assignments": None, **fields})],
        timeout_ms=10_000,
        validate_only=validate_only,
    )
    [result] = client.call(request, version).results
    return result.error_code, result.error_message


@pytest.mark.parametrize("version", APIS[ApiKey.CREATE_PARTITIONS].versions)
def test_every_version_adds_partitions(client: WireClient, topic: str, version: int) -> None:
    produce(client, topic, batch(b"kept"))
    assert widen(client, version, name=topic, count=5) == (0, None)
    assert partitions_of(client, topic) == 5
    assert produce(client, topic, batch(b"new"), partition=4).error_code == 0
    assert fetch(client, topic).high_watermark == 1


def test_adding_partitions_can_be_tried_or_refused(client: WireClient, topic: str) -> None:
    assert widen(client, name=topic, count=5, validate_only=True) == (0, None)
    assert widen(client, name=topic, count=2)[0] == ErrorCode.INVALID_PARTITIONS
    assert widen(client, name="nobody", count=2)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assignment = [CreatePartitionsRequest.Topic.Assignment(broker_ids=[NODE_ID])]
    wrong = widen(client, name=topic, count=4, assignments=assignment)
    assert wrong[0] == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert partitions_of(client, topic) == 2
    assert widen(client, name=topic, count=3, assignments=assignment) == (0, None)


def producer(client: WireClient, version: int = 4, **fields: Any) -> tuple[int, int, int]:
    request = InitProducerIdRequest(
        **{"transactional_id": None, "transaction_timeout_ms": 1000, **fields}
    )
    answer = client.call(request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", APIS[ApiKey.INIT_PRODUCER_ID].versions)
def test_every_producer_gets_an_id_of_its_own(client: WireClient, version: int) -> None:
    answers = [producer(client, version) for _ in range(3)]
    assert {(code, epoch) for code, _, epoch in answers} == {(0, 0)}
    assert len({producer_id for _, producer_id, _ in answers}) == 3


def test_an_id_that_a_producer_brings_is_replaced(client: WireClient) -> None:
    code, producer_id, epoch = producer(client, producer_id=5, producer_epoch=3)
    assert (code, epoch) == (0, 0)
    assert producer_id != 5


@pytest.mark.parametrize(
    "fields", [{"producer_id": 5}, {"producer_epoch": 3}, {"transactional_id": ""}]
)
def test_half_an_identity_is_refused(client: WireClient, fields: dict[str, Any]) -> None:
    assert producer(client, **fields) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_producer_ids_are_not_given_again_after_a_restart(tmp_path: Path) -> None:
    seen = []
    for _ in range(3):
        with RunningBroker(tmp_path) as running:
            with WireClient(running.address) as client:
                seen += [producer(client)[1] for _ in range(2)]
    assert len(set(seen)) == 6
