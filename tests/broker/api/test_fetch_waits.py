"""Partitions that cannot be served do not end a Fetch's wait for the other partitions.

As in Kafka, their errors are returned together with the other partitions' records. The errors end
the wait only if the request names no other partitions. If they ended every wait, a client would ask
again at once: stock clients sent thousands of fetches a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.replication.controller.access import Operation, Resource
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreateAclsRequest,
    DeleteAclsRequest,
    FetchRequest,
    MetadataRequest,
)
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import RunningBroker, WireClient, pass_time
from tests.broker.topics import create, delete
from tests.waiting import until

WAIT_MS = 60_000
UNKNOWN_TOPIC = {True: ErrorCode.UNKNOWN_TOPIC_ID, False: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
VERSIONS = [11, 12, 13, 16, 18]


def id_of(client: WireClient, name: str) -> bytes:
    asked = MetadataRequest(topics=[MetadataRequest.Topic(name=name)])
    return bytes(client.call(asked, 12).topics[0].topic_id)


def fetch_of(
    client: WireClient, version: int, topics: dict[str, bytes], session: tuple[int, int],
    offset: int = 0, wait_ms: int = WAIT_MS,
) -> Any:
    """Send a fetch of partition 0 of each topic, without reading the answer."""
    made: Any = FetchRequest.Topic
    return client.send(
        FetchRequest(
            replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20,
            session_id=session[0], session_epoch=session[1],
            topics=[
                made(
                    **({"topic_id": topic_id} if version >= 13 else {"topic": name}),
                    partitions=[
                        made.Partition(
                            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                        )
                    ],
                )
                for name, topic_id in topics.items()
            ],
        ),
        version,
    )


def errors_of(answer: Any) -> list[int]:
    return sorted(each.error_code for topic in answer.responses for each in topic.partitions)


def held(broker: RunningBroker) -> bool:
    return bool(broker.call(lambda: any(c.held() for c in broker.server.listeners[0].connections)))


def waits(broker: RunningBroker, client: WireClient, sent: Any) -> Any:
    """Check that a fetch waits for its whole max_wait_ms, and return its answer."""
    until(lambda: held(broker), "the fetch is held")
    pass_time(broker, WAIT_MS / 1000 - 1)
    assert held(broker)
    pass_time(broker, 2)
    return client.answer(sent)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("in_session", [False, True])
def test_a_deleted_topic_does_not_end_the_wait_for_another(
    broker: RunningBroker, client: WireClient, version: int, in_session: bool
) -> None:
    client.negotiate()
    names = [create(client, f"{kind}-{version}-{in_session}") for kind in ("stays", "goes")]
    topics = {name: id_of(client, name) for name in names}
    session = (0, 0) if in_session else (0, -1)
    if in_session:
        first = client.answer(fetch_of(client, version, topics, session, wait_ms=0))
        session, topics = (first.session_id, 1), {}
    with WireClient(broker.address) as admin:
        delete(admin, names[1])
        answer = waits(broker, client, fetch_of(client, version, topics, session))
        wrong = int(UNKNOWN_TOPIC[version >= 13])
        assert errors_of(answer) == ([wrong] if in_session else [0, wrong])
        if in_session:
            # As long as the error lasts, each fetch returns it again, after a wait.
            sent = fetch_of(client, version, {}, (session[0], 2))
            assert errors_of(waits(broker, client, sent)) == [wrong]
            session = (session[0], 3)
        # A record of the other topic ends the wait, and the error is returned with it.
        sent = fetch_of(client, version, topics, session)
        until(lambda: held(broker), "the fetch is held")
        produce(admin, names[0], batch(b"v"))
        assert errors_of(client.answer(sent)) == [0, wrong]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_made_anew_does_not_end_the_wait_for_another(
    broker: RunningBroker, client: WireClient, version: int
) -> None:
    client.negotiate()
    names = [create(client, f"{kind}-{version}-anew") for kind in ("stays", "goes")]
    topics = {name: id_of(client, name) for name in names}
    first = client.answer(fetch_of(client, version, topics, (0, 0), wait_ms=0))
    delete(client, names[1])
    create(client, names[1])
    answer = waits(broker, client, fetch_of(client, version, {}, (first.session_id, 1)))
    assert errors_of(answer) == ([ErrorCode.UNKNOWN_TOPIC_ID] if version >= 13 else [])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("epoch", [-1, 0])
def test_nothing_that_can_be_served_is_answered_at_once(
    client: WireClient, version: int, epoch: int
) -> None:
    client.negotiate()
    client.socket.settimeout(5)
    sent = fetch_of(client, version, {"missing": b"\1" * 16}, (0, epoch))
    assert errors_of(client.answer(sent)) == [int(UNKNOWN_TOPIC[version >= 13])]
    assert errors_of(client.answer(fetch_of(client, version, {}, (0, epoch)))) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failed_read_is_answered_at_once(
    client: WireClient, topic: str, version: int
) -> None:
    client.negotiate()
    client.socket.settimeout(5)
    topics = {topic: id_of(client, topic), create(client, f"{topic}-{version}"): b"\1" * 16}
    sent = fetch_of(client, version, topics, (0, -1), offset=9)
    assert ErrorCode.OFFSET_OUT_OF_RANGE in errors_of(client.answer(sent))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker that allows access to resources without a matching ACL."""
    data: Path = tmp_path_factory.mktemp("guarded")
    with RunningBroker(
        data,
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        allow_everyone_if_no_acl_found="true",
    ) as broker:
        yield broker


def deny_read(client: WireClient, topic: str, removed: bool = False) -> None:
    rule: dict[str, Any] = {
        "principal": "User:ANONYMOUS", "host": "*", "operation": int(Operation.READ),
        "permission_type": 2,
    }
    if removed:
        made: Any = DeleteAclsRequest.Filter
        client.call(DeleteAclsRequest(filters=[made(
            resource_type_filter=int(Resource.TOPIC), resource_name_filter=topic,
            pattern_type_filter=3, principal_filter=rule["principal"], host_filter="*",
            operation=rule["operation"], permission_type=2,
        )]), 2)
        return
    creation: Any = CreateAclsRequest.Creation
    answer = client.call(CreateAclsRequest(creations=[creation(
        resource_type=int(Resource.TOPIC), resource_name=topic, resource_pattern_type=3, **rule,
    )]), 2)
    assert answer.results[0].error_code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_an_open_session_is_told_at_its_next_fetch_that_read_was_revoked(
    guarded: RunningBroker, version: int
) -> None:
    with WireClient(guarded.address) as client, WireClient(guarded.address) as admin:
        client.negotiate()
        names = [create(admin, f"{kind}-{version}") for kind in ("open", "closed")]
        topics = {name: id_of(client, name) for name in names}
        session = client.answer(fetch_of(client, version, topics, (0, 0), wait_ms=0)).session_id
        idle = fetch_of(client, version, {}, (session, 1), wait_ms=0)
        assert errors_of(client.answer(idle)) == []
        deny_read(admin, names[1])
        refused = [int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
        sent = fetch_of(client, version, {}, (session, 2), wait_ms=0)
        assert errors_of(client.answer(sent)) == refused
        # The refusal does not end the wait for the topic that may be read.
        sent = fetch_of(client, version, {}, (session, 3))
        assert errors_of(waits(guarded, client, sent)) == refused
        deny_read(admin, names[1], removed=True)
        sent = fetch_of(client, version, {}, (session, 4), wait_ms=0)
        assert errors_of(client.answer(sent)) == [0]
