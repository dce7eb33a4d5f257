"""Brokers and leaders: Metadata, DescribeCluster, DescribeTopicPartitions.

The expected answers to unusual requests were recorded from Apache Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.replication.metadata import (
    BrokerImage,
    BrokerRegistered,
    ControllerElected,
    Decision,
    Endpoint,
    MetadataImage,
    PartitionChanged,
    PartitionState,
)
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreateTopicsRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataResponse,
)
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import NODE_ID, RunningBroker, WireClient

NO_ID = bytes(16)
NOT_ASKED = -(2**31)


def named(*names: str | None) -> list[MetadataRequest.Topic]:
    return [MetadataRequest.Topic(name=name) for name in names]


def ask(client: WireClient, topics: Any, version: int = 12, **fields: Any) -> MetadataResponse:
    return client.call(MetadataRequest(topics=topics, **fields), version)


def told(response: MetadataResponse) -> list[tuple[int, str | None]]:
    return [(topic.error_code, topic.name) for topic in response.topics]


@pytest.mark.parametrize("version", APIS[ApiKey.METADATA].versions)
def test_every_version_tells_brokers_and_partitions(
    client: WireClient, topic: str, broker: RunningBroker, version: int
) -> None:
    response = ask(client, named(topic), version)
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(NODE_ID, *broker.address)]
    [answer] = response.topics
    assert (answer.error_code, answer.name) == (0, topic)
    assert [
        (p.partition_index, p.leader_id, list(p.replica_nodes), list(p.isr_nodes), p.error_code)
        for p in answer.partitions
    ] == [(0, NODE_ID, [NODE_ID], [NODE_ID], 0), (1, NODE_ID, [NODE_ID], [NODE_ID], 0)]
    if version >= 1:
        assert response.controller_id == NODE_ID
        assert not answer.is_internal
    if version >= 2:
        assert response.cluster_id == broker.server.metadata_log.image.cluster_id
    if version >= 7:
        assert {p.leader_epoch for p in answer.partitions} == {0}
    if version >= 10:
        assert answer.topic_id == broker.server.metadata_log.image.topics[topic].topic_id


@pytest.mark.parametrize(
    ("version", "topics", "all_of_them"), [(0, [], True), (1, None, True), (1, [], False)]
)
def test_null_and_empty_ask_for_all_topics_or_none(
    client: WireClient, topic: str, version: int, topics: Any, all_of_them: bool
) -> None:
    names = [answer.name for answer in ask(client, topics, version).topics]
    assert (topic in names) if all_of_them else names == []


def ask_twice(client: WireClient, name: str) -> MetadataResponse.Topic:
    """Automatic creation: the first request creates the topic, the second one returns it."""
    ask(client, named(name))
    [answer] = ask(client, named(name), allow_auto_topic_creation=False).topics
    return answer


def test_the_request_that_makes_a_topic_is_told_that_there_is_none_yet(client: WireClient) -> None:
    """As in Kafka: kafka-go considers a topic deleted if this request returns no partitions."""
    [answer] = ask(client, named("made-by-asking")).topics
    assert (answer.error_code, answer.topic_id, answer.partitions) == (3, bytes(16), [])
    [answer] = ask(client, named("made-by-asking"), allow_auto_topic_creation=False).topics
    assert (answer.error_code, len(answer.partitions)) == (0, 1)
    assert answer.partitions[0].leader_id == NODE_ID
    assert produce(client, "made-by-asking", batch(b"x")).error_code == 0


@pytest.mark.parametrize("version", [0, 3])
def test_before_version_4_every_client_may_make_topics(client: WireClient, version: int) -> None:
    name = f"made-in-version-{version}"
    assert told(ask(client, named(name), version)) == [(3, name)]
    assert told(ask(client, named(name), version)) == [(0, name)]


def test_a_client_may_ask_without_making_a_topic(client: WireClient) -> None:
    for _ in range(2):
        response = ask(client, named("nobody"), allow_auto_topic_creation=False)
        assert told(response) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nobody")]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../x", "a\0b", "x" * 250, "ü"])
@pytest.mark.parametrize("may_create", [True, False])
def test_a_name_that_no_topic_may_have(client: WireClient, name: str, may_create: bool) -> None:
    response = ask(client, named(name), allow_auto_topic_creation=may_create)
    assert told(response) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, name)]


def test_topics_are_told_once_in_the_order_of_the_request(client: WireClient, topic: str) -> None:
    response = ask(client, named("zz", topic, "zz", "aa"), allow_auto_topic_creation=False)
    assert told(response) == [(3, "zz"), (0, topic), (3, "aa")]


def test_topics_are_found_by_their_ids(client: WireClient, topic: str) -> None:
    topic_id = ask(client, named(topic)).topics[0].topic_id
    by_id = MetadataRequest.Topic(topic_id=topic_id, name=None)
    assert told(ask(client, [by_id])) == [(0, topic)]
    assert told(ask(client, [by_id, by_id])) == [(0, topic)]
    assert told(ask(client, [by_id, *named("ignored")])) == [(0, topic)]
    unknown = MetadataRequest.Topic(topic_id=b"\1" * 16, name=None)
    response = ask(client, [unknown])
    assert told(response) == [(ErrorCode.UNKNOWN_TOPIC_ID, None)]
    assert response.topics[0].topic_id == b"\1" * 16


@pytest.mark.parametrize(
    ("topic_id", "version"), [(b"\1" * 16, 10), (b"\1" * 16, 11), (NO_ID, 10), (NO_ID, 12)]
)
def test_a_topic_without_a_name_is_refused_before_ids_count(
    client: WireClient, topic_id: bytes, version: int
) -> None:
    response = ask(client, [MetadataRequest.Topic(topic_id=topic_id, name=None)], version)
    assert told(response) == [(ErrorCode.INVALID_REQUEST, "")]
    assert list(response.brokers) == []


def test_operations_are_told_when_asked_for(client: WireClient, topic: str) -> None:
    plain = ask(client, named(topic), 10)
    assert plain.cluster_authorized_operations == NOT_ASKED
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    full = ask(
        client, named(topic), 10,
        include_cluster_authorized_operations=True, include_topic_authorized_operations=True,
    )
    assert full.cluster_authorized_operations == 8096
    assert full.topics[0].topic_authorized_operations == 3576


def test_the_groups_topic_is_internal_and_has_settings_of_its_own(client: WireClient) -> None:
    answer = ask_twice(client, "__consumer_offsets")
    assert answer.is_internal
    assert len(answer.partitions) == 50
    assert len(answer.partitions[0].replica_nodes) == 1, "the default of 3 needs 3 brokers"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with two listeners that does not create topics automatically."""
    with RunningBroker(
        tmp_path_factory.mktemp("strict"),
        listeners="INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        advertised_listeners="INSIDE://127.0.0.1:1111,OUTSIDE://outside.example:2222",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
        auto_create_topics_enable="false",
    ) as running:
        yield running


