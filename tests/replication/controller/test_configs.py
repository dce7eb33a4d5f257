"""Decisions about settings: a resource changes as a whole, and only as its rules allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.replication.controller.configs import (
    Alteration,
    ConfigChange,
    ConfigRules,
    Operation,
    alter_configs,
)
from ottla.replication.metadata import ConfigSet, MetadataImage
from ottla.wire.errors import ErrorCode, InvalidConfig
from tests.replication.images import brokers, with_topics


def refuse_bad(name: str, configs: Mapping[str, str], changed: frozenset[str]) -> None:
    if "bad" in configs.values():
        raise InvalidConfig("a bad value")


RULES = {
    kind: ConfigRules(lambda name: "one" if name == "list" else None, refuse_bad)
    for kind in ("topic", "broker", "group", "client-metrics")
}


def setting(name: str, value: str | None, operation: int = Operation.SET) -> ConfigChange:
    return ConfigChange(name, operation, value)


def alter(image: MetadataImage, *changes: ConfigChange, **fields: Any) -> Any:
    alteration = Alteration("topic", "t", changes, **fields)
    return alter_configs(image, [alteration], RULES)


def after(image: MetadataImage, *changes: ConfigChange, **fields: Any) -> dict[str, str]:
    decision = alter(image, *changes, **fields)
    assert decision.result == [None]
    return dict(image.apply(decision.records).config_of("topic", "t"))


@pytest.fixture
def image() -> MetadataImage:
    """A topic with two settings of its own."""
    made = with_topics(brokers(1), t=1)
    return made.apply([ConfigSet("topic", "t", "a", "1"), ConfigSet("topic", "t", "b", "2")])


def test_set_and_delete_leave_the_other_settings_alone(image: MetadataImage) -> None:
    assert after(image, setting("a", "9")) == {"a": "9", "b": "2"}
    assert after(image, setting("a", None, Operation.DELETE)) == {"b": "2"}
    both = after(image, setting("a", "x", Operation.DELETE), setting("c", ""))
    assert both == {"b": "2", "c": ""}


def test_replacing_drops_what_is_not_named(image: MetadataImage) -> None:
    assert after(image, setting("a", "9"), replace=True) == {"a": "9"}
    assert after(image, replace=True) == {}


def test_what_stays_the_same_is_not_written_again(image: MetadataImage) -> None:
    assert not alter(image, setting("a", "1")).records
    assert not alter(image, setting("nothing", None, Operation.DELETE)).records


def test_lists_are_extended_from_their_default_and_shortened(image: MetadataImage) -> None:
    assert after(image, setting("list", "two", Operation.APPEND))["list"] == "one,two"
    assert after(image, setting("list", "one", Operation.APPEND))["list"] == "one"
    assert after(image, setting("list", "one, x", Operation.SUBTRACT))["list"] == ""
    longer = image.apply([ConfigSet("topic", "t", "list", "p,q,r")])
    assert after(longer, setting("list", "q", Operation.SUBTRACT))["list"] == "p,r"
    assert after(longer, setting("list", "s,p", Operation.APPEND))["list"] == "p,q,r,s"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([setting("a", None)], ErrorCode.INVALID_REQUEST),
        ([setting("list", None, Operation.APPEND)], ErrorCode.INVALID_REQUEST),
        ([setting("a", "1"), setting("a", "2")], ErrorCode.INVALID_REQUEST),
        ([setting("a", "1", 9)], ErrorCode.INVALID_REQUEST),
        ([setting("a", "1", -1)], ErrorCode.INVALID_REQUEST),
        ([setting("a", "1", Operation.APPEND)], ErrorCode.INVALID_CONFIG),
        ([setting("a", "1", Operation.SUBTRACT)], ErrorCode.INVALID_CONFIG),
        ([setting("a", "5"), setting("c", "bad")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_refused_change_keeps_the_whole_resource(
    image: MetadataImage, changes: list[ConfigChange], code: int
) -> None:
    decision = alter(image, *changes)
    assert decision.result[0].code == code
    assert not decision.records


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        ("topic", "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("topic", "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("topic", "", ErrorCode.INVALID_REQUEST),
        ("group", "", ErrorCode.INVALID_REQUEST),
        ("client-metrics", "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_need_something_that_has_them(
    image: MetadataImage, kind: str, name: str, code: int
) -> None:
    decision = alter_configs(image, [Alteration(kind, name, [setting("a", "1")])], RULES)
    assert decision.result[0] is not None and decision.result[0].code == code


def test_one_refused_resource_does_not_hold_up_the_others(image: MetadataImage) -> None:
    decision = alter_configs(
        image,
        [
            Alteration("topic", "t", [setting("a", "bad")]),
            Alteration("broker", "", [setting("a", "7")]),
            Alteration("group", "g", [setting("a", "8")]),
        ],
        RULES,
    )
    assert [error and error.code for error in decision.result] == [
        ErrorCode.INVALID_CONFIG, None, None,
    ]
    changed = image.apply(decision.records)
    assert changed.config_of("broker", "") == {"a": "7"}
    assert changed.config_of("group", "g") == {"a": "8"}


def test_a_resource_named_twice_is_refused_both_times(image: MetadataImage) -> None:
    twice = [Alteration("topic", "t", [setting("a", str(value))]) for value in (1, 2)]
    decision = alter_configs(image, twice, RULES)
    assert [e and e.code for e in decision.result] == [ErrorCode.INVALID_REQUEST] * 2
    assert not decision.records


def test_changes_can_be_tried_without_making_them(image: MetadataImage) -> None:
    alteration = Alteration("topic", "t", [setting("a", "9")])
    decision = alter_configs(image, [alteration], RULES, validate_only=True)
    assert decision.result == [None]
    assert not decision.records
