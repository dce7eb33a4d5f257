"""Topic settings without effect on a single broker: accepted, described, and harmless."""

from __future__ import annotations

import pytest

from ottla.broker.settings.topic import IDLE, REFUSED
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateTopicsRequest
from tests.broker.configs import describe
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.running import WireClient
from tests.broker.topics import create

VALUES = {
    # As in Apache Kafka 4, a partition never needs more in-sync replicas than it has replicas.
    "min.insync.replicas": "2",
    "follower.replication.throttled.replicas": "*",
    "leader.replication.throttled.replicas": "0:0",
    "local.retention.bytes": "1000",
    "local.retention.ms": "1000",
    "remote.copy.lag.bytes": "5",
    "remote.copy.lag.ms": "5",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "true",
    "unclean.leader.election.enable": "true",
}


@pytest.mark.parametrize("name", [*IDLE, "min.insync.replicas"])
def test_what_kafka_accepts_without_a_use_for_it_is_accepted(client: WireClient, name: str) -> None:
    topic = create(client, f"idle-{name}", **{name.replace(".", "_"): VALUES[name]})
    described = {e.name: e.value for e in describe(client, 2, topic).configs}
    assert described[name] == VALUES[name]
    assert produce(client, topic, batch(b"v"), acks=-1).error_code == 0
    assert values(fetch(client, topic)) == [b"v"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_cannot_be_switched_on(client: WireClient, name: str) -> None:
    named = CreateTopicsRequest.Topic
    asked = named(
        name=f"refused-{name}", num_partitions=1, replication_factor=1,
        configs=[named.Config(name=name, value="true")])
    answer = client.call(CreateTopicsRequest(topics=[asked], timeout_ms=10_000), 5).topics[0]
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert REFUSED[name] in answer.error_message
