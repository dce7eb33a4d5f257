"""Groups that subscribe with a regular expression (KIP-848) get only topics that the member may
see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.replication.controller.access import Operation, Resource
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    CreateAclsRequest,
    MetadataRequest,
)
from tests.broker.groups import find
from tests.broker.running import WireClient
from tests.broker.security.logging_in import SaslBroker, log_in
from tests.broker.topics import create
from tests.waiting import until

RULES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path, RULES) as running, WireClient(running.address) as admin:
        until(lambda: find(admin, "g", 3).error_code == 0, "a coordinator")
        for name in ("open-1", "secret-1"):
            create(admin, name)
        for user in ("alice", "bob"):
            allow(admin, user, Resource.GROUP, "g", Operation.READ)
            allow(admin, user, Resource.TOPIC, "open", Operation.READ, prefixed=True)
        allow(admin, "alice", Resource.TOPIC, "secret", Operation.DESCRIBE, prefixed=True)
        yield running


def allow(
    admin: WireClient, user: str, kind: int, name: str, operation: int, prefixed: bool = False
) -> None:
    rule = CreateAclsRequest.Creation(
        resource_type=kind, resource_name=name, principal=f"User:{user}", host="*",
        operation=operation, permission_type=3, resource_pattern_type=4 if prefixed else 3,
    )
    assert not admin.call(CreateAclsRequest(creations=[rule]), 3).results[0].error_code


class Member:
    """A member of the group `g` that subscribes with a pattern."""

    def __init__(self, broker: SaslBroker, user: str, pattern: str = ".*-.") -> None:
        self.client, self.pattern = WireClient(broker.inside), pattern
        log_in(self.client, "PLAIN", user, f"{user}-secret")
        self.user, self.epoch, self.owned = user, 0, frozenset[bytes]()
        until(lambda: self.beat() == 0, "a coordinator that is loaded")

    def beat(self) -> int:
        """Join, or send the next heartbeat; returns 0, or an error code if the coordinator is not
        ready."""
        joins = self.epoch == 0
        owned: list[Any] | None = [
            ConsumerGroupHeartbeatRequest.TopicPartition(topic_id=each, partitions=[0])
            for each in self.owned
        ]
        answer = self.client.call(ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.user, member_epoch=self.epoch,
            rebalance_timeout_ms=10_000, topic_partitions=owned,
            subscribed_topic_regex=self.pattern, subscribed_topic_names=[] if joins else None,
        ), 1)  # fmt: skip
        if answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            return int(answer.error_code)
        assert not answer.error_code, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = frozenset(e.topic_id for e in answer.assignment.topic_partitions)
        return 0


def ids(broker: SaslBroker) -> dict[bytes, str]:
    with WireClient(broker.address) as admin:
        topics = admin.call(MetadataRequest(topics=None), 12).topics
    return {each.topic_id: each.name for each in topics}


def settle(broker: SaslBroker, *members: Member) -> list[set[str]]:
    """Send heartbeats until nothing changes any more; returns the topics of each member."""

    def beaten() -> bool:
        before = [(each.epoch, each.owned) for each in members]
        for _ in range(4):
            for member in members:
                member.beat()
        return before == [(each.epoch, each.owned) for each in members]

    until(beaten, "a group at rest")
    names = ids(broker)
    return [{names[each] for each in member.owned} for member in members]


def test_a_member_gets_only_what_it_may_see(broker: SaslBroker) -> None:
    """In an earlier version, a member got the ids and partition numbers of all topics, whatever the
    ACLs said."""
    assert settle(broker, Member(broker, "bob")) == [{"open-1"}]


def test_new_topics_and_new_rules_count_at_the_next_heartbeat(broker: SaslBroker) -> None:
    bob = Member(broker, "bob")
    assert settle(broker, bob) == [{"open-1"}]
    with WireClient(broker.address) as admin:
        create(admin, "open-2")
        create(admin, "secret-2")
        assert settle(broker, bob) == [{"open-1", "open-2"}]
        allow(admin, "bob", Resource.TOPIC, "secret-2", Operation.DESCRIBE)
    assert settle(broker, bob) == [{"open-1", "open-2", "secret-2"}]


def test_who_may_see_less_takes_nothing_from_the_others(broker: SaslBroker) -> None:
    alice = Member(broker, "alice", "(open|secret)-.")
    assert settle(broker, alice) == [{"open-1", "secret-1"}]
    bob = Member(broker, "bob")
    of_alice, of_bob = settle(broker, alice, bob)
    assert "secret-1" in of_alice and of_bob <= {"open-1"}
    with WireClient(broker.address) as admin:
        create(admin, "secret-2")
        create(admin, "open-2")
    bob.beat()
    of_alice, of_bob = settle(broker, bob, alice)[::-1]
    assert {"secret-1", "secret-2"} <= of_alice and of_bob <= {"open-1", "open-2"}
    assert of_alice | of_bob == {"open-1", "open-2", "secret-1", "secret-2"}


def test_members_that_share_an_expression_come_to_rest(broker: SaslBroker) -> None:
    alice = Member(broker, "alice")
    settle(broker, alice, Member(broker, "bob"))
    with WireClient(broker.address) as admin:
        create(admin, "secret-2")
    settle(broker, alice)
