"""Settings are described with their sources, and are altered as Kafka 4.3.1 allows.

The expected answers to unusual requests were recorded from Apache Kafka 4.3.1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterConfigsRequest,
    ListConfigResourcesRequest,
)
from tests.broker.configs import alter, describe
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import NODE_ID, RunningBroker, WireClient
from tests.broker.topics import create as topics_create

HERE = str(NODE_ID)
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
FROM_TOPIC, FROM_BROKER, FROM_ALL_BROKERS, FROM_FILE, FROM_DEFAULT = range(1, 6)
FROM_CLIENT_METRICS, FROM_GROUP = 7, 8
LIST, LONG = 7, 5


def setting(client: WireClient, kind: int, name: str, key: str) -> Any:
    """One setting with its synonyms and documentation."""
    [entry] = describe(
        client, kind, name, key, include_synonyms=True, include_documentation=True
    ).configs
    return entry


@pytest.mark.parametrize("version", APIS[ApiKey.DESCRIBE_CONFIGS].versions)
def test_every_version_describes_a_topic(client: WireClient, topic: str, version: int) -> None:
    alter(client, TOPIC, topic, ("retention.ms", SET, "5000"))
    result = describe(client, TOPIC, topic, version=version)
    assert (result.error_code, result.resource_name) == (0, topic)
    entries = {entry.name: entry for entry in result.configs}
    assert len(entries) >= 33
    assert entries["retention.ms"].value == "5000"
    assert entries["segment.bytes"].value == "1073741824"
    if version == 0:
        assert not entries["retention.ms"].is_default
        assert entries["segment.bytes"].is_default
    else:
        assert entries["retention.ms"].config_source == FROM_TOPIC
        assert entries["segment.bytes"].config_source == FROM_DEFAULT
    if version >= 3:
        assert entries["retention.ms"].config_type == LONG
        assert entries["cleanup.policy"].config_type == LIST


def test_a_setting_is_told_with_all_that_would_count_without_it(
    client: WireClient, topic: str
) -> None:
    alter(client, TOPIC, topic, ("max.message.bytes", SET, "1000002"))
    alter(client, BROKER, HERE, ("message.max.bytes", SET, "1000000"))
    alter(client, BROKER, "", ("message.max.bytes", SET, "1000001"))
    entry = setting(client, TOPIC, topic, "max.message.bytes")
    assert (entry.value, entry.config_source, entry.read_only) == ("1000002", FROM_TOPIC, False)
    synonyms = [(each.name, each.value, each.source) for each in entry.synonyms]
    assert synonyms == [
        ("max.message.bytes", "1000002", FROM_TOPIC),
        ("message.max.bytes", "1000000", FROM_BROKER),
        ("message.max.bytes", "1000001", FROM_ALL_BROKERS),
        ("message.max.bytes", "1048588", FROM_DEFAULT),
    ]
    assert entry.documentation
    for name in (HERE, ""):
        alter(client, BROKER, name, ("message.max.bytes", DELETE, None))


def test_times_are_told_in_the_topics_own_unit(client: WireClient, topic: str) -> None:
    entry = setting(client, TOPIC, topic, "retention.ms")
    assert (entry.value, entry.config_source) == ("604800000", FROM_DEFAULT)
    assert not entry.synonyms, "a default in hours is no synonym of one in ms, as in Kafka"


def test_only_the_keys_asked_for_are_reported(client: WireClient, topic: str) -> None:
    result = describe(client, TOPIC, topic, "flush.ms", "no.such.setting")
    assert [entry.name for entry in result.configs] == ["flush.ms"]
    assert [list(entry.synonyms) for entry in result.configs] == [[]], "nobody asked for them"
    assert result.configs[0].documentation is None


def test_a_brokers_settings_come_from_its_file_or_are_defaults(
    client: WireClient, broker: RunningBroker
) -> None:
    entries = {entry.name: entry for entry in describe(client, BROKER, HERE).configs}
    assert len(entries) > 300
    listeners = entries["listeners"]
    assert (listeners.value, listeners.config_source) == ("PLAINTEXT://127.0.0.1:0", FROM_FILE)
    assert not listeners.read_only
    partitions = entries["num.partitions"]
    assert (partitions.value, partitions.config_source) == ("1", FROM_DEFAULT)
    assert partitions.read_only


def test_settings_are_described_as_kafka_does(tmp_path: Path) -> None:
    """Values are described as parsed, and synonyms as written in the file. The expected answers
    were recorded from Apache Kafka 4.4.0.

    Values were once described as written, settings of listeners as if they were secrets, and
    broker.id as -1."""
    file = {
        "node.id": "1", "max.connections": "5000 ", "auto.create.topics.enable": "TRUE ",
        "log.cleanup.policy": "delete , compact",
        "listener.name.plaintext.ssl.keystore.type": "PKCS12",
        "listener.name.plaintext.max.connections": "50",
    }
    limit, store = "listener.name.plaintext.max.connections", "ssl.keystore.type"
    with RunningBroker(tmp_path, **file) as running, WireClient(running.address) as client:
        running.config.static |= file       # restores the spaces, which overrides lose
        entries = {
            each.name: (each.value, [(s.name, s.value, s.source) for s in each.synonyms])
            for each in describe(client, BROKER, "1", include_synonyms=True).configs
        }
        assert entries["max.connections"] == ("5000", [
            ("max.connections", "5000 ", FROM_FILE), ("max.connections", f"{2**31 - 1}", 5)])
        assert entries["auto.create.topics.enable"][0] == "true"
        assert entries["log.cleanup.policy"] == ("delete,compact", [
            ("log.cleanup.policy", "delete , compact", FROM_FILE),
            ("log.cleanup.policy", "delete", FROM_DEFAULT)])
        assert entries["broker.id"] == ("1", [
            ("broker.id", "1", FROM_FILE), ("broker.id", "-1", FROM_DEFAULT)])
        assert entries[limit] == ("50", [
            (limit, "50", FROM_FILE), ("max.connections", "5000 ", FROM_FILE),
            ("max.connections", f"{2**31 - 1}", FROM_DEFAULT)])
        assert entries[f"listener.name.plaintext.{store}"] == ("PKCS12", [
            (f"listener.name.plaintext.{store}", "PKCS12", FROM_FILE),
            (store, "JKS", FROM_DEFAULT)])
        assert not setting(client, BROKER, "1", limit).read_only
        assert alter(client, BROKER, "1", ("max.connections", SET, "77")) == 0
        assert setting(client, BROKER, "1", limit).value == "50", "the listener's own wins"
        created = topics_create(client, "t", cleanup_policy="compact , delete")
        assert setting(client, TOPIC, created, "cleanup.policy").value == "compact,delete"


def test_secrets_are_never_shown(client: WireClient) -> None:
    key = "listener.name.plaintext.ssl.keystore.password"
    assert alter(client, BROKER, HERE, (key, SET, "secret")) == 0
    for name in (key, "ssl.key.password"):
        entry = setting(client, BROKER, HERE, name)
        assert (entry.value, entry.is_sensitive) == (None, True)
        assert [each.value for each in entry.synonyms] in ([], [None])
    assert alter(client, BROKER, HERE, (key, DELETE, None)) == 0


def test_settings_of_groups_and_client_metrics_are_kept(client: WireClient) -> None:
    assert alter(client, GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")) == 0
    entry = setting(client, GROUP, "g", "consumer.session.timeout.ms")
    assert (entry.value, entry.config_source) == ("50000", FROM_GROUP)
    assert entry.synonyms[-1].name == "group.consumer.session.timeout.ms"
    assert alter(client, CLIENT_METRICS, "m", ("match", SET, "client_id=a.*")) == 0
    entry = setting(client, CLIENT_METRICS, "m", "match")
    assert (entry.value, entry.config_source) == ("client_id=a.*", FROM_CLIENT_METRICS)
    assert setting(client, CLIENT_METRICS, "m", "interval.ms").value == "300000"


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_has_no_settings_is_reported(
    client: WireClient, kind: int, name: str, code: int
) -> None:
    result = describe(client, kind, name)
    assert (result.error_code, list(result.configs)) == (code, [])
    assert result.error_message


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "nobody", ("retention.ms", SET, "5"), 3),
        (TOPIC, None, ("retention.ms", SET, "soon"), 40),
        (TOPIC, None, ("retention.ms", SET, None), 42),
        (TOPIC, None, ("retention.ms", APPEND, "5"), 40),
        (TOPIC, None, ("retention.ms", 9, "5"), 42),
        (TOPIC, None, ("no.such.setting", SET, "5"), 40),
        (TOPIC, None, ("no.such.setting", DELETE, None), 0),
        (BROKER, HERE, ("log.dirs", SET, "/x"), 42),
        (BROKER, "", ("log.dirs", SET, "/x"), 42),
        (BROKER, "", ("log.retention.ms", SET, "soon"), 42),
        (BROKER, "", ("listeners", SET, "PLAINTEXT://:1"), 42),
        (BROKER, "9", ("log.retention.ms", SET, "5"), 42),
        (BROKER, "x", ("log.retention.ms", SET, "5"), 42),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), 42),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "5"), 40),
        (GROUP, "g", ("no.such.setting", SET, "5"), 40),
        (CLIENT_METRICS, "", ("interval.ms", SET, "1000"), 42),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "5"), 42),
        (CLIENT_METRICS, "m", ("no.such.setting", SET, "5"), 42),
        (CLIENT_METRICS, "m", ("match", SET, "nothing=a"), 40),
        (CLIENT_METRICS, "m", ("match", SET, "client_id=["), 40),
        (3, "x", ("a", SET, "b"), 42),
    ],
)
def test_alterations_get_kafkas_codes(
    client: WireClient, topic: str, kind: int, name: str | None, change: Any, code: int
) -> None:
    assert alter(client, kind, topic if name is None else name, change) == code


def test_a_topics_list_is_extended_and_shortened(client: WireClient, topic: str) -> None:
    policies = []
    for operation, value in [(APPEND, "compact"), (SUBTRACT, "delete"), (DELETE, None)]:
        assert alter(client, TOPIC, topic, ("cleanup.policy", operation, value)) == 0
        policies.append(setting(client, TOPIC, topic, "cleanup.policy").value)
    assert policies == ["delete,compact", "compact", "delete"]


def test_an_alteration_counts_at_once(client: WireClient, topic: str) -> None:
    assert alter(client, TOPIC, topic, ("max.message.bytes", SET, "100")) == 0
    answer = produce(client, topic, batch(b"x" * 200))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(client, TOPIC, topic, ("max.message.bytes", DELETE, None)) == 0
    assert produce(client, topic, batch(b"x" * 200)).error_code == 0


def test_an_alteration_can_be_tried(client: WireClient, topic: str) -> None:
    assert alter(client, TOPIC, topic, ("retention.ms", SET, "5"), validate_only=True) == 0
    assert setting(client, TOPIC, topic, "retention.ms").config_source == FROM_DEFAULT


@pytest.mark.parametrize("version", APIS[ApiKey.ALTER_CONFIGS].versions)
def test_the_old_way_replaces_all_settings(
    client: WireClient, topic: str, version: int
) -> None:
    alter(client, TOPIC, topic, ("retention.ms", SET, "5000"))
    resource = AlterConfigsRequest.Resource(
        resource_type=TOPIC,
        resource_name=topic,
        configs=[AlterConfigsRequest.Resource.Config(name="flush.ms", value="7")],
    )
    [response] = client.call(AlterConfigsRequest(resources=[resource]), version).responses
    assert response.error_code == 0
    assert setting(client, TOPIC, topic, "flush.ms").value == "7"
    assert setting(client, TOPIC, topic, "retention.ms").config_source == FROM_DEFAULT
    twice = client.call(AlterConfigsRequest(resources=[resource, resource]), version)
    assert [r.error_code for r in twice.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_resources_are_listed(client: WireClient, topic: str) -> None:
    alter(client, GROUP, "listed", ("consumer.session.timeout.ms", SET, "50000"))
    alter(client, CLIENT_METRICS, "listed", ("interval.ms", SET, "1000"))

    def listed(version: int, *kinds: int) -> set[tuple[int, str]]:
        response = client.call(ListConfigResourcesRequest(resource_types=list(kinds)), version)
        assert response.error_code == 0
        return {(each.resource_type, each.resource_name) for each in response.config_resources}

    everything = {(TOPIC, topic), (BROKER, HERE), (GROUP, "listed"), (CLIENT_METRICS, "listed")}
    assert everything <= listed(1)
    assert (TOPIC, topic) in listed(1, TOPIC)
    assert {kind for kind, _ in listed(1, GROUP)} == {GROUP}
    assert {kind for kind, _ in listed(0)} == {CLIENT_METRICS}
    refused = client.call(ListConfigResourcesRequest(resource_types=[99]), 1)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
