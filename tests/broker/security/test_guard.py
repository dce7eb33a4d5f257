"""Without an ACL nothing is allowed: every API refuses with Kafka's code, in all its versions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from ottla.broker import api
from ottla.broker.dispatch import HANDLERS
from ottla.broker.security.decisions import everybody
from ottla.replication.controller.access import (
    Operation,
    Pattern,
    Permission,
    Resource,
    RuleFilter,
    create_rules,
    delete_rules,
)
from ottla.replication.principals import AccessRule
from ottla.wire import messages
from ottla.wire.apis import APIS, BETWEEN_BROKERS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import FindCoordinatorRequest
from tests.broker.produce_fetch import batch, fetch_request, produce, produce_request
from tests.broker.running import RunningBroker, WireClient
from tests.broker.security.guarded import (
    ADDED_PARTITIONS,
    CLUSTER_REFUSED,
    GROUP,
    QUESTIONS,
    REFUSALS,
    TOPIC,
    TOPIC_REFUSED,
    TRANSACTION,
    TRANSACTION_REFUSED,
    Question,
    Right,
    cluster,
    group,
    topic,
    transaction,
)
from tests.broker.topics import create

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANONYMOUS, EVERYWHERE = "User:ANONYMOUS", "*"
FILTERED = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER}
"""APIs that refuse nobody, and return only what the client may see."""
TOKENS = {
    ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
"""APIs that refuse all clients of this test, because these clients have not logged in."""


SERVED = [name for name, (key, _) in QUESTIONS.items() if key in HANDLERS]


def codes_of(message: Any) -> set[int]:
    """Every error code in a message, at whatever depth."""
    if isinstance(message, list | tuple):
        return set().union(*map(codes_of, message)) if message else set()
    found: set[int] = set()
    for name in dir(message):
        if not name.startswith("_") and name.islower():
            value = getattr(message, name)
            if name.endswith("error_code"):
                found.add(value)
            elif isinstance(value, list | tuple) or hasattr(value, "encode_into"):
                found |= codes_of(value)
    return found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker with an authorizer and no ACLs. Its topic was created before the authorizer was
    configured."""
    data = tmp_path_factory.mktemp("data")
    with RunningBroker(data) as open_to_all, WireClient(open_to_all.address) as client:
        create(client, TOPIC)
        for kind, key in ((0, GROUP), (1, TRANSACTION)):
            client.call(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
    with RunningBroker(data, **{"authorizer.class.name": AUTHORIZER}) as broker:
        yield broker


@pytest.fixture
def rules(guarded: RunningBroker) -> Iterator[Rules]:
    made = Rules(guarded)
    yield made
    made.clear()


class Rules:
    """Grants and revokes permissions directly, not through requests."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker, self.log = broker, broker.server.metadata_log

    def add(
        self,
        *rights: Right,
        pattern: Pattern = Pattern.LITERAL,
        permission: Permission = Permission.ALLOW,
        principal: str = ANONYMOUS,
        host: str = EVERYWHERE,
    ) -> None:
        made = [
            AccessRule(kind, pattern, name, principal, host, operation, permission)
            for kind, name, operation in rights
        ]
        errors = self.broker.run(self.log.decide(create_rules, made))
        assert errors == [None] * len(made)

    def clear(self) -> None:
        self.broker.run(self.log.decide(delete_rules, [RuleFilter()]))


def make_group(client: WireClient, rules: Rules) -> None:
    rules.add(group(Operation.READ), topic(Operation.READ))
    made = messages.OffsetCommitRequest.Topic
    one = made(name=TOPIC, partitions=[made.Partition(committed_offset=0)])
    client.call(messages.OffsetCommitRequest(
        group_id=GROUP, generation_id_or_member_epoch=-1, topics=[one]), 8)
    rules.clear()


@pytest.fixture
def client(guarded: RunningBroker) -> Iterator[WireClient]:
    with WireClient(guarded.address) as connected:
        yield connected


def ask(broker: RunningBroker, client: WireClient, question: Question, version: int) -> set[int]:
    image = broker.server.metadata_log.image
    topic_id = image.topics[TOPIC].topic_id if TOPIC in image.topics else bytes(16)
    request = question.make(version, topic_id)
    return codes_of(client.call(request, version)) - {0}


def test_every_api_is_asked_about_here() -> None:
    api.load()
    asked = {key for key, _ in QUESTIONS.values()} | {ApiKey.ADD_PARTITIONS_TO_TXN}
    asked |= BETWEEN_BROKERS                # tests/broker/peers/test_forwarding.py
    open_to_all = {key for key, handler in HANDLERS.items() if handler.access is everybody}
    missing = HANDLERS.keys() - asked - FILTERED - open_to_all
    assert not missing, "add a request and the rights that it needs to QUESTIONS in guarded.py"


@pytest.mark.parametrize("name", SERVED)
def test_without_a_rule_every_version_refuses(
    guarded: RunningBroker, client: WireClient, name: str
) -> None:
    key, question = QUESTIONS[name]
    for version in APIS[key].versions:
        if version >= question.first:
            codes = ask(guarded, client, question, version)
            assert codes == question.codes, f"version {version}"


def test_every_refusal_is_a_line_of_the_audit(
    guarded: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    write_all = guarded.server.broker.authorizer.denials.close
    guarded.call(write_all)
    for name in SERVED:
        key, question = QUESTIONS[name]
        caplog.clear()
        with WireClient(guarded.address) as client:
            ask(guarded, client, question, APIS[key].versions[-1])
        guarded.call(write_all)
        lines = [record.getMessage() for record in caplog.records]
        about = f"{ANONYMOUS} from 127.0.0.1, client 'test': {APIS[key].name}"
        assert any(line.startswith(about) and ": refused, " in line for line in lines), name


def test_what_is_only_not_listed_is_no_refusal(
    guarded: RunningBroker, client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ottla.audit")
    guarded.call(guarded.server.broker.authorizer.denials.close)
    caplog.clear()
    client.call(messages.MetadataRequest(topics=None, include_topic_authorized_operations=True), 12)
    client.call(messages.ListGroupsRequest(), 4)
    client.call(messages.ListTransactionsRequest(), 0)
    client.call(messages.DescribeClusterRequest(include_cluster_authorized_operations=True), 1)
    guarded.call(guarded.server.broker.authorizer.denials.close)
    assert caplog.records == []


@pytest.mark.parametrize("name", [name for name in SERVED if name != "delete_topics"])
def test_who_has_all_rights_is_served_and_one_right_less_is_too_few(
    guarded: RunningBroker, client: WireClient, rules: Rules, name: str
) -> None:
    key, question = QUESTIONS[name]
    version = APIS[key].versions[-1]
    if key == ApiKey.ADD_PARTITIONS_TO_TXN:
        version = 3
    if key == ApiKey.OFFSET_DELETE:
        make_group(client, rules)   # for an unknown group, Kafka answers with that error alone
    for left_out in question.rights:
        rules.add(*(right for right in question.rights if right != left_out))
        assert ask(guarded, client, question, version) & REFUSALS, f"without {left_out}"
        rules.clear()
    rules.add(*question.rights)
    assert not ask(guarded, client, question, version) & REFUSALS


SIMPLE = [
    "produce", "fetch", "list_offsets", "describe_groups", "init_producer_id of a transaction",
]


@pytest.mark.parametrize("name", SIMPLE)
def test_rules_with_prefixes_and_for_all_names_allow_and_a_denial_wins(
    guarded: RunningBroker, client: WireClient, rules: Rules, name: str
) -> None:
    key, question = QUESTIONS[name]
    version = APIS[key].versions[-1]
    [(kind, resource, operation)] = question.rights

    def is_refused() -> bool:
        return bool(ask(guarded, client, question, version) & REFUSALS)

    other = (kind, resource + "-other", operation)
    rules.add(other)
    rules.add(other, pattern=Pattern.PREFIXED)
    rules.add((kind, resource, operation), principal="User:somebody")
    rules.add((kind, resource, operation), host="192.0.2.1")
    assert is_refused(), "none of these is about it"
    for right, pattern in (
        ((kind, resource[0], operation), Pattern.PREFIXED),
        ((kind, "*", operation), Pattern.LITERAL),
        ((kind, resource, Operation.ALL), Pattern.LITERAL),
    ):
        rules.clear()
        rules.add(right, pattern=pattern)
        assert not is_refused()
        rules.add((kind, resource[0], operation), pattern=Pattern.PREFIXED,
                  permission=Permission.DENY, principal="User:*", host="127.0.0.1")
        assert is_refused(), "a denial wins"


def test_partitions_are_added_to_a_transaction_all_or_none(
    guarded: RunningBroker, client: WireClient, rules: Rules
) -> None:
    for version in range(4):
        assert ask(guarded, client, ADDED_PARTITIONS, version) == {TRANSACTION_REFUSED}
    rules.add(transaction(Operation.WRITE))
    assert ask(guarded, client, ADDED_PARTITIONS, 3) == {TOPIC_REFUSED}
    rules.add(topic(Operation.WRITE))
    assert not ask(guarded, client, ADDED_PARTITIONS, 3) & REFUSALS
    assert ask(guarded, client, ADDED_PARTITIONS, 5) == {CLUSTER_REFUSED}
    rules.add(cluster(Operation.CLUSTER_ACTION))
    assert not ask(guarded, client, ADDED_PARTITIONS, 5) & REFUSALS


def test_what_one_may_not_know_of_is_not_listed(
    guarded: RunningBroker, client: WireClient, rules: Rules
) -> None:
    every_topic = messages.MetadataRequest(topics=None, include_topic_authorized_operations=True)
    assert client.call(every_topic, 12).topics == []
    first = client.call(messages.MetadataRequest(topics=[]), 0)
    assert first.topics == [] and first.brokers
    described = client.call(messages.DescribeTopicPartitionsRequest(topics=[]), 0)
    assert described.topics == []
    rules.add(topic(Operation.READ))
    [known] = client.call(every_topic, 12).topics
    assert known.name == TOPIC
    assert known.topic_authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
    asked = messages.DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert client.call(asked, 1).cluster_authorized_operations == 0
    rules.add(cluster(Operation.ALTER))
    bits = client.call(asked, 1).cluster_authorized_operations
    assert bits == 1 << Operation.ALTER | 1 << Operation.DESCRIBE


def test_a_topic_is_not_made_by_asking_for_it_without_create(
    guarded: RunningBroker, client: WireClient, rules: Rules
) -> None:
    asked = messages.MetadataRequest(topics=[messages.MetadataRequest.Topic(name="fresh")])
    rules.add((Resource.TOPIC, "fresh", Operation.DESCRIBE))
    assert client.call(asked, 9).topics[0].error_code == TOPIC_REFUSED
    assert "fresh" not in guarded.server.metadata_log.image.topics
    rules.add((Resource.TOPIC, "fresh", Operation.CREATE))
    assert client.call(asked, 9).topics[0].error_code != TOPIC_REFUSED


def test_one_refused_topic_does_not_hold_up_the_others(
    guarded: RunningBroker, client: WireClient, rules: Rules
) -> None:
    rules.add(topic(Operation.WRITE), topic(Operation.READ))
    two = produce_request(TOPIC, None)
    for each in two.topic_data:
        each.partition_data[0].records = batch(b"mine")
    secret = produce_request("secret", batch(b"not mine")).topic_data
    two.topic_data = [*secret, *two.topic_data]
    answers = {r.name: r.partition_responses[0].error_code for r in client.call(two, 9).responses}
    assert answers == {"secret": TOPIC_REFUSED, TOPIC: 0}
    wanted = fetch_request(TOPIC)
    wanted.topics = [*fetch_request("secret").topics, *wanted.topics]
    fetched = {r.topic: r.partitions[0].error_code for r in client.call(wanted, 12).responses}
    assert fetched == {"secret": TOPIC_REFUSED, TOPIC: 0}
    offsets = messages.ListOffsetsRequest(replica_id=-1, topics=[
        messages.ListOffsetsRequest.Topic(
            name=name, partitions=[messages.ListOffsetsRequest.Topic.Partition(timestamp=-1)]
        )
        for name in ("secret", TOPIC)
    ])
    told = {t.name: t.partitions[0].error_code for t in client.call(offsets, 7).topics}
    assert told == {"secret": TOPIC_REFUSED, TOPIC: 0}


def test_a_right_that_is_taken_away_counts_at_once(
    guarded: RunningBroker, client: WireClient, rules: Rules
) -> None:
    rules.add(topic(Operation.WRITE))
    assert produce(client, TOPIC, batch(b"v")).error_code == 0
    rules.clear()
    assert produce(client, TOPIC, batch(b"v")).error_code == TOPIC_REFUSED


@pytest.mark.parametrize("version", [12, 17])
def test_a_right_to_read_that_is_taken_away_counts_at_once(
    guarded: RunningBroker, client: WireClient, rules: Rules, version: int
) -> None:
    key, question = QUESTIONS["fetch"]
    assert key == ApiKey.FETCH
    rules.add(topic(Operation.READ))
    for _ in range(2):      # the second decision comes from a cache
        assert not ask(guarded, client, question, version) & REFUSALS
    assert produce(client, TOPIC, batch(b"v")).error_code == TOPIC_REFUSED, "it may only read"
    rules.clear()
    assert ask(guarded, client, question, version) == {TOPIC_REFUSED}


@contextmanager
def taken_up(broker: RunningBroker) -> Iterator[bytes]:
    """A broker of a cluster takes up a topic: it has a replica of partition 1 and none of partition
    0, and its image does not have the topic yet. Yields the topic's id."""
    log, partitions = broker.server.metadata_log, broker.server.replicas.by_name[TOPIC]
    image, replicas = log.image, list(partitions)
    names = {known: name for known, name in image.names.items() if name != TOPIC}

    def show(shown: Any, found: list[Any]) -> None:
        log.image, partitions[:] = shown, found

    broker.call(show, replace(image, names=names), [None, replicas[0]])
    try:
        yield image.topics[TOPIC].topic_id
    finally:
        broker.call(show, image, replicas)


def test_a_topic_that_is_being_taken_up_is_not_refused_to_those_who_may_write_to_it(
    guarded: RunningBroker, client: WireClient, rules: Rules
) -> None:
    """An earlier version looked for the ACLs of a topic without a name, and answered
    TOPIC_AUTHORIZATION_FAILED. After this error producers give up their records."""
    rules.add(topic(Operation.WRITE))
    with taken_up(guarded) as topic_id:
        one = produce_request(topic_id, batch(b"v"), partition=1)
        assert codes_of(client.call(one, 13)) == {0}
        partitions = guarded.server.replicas.by_name[TOPIC]
        guarded.call(partitions.__delitem__, 1)
        assert codes_of(client.call(one, 13)) == {ErrorCode.UNKNOWN_TOPIC_ID}


def test_a_topic_that_is_being_taken_up_is_not_read_by_those_who_may_not_read_it(
    guarded: RunningBroker, client: WireClient
) -> None:
    """An earlier version took an id that the image did not have for an unknown topic, did not ask
    the authorizer, and then found the partition."""
    with taken_up(guarded) as topic_id:
        request = QUESTIONS["fetch"][1].make(17, topic_id)
        request.topics[0].partitions[0].partition = 1
        assert codes_of(client.call(request, 17)) - {0} == {ErrorCode.UNKNOWN_TOPIC_ID}


def test_a_topic_that_the_broker_does_not_show_yet_is_not_deleted_without_the_right(
    guarded: RunningBroker, client: WireClient, rules: Rules
) -> None:
    """An earlier version asked only the image that it showed, and deleted the topic: a reader that
    repeated its request could delete each topic at the moment of its creation."""
    log = guarded.server.metadata_log
    image = log.image
    rules.add(topic(Operation.DESCRIBE))
    topics = {name: each for name, each in image.topics.items() if name != TOPIC}
    names = {known: name for known, name in image.names.items() if name != TOPIC}
    for version in 5, 6:
        guarded.call(setattr, log, "image", replace(image, topics=topics, names=names))
        request = QUESTIONS["delete_topics"][1].make(version, image.topics[TOPIC].topic_id)
        assert codes_of(client.call(request, version)) == {TOPIC_REFUSED}
        assert TOPIC in log.decided.topics
        guarded.call(setattr, log, "image", image)


def test_deletion_needs_its_right(
    guarded: RunningBroker, client: WireClient, rules: Rules
) -> None:
    _, question = QUESTIONS["delete_topics"]
    rules.add(topic(Operation.READ))
    assert ask(guarded, client, question, 6) == {TOPIC_REFUSED}
    rules.add(topic(Operation.DELETE))
    assert ask(guarded, client, question, 6) == set()
