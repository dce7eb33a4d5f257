"""Log levels over the wire (KIP-412): requests read and change the levels of one process only."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from tests.broker.running import NODE_ID, WireClient

HERE = str(NODE_ID)
BROKER_LOGGER, FROM_LOGGER, UNKNOWN_TYPE = 8, 6, 0
SET, DELETE, APPEND, SUBTRACT = range(4)
NAME = "ottla.dispatch"


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger(NAME)]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def alter(client: WireClient, *changes: tuple[str, int, str | None], node: str = HERE) -> int:
    made = IncrementalAlterConfigsRequest.Resource
    configs = [
        made.Config(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    resource = made(resource_type=BROKER_LOGGER, resource_name=node, configs=configs)
    [answer] = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    code: int = answer.error_code
    return code


def levels(client: WireClient, *names: str, node: str = HERE) -> dict[str, str] | int:
    resource = DescribeConfigsRequest.Resource(
        resource_type=BROKER_LOGGER, resource_name=node, configuration_keys=list(names) or None
    )
    [result] = client.call(DescribeConfigsRequest(resources=[resource]), 4).results
    if result.error_code:
        return int(result.error_code)
    for entry in result.configs:
        assert (entry.config_source, entry.config_type) == (FROM_LOGGER, UNKNOWN_TYPE)
        assert not entry.read_only
    return {entry.name: entry.value for entry in result.configs}


def test_every_logger_is_told_with_the_level_that_counts(client: WireClient) -> None:
    logging.getLogger().setLevel(logging.WARNING)
    told = levels(client)
    assert isinstance(told, dict)
    assert told["root"] == "WARN"
    assert {NAME, "ottla.listener", "asyncio"} <= told.keys()
    assert levels(client, NAME) == {NAME: "WARN"}, "its parent's"


@pytest.mark.parametrize(
    ("name", "level"),
    [("TRACE", 5), ("DEBUG", 10), ("INFO", 20), ("WARN", 30), ("ERROR", 40), ("FATAL", 50)],
)
def test_a_level_is_set_at_once(client: WireClient, name: str, level: int) -> None:
    assert alter(client, (NAME, SET, name)) == 0
    assert logging.getLogger(NAME).getEffectiveLevel() == level
    assert levels(client, NAME) == {NAME: name}


def test_a_level_that_is_deleted_is_the_parents(client: WireClient) -> None:
    assert alter(client, ("root", SET, "ERROR"), (NAME, SET, "DEBUG")) == 0
    assert levels(client, NAME, "root") == {NAME: "DEBUG", "root": "ERROR"}
    assert alter(client, (NAME, DELETE, None)) == 0
    assert levels(client, NAME) == {NAME: "ERROR"}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((NAME, SET, "debug"), ErrorCode.INVALID_CONFIG),
        ((NAME, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((NAME, SET, None), ErrorCode.INVALID_REQUEST),
        ((NAME, APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST),
        ((NAME, SUBTRACT, "DEBUG"), ErrorCode.INVALID_REQUEST),
        ((NAME, 9, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        (("no.such.logger", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("no.such.logger", DELETE, None), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_change_that_cannot_be_leaves_the_others_undone(
    client: WireClient, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    before = levels(client)
    assert alter(client, ("ottla.listener", SET, "FATAL"), change) == code
    assert levels(client) == before, "and no logger was made"


def test_only_this_brokers_loggers_can_be_asked_for_and_set(client: WireClient) -> None:
    for node in ("", "7", "x"):
        assert levels(client, node=node) == ErrorCode.INVALID_REQUEST
        assert alter(client, (NAME, SET, "INFO"), node=node) == ErrorCode.INVALID_REQUEST
    twice = alter(client, (NAME, SET, "INFO"), (NAME, SET, "DEBUG"))
    assert twice == ErrorCode.INVALID_REQUEST


def test_alter_configs_does_not_replace_all_levels(client: WireClient) -> None:
    resource = AlterConfigsRequest.Resource(
        resource_type=BROKER_LOGGER, resource_name=HERE, configs=[]
    )
    [answer] = client.call(AlterConfigsRequest(resources=[resource]), 2).responses
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_each_broker_is_listed_as_one_with_loggers(client: WireClient) -> None:
    asked = ListConfigResourcesRequest(resource_types=[BROKER_LOGGER])
    found = client.call(asked, 1).config_resources
    assert [(each.resource_type, each.resource_name) for each in found] == [(BROKER_LOGGER, HERE)]
