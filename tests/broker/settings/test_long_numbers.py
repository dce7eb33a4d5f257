"""Numbers of thousands of digits, which Python's `int` refuses. In names, settings and properties
they are refused with a proper error, whoever sends them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.declaration import SettingsError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterConfigsRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from tests.broker.running import NODE_ID, WireClient

LONG = "9" * 5000
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
HERE = str(NODE_ID)
REFUSED = {int(ErrorCode.INVALID_REQUEST), int(ErrorCode.INVALID_CONFIG)}


@pytest.mark.parametrize("kind", [BROKER, LOGGER])
@pytest.mark.parametrize("name", [LONG, f"-{LONG}", "4294967300"])
def test_a_broker_of_that_number_is_none(client: WireClient, kind: int, name: str) -> None:
    described: Any = DescribeConfigsRequest.Resource
    asked = DescribeConfigsRequest(resources=[described(resource_type=kind, resource_name=name)])
    assert client.call(asked, 4).results[0].error_code in REFUSED
    assert alter(client, kind, name, "max.connections", "1") in REFUSED


def alter(client: WireClient, kind: int, name: str, key: str, value: str) -> int:
    made = IncrementalAlterConfigsRequest.Resource
    resource = made(
        resource_type=kind, resource_name=name,
        configs=[made.Config(name=key, config_operation=0, value=value)],
    )
    code: int = client.call(
        IncrementalAlterConfigsRequest(resources=[resource]), 1
    ).responses[0].error_code
    return code


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (BROKER, HERE, "max.connections", LONG),
        (BROKER, "", "max.connections", LONG),
        (BROKER, HERE, "max.connections.per.ip.overrides", f"192.0.2.1:{LONG}"),
        (METRICS, "m", "interval.ms", LONG),
        (GROUP, "g", "consumer.session.timeout.ms", LONG),
    ],
)
def test_a_setting_is_refused(
    client: WireClient, kind: int, name: str, key: str, value: str
) -> None:
    assert alter(client, kind, name, key, value) in REFUSED


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", LONG),
        ("retention.ms", f"-{LONG}"),
        # An earlier version stored it. Then no broker of a cluster could read the metadata.
        ("leader.replication.throttled.replicas", f"{LONG}:{NODE_ID}"),
        ("follower.replication.throttled.replicas", f"0:{LONG}"),
    ],
)
def test_a_topics_setting_is_refused(client: WireClient, key: str, value: str) -> None:
    made = CreateTopicsRequest.Topic
    one = made(
        name="long", num_partitions=1, replication_factor=1,
        configs=[made.Config(name=key, value=value)],
    )
    answer = client.call(CreateTopicsRequest(topics=[one], timeout_ms=1000), 5).topics[0]
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    resource = AlterConfigsRequest.Resource
    changed = resource(
        resource_type=TOPIC, resource_name="none",
        configs=[resource.Config(name=key, value=value)],
    )
    assert client.call(AlterConfigsRequest(resources=[changed]), 2).responses[0].error_code


@pytest.mark.parametrize(
    "property",
    [
        f"listeners=PLAINTEXT://127.0.0.1:{LONG}", f"ottla.http.listener=127.0.0.1:{LONG}",
        f"num.partitions={LONG}", f"max.connections.per.ip.overrides=192.0.2.1:{LONG}",
        f"log.retention.ms={LONG}",
    ],
    ids=lambda text: text.partition("=")[0],
)
def test_a_property_is_refused_by_name(tmp_path: Path, property: str) -> None:
    with pytest.raises(SettingsError, match=property.partition("=")[0]):
        BrokerConfig.load(None, [f"log.dirs={tmp_path}", property])