def test_a_broker_may_be_told_to_make_no_topics(strict: RunningBroker) -> None:
    with WireClient(strict.address) as client:
        assert told(ask(client, named("nobody"))) == [(3, "nobody")]


def test_each_listener_is_told_its_own_addresses(strict: RunningBroker) -> None:
    seen = []
    for listener in strict.server.listeners:
        with WireClient(("127.0.0.1", listener.port)) as client:
            [known] = ask(client, []).brokers
            [described] = client.call(DescribeClusterRequest(), 1).brokers
            assert (known.host, known.port) == (described.host, described.port)
            seen.append((known.host, known.port))
    assert seen == [("127.0.0.1", 1111), ("outside.example", 2222)]


@pytest.mark.parametrize("version", APIS[ApiKey.DESCRIBE_CLUSTER].versions)
def test_the_cluster_is_described(
    client: WireClient, broker: RunningBroker, version: int
) -> None:
    response = client.call(
        DescribeClusterRequest(include_cluster_authorized_operations=True), version
    )
    assert (response.error_code, response.controller_id) == (0, NODE_ID)
    assert response.cluster_id == broker.server.metadata_log.image.cluster_id
    assert [(b.broker_id, b.host, b.port) for b in response.brokers] == [(NODE_ID, *broker.address)]
    assert response.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_broker_has_no_other_endpoints(
    client: WireClient, endpoint_type: int, code: int
) -> None:
    response = client.call(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert response.error_code == code
    assert response.error_message


@pytest.fixture(scope="module")
def three(broker: RunningBroker) -> list[str]:
    """Three topics of three partitions."""
    names = ["page-a", "page-b", "page-c"]
    with WireClient(broker.address) as admin:
        made = admin.call(
            CreateTopicsRequest(
                topics=[
                    CreateTopicsRequest.Topic(name=name, num_partitions=3, replication_factor=1)
                    for name in names
                ]
            ),
            version=7,
        )
    assert [topic.error_code for topic in made.topics] == [0, 0, 0]
    return names


Page = tuple[list[tuple[int, str | None, list[int]]], tuple[str, int] | None]


def page(client: WireClient, *names: str, limit: int = 2000, cursor: Any = None) -> Page:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.Topic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=cursor
        and DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    response = client.call(request, 0)
    left = response.next_cursor
    return [
        (topic.error_code, topic.name, [p.partition_index for p in topic.partitions])
        for topic in response.topics
    ], left and (left.topic_name, left.partition_index)


def test_topics_are_described_by_name_and_page_by_page(
    client: WireClient, three: list[str]
) -> None:
    a, b, c = three
    whole = [(0, name, [0, 1, 2]) for name in three]
    assert page(client, c, a, b, a) == (whole, None)
    assert page(client, a, limit=3) == (whole[:1], None)
    seen, cursor = [], None
    for _ in range(5):
        answers, cursor = page(client, a, b, c, limit=2, cursor=cursor)
        seen += [(name, index) for _, name, indexes in answers for index in indexes]
    assert cursor is None
    assert seen == [(name, index) for name in three for index in range(3)]


def test_pages_end_between_topics_too(client: WireClient, three: list[str]) -> None:
    a, b, _ = three
    assert page(client, a, b, limit=3) == ([(0, a, [0, 1, 2])], (b, 0))
    assert page(client, a, "page-a-unknown", b, limit=3)[1] == ("page-a-unknown", 0)
    assert page(client, a, limit=0)[1] == (a, 1), "at least one partition is told"
    assert page(client, a, limit=-5)[1] == (a, 1)


def test_all_topics_are_described_when_none_is_named(client: WireClient, three: list[str]) -> None:
    names = [name for _, name, _ in page(client)[0]]
    assert set(three) <= set(names)
    assert names == sorted(names)


def test_unknown_topics_are_told_in_their_place(client: WireClient, three: list[str]) -> None:
    answers, _ = page(client, "zz", three[0], "a/b")
    assert answers == [(17, "a/b", []), (0, three[0], [0, 1, 2]), (3, "zz", [])]


@pytest.mark.parametrize("cursor", [("page-a", -1), ("page-0", 0), ("page-c", 0)])
def test_a_cursor_that_points_nowhere_is_refused(
    client: WireClient, three: list[str], cursor: tuple[str, int]
) -> None:
    a, b, _ = three
    assert page(client, a, b, cursor=cursor) == ([(42, a, []), (42, b, [])], None)


def test_a_cursor_behind_the_last_partition_goes_on_with_the_next_topic(
    client: WireClient, three: list[str]
) -> None:
    a, b, _ = three
    assert page(client, a, b, cursor=(a, 9)) == ([(0, a, []), (0, b, [0, 1, 2])], None)


@pytest.mark.parametrize("version", APIS[ApiKey.FIND_COORDINATOR].versions)
def test_a_coordinator_of_no_known_type_is_refused(client: WireClient, version: int) -> None:
    if version == 0:
        return
    if version < 4:
        response = client.call(FindCoordinatorRequest(key="k", key_type=9), version)
        assert (response.error_code, response.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        return
    response = client.call(FindCoordinatorRequest(coordinator_keys=["k"], key_type=9), version)
    assert [(c.key, c.error_code, c.node_id) for c in response.coordinators] == [
        ("k", ErrorCode.INVALID_REQUEST, -1)
    ]


def test_topics_and_settings_are_there_after_a_restart(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as first:
        with WireClient(first.address) as client:
            before = ask_twice(client, "kept").topic_id
    with RunningBroker(tmp_path) as second:
        with WireClient(second.address) as client:
            [answer] = ask(client, named("kept"), allow_auto_topic_creation=False).topics
    assert (answer.error_code, answer.topic_id) == (0, before)


def test_a_partition_that_cannot_be_reached_says_why(tmp_path: Path) -> None:
    elsewhere = BrokerImage(7, 1, (Endpoint("OTHER", "h", 1),))
    lost = PartitionState(-1, 1, (8,), (8,))
    hidden = PartitionState(7, 1, (7, NODE_ID), (7, NODE_ID))

    def change(image: MetadataImage) -> Decision[None]:
        return Decision(
            [
                BrokerRegistered(elsewhere),
                PartitionChanged("t", 0, lost),
                PartitionChanged("t", 1, hidden),
            ],
            None,
        )

    with RunningBroker(tmp_path, num_partitions="3") as running:
        with WireClient(running.address) as client:
            assert {p.error_code for p in ask_twice(client, "t").partitions} == {0}
            running.run(running.server.metadata_log.decide(change))
            for version, second in ((5, 5), (6, ErrorCode.LISTENER_NOT_FOUND)):
                response = ask(client, named("t"), version)
                assert [node.node_id for node in response.brokers] == [NODE_ID]
                assert [
                    (p.error_code, p.leader_id, list(p.offline_replicas))
                    for p in response.topics[0].partitions
                ] == [
                    (ErrorCode.LEADER_NOT_AVAILABLE, -1, [8]),
                    (second, -1, [7]),
                    (0, NODE_ID, []),
                ]


def test_a_controller_that_the_client_cannot_reach_is_not_named(tmp_path: Path) -> None:
    """The controller may lack the client's listener, for example while a listener is being added to
    one broker after the other. An earlier version named it, and clients waited for its address
    until their requests timed out. Every broker takes requests for the controller."""
    elsewhere = BrokerImage(3, 1, (Endpoint("OTHER", "h", 1),))

    def elect(image: MetadataImage) -> Decision[None]:
        return Decision([BrokerRegistered(elsewhere), ControllerElected(3, 1)], None)

    with RunningBroker(tmp_path) as running, WireClient(running.address) as client:
        running.run(running.server.metadata_log.decide(elect))
        assert ask(client, []).controller_id == NODE_ID
        assert client.call(DescribeClusterRequest(), 1).controller_id == NODE_ID
