"""Decisions about settings: all changes of a resource are made, or none if one breaks a rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.replication.controller import configs
from ottla.replication.controller.configs import (
    Alteration,
    ConfigChange,
    ConfigRules,
    Operation,
    adopt_min_isr,
    alter_configs,
    forget_eligible,
)
from ottla.replication.controller.elections import MIN_ISR
from ottla.replication.metadata import (
    ConfigSet,
    ControllerElected,
    MetadataImage,
    PartitionExtra,
    PartitionState,
    TopicCreated,
)
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
    """An image with a topic that has two settings of its own."""
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
    longest = after(image, setting("list", "x" * 32_763, Operation.APPEND))["list"]
    assert len(longest) == 32_767, "as long as a reply of an old version can contain"
    assert after(image, setting("list", "one, x", Operation.SUBTRACT))["list"] == ""
    longer = image.apply([ConfigSet("topic", "t", "list", "p,q,r")])
    assert after(longer, setting("list", "q", Operation.SUBTRACT))["list"] == "p,r"
    assert after(longer, setting("list", "s,p", Operation.APPEND))["list"] == "p,q,r,s"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([setting("a", None)], ErrorCode.INVALID_REQUEST),
        ([setting("list", None, Operation.APPEND)], ErrorCode.INVALID_REQUEST),
        ([setting("list", "x" * 32_764, Operation.APPEND)], ErrorCode.INVALID_CONFIG),
        ([setting("a", "ä" * 16_384)], ErrorCode.INVALID_CONFIG),
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


def test_operations_have_kafkas_numbers() -> None:
    assert [(each.name, each.value) for each in Operation] == [
        ("SET", 0), ("DELETE", 1), ("APPEND", 2), ("SUBTRACT", 3)]


def test_nothing_is_appended_to_a_list_with_a_default_of_its_own(image: MetadataImage) -> None:
    decision = alter(image, setting("list", " , ", Operation.APPEND))
    assert decision.result[0].code == ErrorCode.INVALID_CONFIG
    empty = image.apply([ConfigSet("topic", "t", "list", "")])
    assert after(empty, setting("list", "", Operation.APPEND))["list"] == ""
    longer = image.apply([ConfigSet("topic", "t", "list", "x")])
    assert alter(longer, setting("list", "", Operation.APPEND)).result[0] is not None
    rules = {"topic": ConfigRules(lambda name: "", refuse_bad)}
    without = Alteration("topic", "t", [setting("list", "", Operation.APPEND)])
    assert alter_configs(image, [without], rules).result == [None]


def broker_setting(name: str, value: str | None, node: str = "", **fields: Any) -> Alteration:
    operation = Operation.DELETE if value is None else Operation.SET
    return Alteration("broker", node, [setting(name, value, operation)], **fields)


def test_a_brokers_setting_is_written_again_since_its_file_may_have_changed() -> None:
    image = brokers(1).apply([
        ConfigSet("broker", "1", "file", "a"), ConfigSet("broker", "", MIN_ISR, "2"),
        ConfigSet("broker", "1", "other", "b"),
    ])
    decision = alter_configs(image, [broker_setting("file", "a", "1")], RULES)
    assert decision.records == [ConfigSet("broker", "1", "file", "a")]
    decision = alter_configs(image, [broker_setting(MIN_ISR, "2")], RULES)
    assert decision.records == []


def cluster(**extra: PartitionExtra) -> MetadataImage:
    """A cluster with a controller, and topics of two partitions; the first partition of each topic
    has this `PartitionExtra`."""
    image = brokers(1, 2, 3).apply([ControllerElected(1, 1), ConfigSet("broker", "", MIN_ISR, "2")])
    return image.apply([
        TopicCreated(name, name.encode() * 16, (
            PartitionState(1, 0, (1, 2, 3), (1,), 0, each), PartitionState(1, 0, (1,), (1,)),
        )) for name, each in extra.items()
    ])


@pytest.mark.parametrize(("alteration", "reason"), [
    (broker_setting(MIN_ISR, "1", "1"), "Broker-level"),
    (broker_setting(MIN_ISR, None), "cannot be removed"),
    (Alteration("broker", "", [], replace=True), "cannot be removed"),
    (broker_setting("a", "1", replace=True), "cannot be removed"),
    (broker_setting(MIN_ISR, "1"), None),
    (broker_setting("a", "1"), None),
    (broker_setting("a", "1", "1"), None),
    (broker_setting("a", "1", "1", replace=True), None),
    (broker_setting(MIN_ISR, None, "1"), None),
], ids=str)
def test_a_cluster_has_one_min_isr_of_its_own(alteration: Alteration, reason: str | None) -> None:
    [error] = alter_configs(cluster(), [alteration], RULES).result
    assert (error is None) == (reason is None)
    assert error is None or (isinstance(error, InvalidConfig) and str(reason) in str(error))
    alone = brokers(1).apply([ConfigSet("broker", "", MIN_ISR, "2")])
    assert alter_configs(alone, [alteration], RULES).result == [None]


ELIGIBLE = PartitionExtra(elr=(2,), last_elr=(3,))


def eligible(image: MetadataImage) -> dict[str, PartitionExtra | None]:
    return {topic.name: topic.partitions[0].extra for topic in image.topics.values()}


def test_a_new_min_isr_leaves_nobody_eligible_where_it_counts() -> None:
    """With a lower value, the high watermark may advance without the eligible replicas."""
    image = cluster(t=ELIGIBLE, u=ELIGIBLE, v=PartitionExtra(doubtful=(1,)))

    def altered(alteration: Alteration) -> dict[str, PartitionExtra | None]:
        decision = alter_configs(image, [alteration], RULES)
        assert decision.result == [None]
        return eligible(image.apply(decision.records))

    untouched = eligible(image)
    assert altered(broker_setting(MIN_ISR, "1")) == {**untouched, "t": None, "u": None}
    assert altered(broker_setting(MIN_ISR, "2")) == untouched, "it is as it was"
    assert altered(broker_setting("a", "1")) == untouched
    of_topic = Alteration("topic", "u", [setting(MIN_ISR, "1")])
    assert altered(of_topic) == {**untouched, "u": None}
    assert altered(Alteration("topic", "u", [setting("a", "1")])) == untouched


@pytest.mark.parametrize("count", [1, 2, 3])
def test_those_eligible_are_forgotten_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(configs, "PARTITIONS_AT_A_TIME", 2)
    image = cluster(**dict.fromkeys("tuv"[:count], ELIGIBLE))
    alteration = broker_setting(MIN_ISR, "1")
    decision = forget_eligible(image, alteration, RULES)
    assert decision.result == (count > 2)
    assert len(decision.records) == min(count, 2)
    left = image.apply(decision.records)
    assert left.configs == image.configs
    assert list(eligible(left).values()) == [None, None, ELIGIBLE][:count]
    refused = broker_setting(MIN_ISR, "bad")
    assert forget_eligible(image, refused, RULES) == ((), False)


def test_the_first_controllers_min_isr_is_the_clusters() -> None:
    image = brokers(1).apply([ConfigSet("broker", "1", MIN_ISR, "3")])
    decision = adopt_min_isr(image, 2)
    assert decision.records == [ConfigSet("broker", "", MIN_ISR, "2")]
    assert adopt_min_isr(image.apply(decision.records), 1).records == ()
