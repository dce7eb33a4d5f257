"""The broker's settings for groups: the constraints between them, and their effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.coordination.group_coordinator import settings_from
from ottla.broker.settings.config import BrokerConfig, SettingsError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
)
from tests.broker.running import RunningBroker, WireClient

GROUP, SET, DELETE = 32, 0, 1


def config(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(None, [f"group.{each}" for each in overrides])


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["consumer.session.timeout.ms=44999"], "consumer.session.timeout.ms"),
        (["consumer.session.timeout.ms=60001"], "consumer.session.timeout.ms"),
        (["consumer.heartbeat.interval.ms=4999"], "consumer.heartbeat.interval.ms"),
        (["consumer.heartbeat.interval.ms=15001"], "consumer.heartbeat.interval.ms"),
        (["consumer.max.session.timeout.ms=44999"], "consumer.max.session.timeout.ms"),
        (
            ["consumer.min.session.timeout.ms=1", "consumer.session.timeout.ms=5000"],
            "consumer.heartbeat.interval.ms",
        ),
        (["coordinator.rebalance.protocols=consumer"], "coordinator.rebalance.protocols"),
        (["coordinator.rebalance.protocols=classic,best"], "coordinator.rebalance.protocols"),
        (["consumer.assignors=best"], "consumer.assignors"),
        (["consumer.assignors="], "consumer.assignors"),
        (["consumer.migration.policy=sideways"], "consumer.migration.policy"),
    ],
)
def test_settings_that_contradict_each_other_stop_the_start(
    overrides: list[str], named: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        config(*overrides)
    assert refused.value.name == f"group.{named}"


def test_what_the_coordinator_gets_is_what_was_set() -> None:
    broker = config(
        "consumer.assignors=org.apache.kafka.coordinator.group.assignor.RangeAssignor,uniform",
        "consumer.migration.policy=UPGRADE",
        "consumer.max.session.timeout.ms=70000",
    )
    assert broker.warnings == []
    settings = settings_from(broker)
    assert settings.group_consumer_assignors == ("range", "uniform")
    assert settings.group_consumer_migration_policy == "upgrade"
    assert settings.group_consumer_max_session_timeout_ms == 70_000


def test_protocols_that_are_not_served_are_told_where_they_are_asked_for() -> None:
    assert config("coordinator.rebalance.protocols=classic,consumer").warnings == []
    [warning] = config("coordinator.rebalance.protocols=classic,consumer,share").warnings
    assert "share" in warning and "consumer" not in warning


def test_a_broker_may_do_without_consumer_groups_of_kip_848(data: Path) -> None:
    setting = {"group_coordinator_rebalance_protocols": "classic"}
    with RunningBroker(data, **setting) as broker, WireClient(broker.address) as client:
        found = client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        assert found.coordinators[0].error_code == 0
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", rebalance_timeout_ms=1000, topic_partitions=[],
            subscribed_topic_names=["t"],
        )
        assert client.call(beat, 1).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("consumer.session.timeout.ms", "45000", 0),
        ("consumer.session.timeout.ms", "44999", ErrorCode.INVALID_CONFIG),
        ("consumer.session.timeout.ms", "60001", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", "15000", 0),
        ("consumer.heartbeat.interval.ms", "15001", ErrorCode.INVALID_CONFIG),
        ("consumer.heartbeat.interval.ms", "soon", ErrorCode.INVALID_CONFIG),
        ("consumer.assignment.interval.ms", "1000", ErrorCode.INVALID_CONFIG),
        ("share.auto.offset.reset", "earliest", ErrorCode.INVALID_CONFIG),
        ("unheard.of", "1", ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_groups_own_settings_stay_within_the_brokers_limits(
    client: WireClient, name: str, value: str, code: int
) -> None:
    made = IncrementalAlterConfigsRequest.Resource
    change = made.Config(name=name, config_operation=SET, value=value)
    resource = made(resource_type=GROUP, resource_name="g", configs=[change])
    [answer] = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == code


def test_a_groups_session_timeout_is_longer_than_its_heartbeat_interval(data: Path) -> None:
    """As in Kafka, the broker's value counts for the one of the two that the group does not set."""
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    limits = {
        "group_consumer_min_session_timeout_ms": 6000, "group_consumer_session_timeout_ms": 12_000}
    made = IncrementalAlterConfigsRequest.Resource
    with RunningBroker(data, **limits) as broker, WireClient(broker.address) as client:
        for settings, allowed in (
            ({interval: "12000"}, False),
            ({interval: "11999"}, True),
            ({session: "11999"}, False),
            ({session: "15000", interval: "15000"}, False),
            ({session: "15001", interval: "15000"}, True),
            ({session: None}, False),
            ({session: None, interval: None}, True),
            ({session: "6000"}, True),
        ):
            changes = [
                made.Config(name=name, config_operation=SET if value else DELETE, value=value)
                for name, value in settings.items()
            ]
            resource = made(resource_type=GROUP, resource_name="g", configs=changes)
            request = IncrementalAlterConfigsRequest(resources=[resource])
            [answer] = client.call(request, 1).responses
            assert answer.error_code == (0 if allowed else ErrorCode.INVALID_CONFIG), settings
            if not allowed:
                assert answer.error_message == f"{session} must be greater than {interval}"


def test_a_member_is_told_the_interval_of_its_group(
    client: WireClient, topic: str
) -> None:
    client.call(FindCoordinatorRequest(coordinator_keys=["told"]), 4)
    made = IncrementalAlterConfigsRequest.Resource
    change = made.Config(
        name="consumer.heartbeat.interval.ms", config_operation=SET, value="12345"
    )
    resource = made(resource_type=GROUP, resource_name="told", configs=[change])
    client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    beat = ConsumerGroupHeartbeatRequest(
        group_id="told", member_id="m", rebalance_timeout_ms=1000, topic_partitions=[],
        subscribed_topic_names=[topic],
    )
    answer = client.call(beat, 1)
    assert (answer.error_code, answer.heartbeat_interval_ms) == (0, 12_345)
