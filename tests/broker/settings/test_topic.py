"""A topic's settings: Kafka's names, types and limits, and what a topic may set."""

from __future__ import annotations

import pytest

from ottla.broker.settings.declaration import Long, Settings, SettingsError, setting
from ottla.broker.settings.kafka_settings import kafka_settings
from ottla.broker.settings.topic import TopicConfig, check_topic_configs, log_config
from ottla.log.partition.config import LogConfig
from ottla.wire.errors import ErrorCode, InvalidConfig


def test_every_topic_setting_of_kafka_is_declared() -> None:
    assert set(TopicConfig.declared) == set(kafka_settings("topic"))


@pytest.mark.parametrize("name", sorted(kafka_settings("topic")))
def test_topic_settings_are_as_kafka_has_them(name: str) -> None:
    ours, theirs = TopicConfig.declared[name], kafka_settings("topic")[name].setting
    for part in ("kind", "default", "at_least", "at_most", "also", "one_of", "synonyms"):
        assert getattr(ours, part) == getattr(theirs, part), part
    assert ours.attribute == name.replace(".", "_")


def test_a_topic_that_sets_nothing_has_the_defaults_of_log_config() -> None:
    assert log_config({}, {}) == LogConfig()


def test_every_field_of_log_config_is_a_topic_setting_but_the_producers_expiry() -> None:
    declared = {each.attribute for each in TopicConfig.declared.values()}
    assert set(LogConfig._fields) - declared == {"producer_id_expiration_ms"}


def test_a_topics_own_setting_counts_before_the_brokers() -> None:
    made = log_config(
        {"retention.ms": "-1", "cleanup.policy": "compact,delete"},
        {"retention.ms": "5", "segment.bytes": "2000000"}, 77,
    )
    assert (made.retention_ms, made.segment_bytes, made.producer_id_expiration_ms) == (
        -1, 2_000_000, 77,
    )
    assert made.compacts and made.deletes


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": "-2"},
        {"retention.ms": ""},
        {"segment.bytes": "1048575"},
        {"no.such.setting": "1"},
        {"cleanup.policy": "shred"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
        {"remote.storage.enable": "true"},
        {"errors.deadletterqueue.group.enable": "true"},
        {"compression.type": "brotli"},
        {"compression.gzip.level": "0"},
        {"max.decompressed.message.bytes": "0"},
        {"leader.replication.throttled.replicas": "0-1"},
        {"leader.replication.throttled.replicas": "0:1,*"},
        {"leader.replication.throttled.replicas": "*,0:1"},
        {"follower.replication.throttled.replicas": "*,*"},
        {"cleanup.policy": "compact,,delete"},
        {"min.insync.replicas": "0"},
    ],
    ids=str,
)
def test_what_a_topic_may_not_set_is_refused_by_name(configs: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig) as raised:
        check_topic_configs(configs)
    assert raised.value.code == ErrorCode.INVALID_CONFIG
    assert raised.value.message.startswith(next(iter(configs)))


@pytest.mark.parametrize(
    "configs",
    [
        {"retention.ms": "-1", "cleanup.policy": "compact, delete"},
        {"message.format.version": "3.0-IV1"},
        {"leader.replication.throttled.replicas": "0:1,1:2"},
        {"follower.replication.throttled.replicas": "*"},
        {"leader.replication.throttled.replicas": "0:1,0:1"},
        {"cleanup.policy": "compact,compact"},
        {"compression.gzip.level": "-1"},
    ],
    ids=str,
)
def test_what_a_topic_may_set_is_taken(configs: dict[str, str]) -> None:
    check_topic_configs(configs)


class Example(Settings):
    """Settings for the tests of the declarations themselves."""

    some_long: Long | None = setting("some.long", None, at_least=0, help="A long.")
    some_int: int = setting("some.int", 4, help="An int.")


def test_the_annotation_says_the_type_and_whether_none_is_one() -> None:
    assert Example.declared["some.long"].kind == "long" and Example.declared["some.long"].nullable
    assert Example.declared["some.int"].kind == "int" and not Example.declared["some.int"].nullable
    assert Example({}).some_long is None
    assert Example({"some.long": " 9 "}).some_long == 9
    with pytest.raises(SettingsError, match=r"some\.int: '9999999999' is not allowed"):
        Example({"some.int": "9999999999"})
