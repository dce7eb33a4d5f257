"""Requests about one broker's settings go to that broker, even if another one is the controller."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.settings.entries import ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import AlterConfigsRequest, IncrementalAlterConfigsRequest
from tests.broker.cluster.running_cluster import RunningCluster, create, lose_next_write

SET = 0
JAAS = "listener.name.inside.plain.sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LOGGER = "ottla.settings.of.one.broker"
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
    "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
    JAAS: f'{MODULE} user_alice="a";',
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path, 2, **SETTINGS) as running:
        assert create(running, 1, "t", 1, 1) == 0
        yield running


def change(
    cluster: RunningCluster, node_id: int, *changes: tuple[int, str, str, str],
    validate_only: bool = False,
) -> list[tuple[int, str | None]]:
    """Have a broker set one setting of each resource; returns error codes and messages in the same
    order."""
    made = IncrementalAlterConfigsRequest.Resource
    request = IncrementalAlterConfigsRequest(validate_only=validate_only, resources=[
        made(resource_type=kind, resource_name=name, configs=[
            made.Config(name=key, config_operation=SET, value=value)
        ])
        for kind, name, key, value in changes
    ])
    with cluster.client(node_id) as client:
        answers = client.call(request, 1).responses
    assert [(each.resource_type, each.resource_name) for each in answers] == [
        (kind, name) for kind, name, _, _ in changes]
    return [(each.error_code, each.error_message) for each in answers]


def settings_of(cluster: RunningCluster, node_id: int, name: str) -> dict[str, str]:
    image = cluster.servers[node_id].metadata_log.image
    return dict(image.config_of("broker", name))


@pytest.mark.parametrize("away", [0, 1])
def test_one_request_changes_loggers_settings_and_topics(
    cluster: RunningCluster, away: int
) -> None:
    """Java's admin client sends changes of a broker's settings and loggers in one request."""
    logger = logging.getLogger(LOGGER)
    logger.setLevel(logging.INFO)
    controller = cluster.controller
    node_id = 3 - controller if away else controller
    asked = [
        (ResourceType.TOPIC, "t", "segment.bytes", "2000000"),
        (ResourceType.BROKER_LOGGER, str(node_id), LOGGER, "DEBUG"),
        (ResourceType.BROKER, str(node_id), "max.connections", "500"),
        (ResourceType.BROKER_LOGGER, str(3 - node_id), LOGGER, "ERROR"),
    ]
    try:
        tried = change(cluster, node_id, *asked, validate_only=True)
        assert logger.level == logging.INFO and not settings_of(cluster, node_id, str(node_id))
        done = change(cluster, node_id, *asked)
        assert [code for code, _ in tried] == [code for code, _ in done]
        assert [code for code, _ in done] == [0, 0, 0, ErrorCode.INVALID_REQUEST]
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(logging.NOTSET)
    assert settings_of(cluster, node_id, str(node_id)) == {"max.connections": "500"}
    assert cluster.servers[node_id].config.max_connections == 500


@pytest.mark.parametrize("away", [0, 1])
@pytest.mark.parametrize(("key", "value"), [
    (JAAS, "no module at all"),
    ("listener.name.inside.sasl.enabled.mechanisms", "GSSAPI"),
])
def test_what_its_listeners_cannot_use_is_refused_by_the_broker_itself(
    cluster: RunningCluster, away: int, key: str, value: str
) -> None:
    """With such a value in the metadata, the broker could no longer apply new certificates or
    mechanisms to any of its listeners."""
    controller = cluster.controller
    node_id = 3 - controller if away else controller
    own = str(node_id)
    ((code, message),) = change(cluster, node_id, (ResourceType.BROKER, own, key, value))
    assert code == ErrorCode.INVALID_REQUEST and message is not None
    assert message.startswith("Invalid config value: ")
    made = AlterConfigsRequest.Resource
    whole = AlterConfigsRequest(resources=[
        made(resource_type=kind, resource_name=name, configs=[made.Config(name=k, value=v)])
        for kind, name, k, v in (
            (ResourceType.BROKER, own, key, value),
            (ResourceType.TOPIC, "t", "segment.bytes", "2000000"),
        )
    ])
    with cluster.client(node_id) as client:
        codes = [each.error_code for each in client.call(whole, 2).responses]
    assert codes == [ErrorCode.INVALID_REQUEST, 0]
    assert settings_of(cluster, node_id, own) == {}
    good: Any = (ResourceType.BROKER, own, JAAS, f'{MODULE} user_bob="b";')
    assert change(cluster, node_id, good) == [(0, None)]


@pytest.mark.parametrize("away", [0, 1])
def test_a_broker_is_asked_for_its_own_settings_alone(
    cluster: RunningCluster, away: int
) -> None:
    controller = cluster.controller
    node_id = 3 - controller if away else controller
    other = (ResourceType.BROKER, str(3 - node_id), "max.connections", "500")
    ((code, message),) = change(cluster, node_id, other)
    assert code == ErrorCode.INVALID_REQUEST
    assert message == f"Unexpected broker id, expected {node_id}, but received {3 - node_id}"


def test_a_setting_is_changed_by_the_next_controller_where_this_one_is_replaced(
    cluster: RunningCluster,
) -> None:
    former = cluster.controller
    lose_next_write(cluster, cluster.sessions[former])
    own = (ResourceType.BROKER, str(former), "max.connections", "500")
    assert change(cluster, former, own) == [(0, None)]
    assert settings_of(cluster, former, str(former)) == {"max.connections": "500"}


def test_a_file_with_another_min_isr_than_the_clusters_is_told_that_it_has_no_effect(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker logs this at its start, and when it reads the file again."""
    cluster.stop(1)
    cluster.start(1, min_insync_replicas=2)
    assert (
        "min.insync.replicas=2 in this broker's file has no effect: the cluster's value is 1"
        in caplog.text
    )
    server = cluster.servers[2]
    sources = server.config.sources
    server.config.sources = sources._replace(
        overrides=[*sources.overrides, "min.insync.replicas=2", "log.retention.ms=77"])
    caplog.clear()
    caplog.set_level(logging.INFO, "ottla.server")
    cluster.run(server.reload())
    said = [each.getMessage() for each in caplog.records if each.name == "ottla.server"]
    assert "reload: log.retention.ms has changed from its default to 77" in said
    assert (
        "reload: in the file, min.insync.replicas has changed to 2, but the value from"
        " kafka-configs stays in use" in said
    )
