"""The settings of a topic, with Kafka's names, and the LogConfig of a partition made from them.

Settings that a topic does not set itself come from the broker. Each setting names the broker's
properties of the same meaning, and the first of these properties that is set applies. `*60000`
after a name is the factor that converts the broker's value to milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from ottla.broker.settings.declaration import (
    Long,
    Names,
    Settings,
    SettingsError,
    days,
    did_you_mean,
    entries_of,
    setting,
)
from ottla.log.partition.config import LogConfig
from ottla.wire.errors import InvalidConfig

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
ARRAY_MAX = INT_MAX - 8
"""The longest array of a JVM; Kafka allows a record to be that large."""
REPLICA = re.compile("[0-9]{1,10}:[0-9]{1,10}")
"""A throttled replica, as partition:broker."""
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

REMOVED = (
    "message.format.version",
    "message.downconversion.enable",
    "message.timestamp.difference.max.ms",
)
"""Settings that Kafka 4.0 removed and old scripts still send; accepted without effect."""

NOT_TIERED = "Ottla has no tiered storage; without it Kafka ignores this setting, too."
IDLE = {
    "local.retention.bytes": NOT_TIERED,
    "local.retention.ms": NOT_TIERED,
    "remote.copy.lag.bytes": NOT_TIERED,
    "remote.copy.lag.ms": NOT_TIERED,
    "remote.log.copy.disable": NOT_TIERED,
    "remote.log.delete.on.disable": NOT_TIERED,
}
"""Settings that may be set as in Kafka but have no effect here, with the reason."""

REFUSED = {
    "errors.deadletterqueue.group.enable": "this broker has no dead letter queues of share groups",
    "remote.storage.enable": "this broker has no tiered storage",
}
"""Switches of features that Ottla lacks, with the reason that is given if one is set to true."""


class TopicConfig(Settings):
    """A topic's settings as in Kafka 4.4."""

    cleanup_policy: Names = setting(
        "cleanup.policy", ("delete",), one_of=("compact", "delete"),
        synonyms=("log.cleanup.policy",),
        help="delete: old segments are deleted; compact: the newest record of each key is kept; or"
        " both.")
    compression_gzip_level: int = setting(
        "compression.gzip.level", -1, at_least=1, at_most=9, also=(-1,),
        synonyms=("compression.gzip.level",), help="Level if compression.type is gzip.")
    compression_lz4_level: int = setting(
        "compression.lz4.level", 9, at_least=1, at_most=17, synonyms=("compression.lz4.level",),
        help="Level if compression.type is lz4.")
    compression_type: str = setting(
        "compression.type", "producer", one_of=COMPRESSION_TYPES, synonyms=("compression.type",),
        help="Codec of the stored batches; batches in another codec are recompressed.")
    compression_zstd_level: int = setting(
        "compression.zstd.level", 3, at_least=-131072, at_most=22,
        synonyms=("compression.zstd.level",), help="Level if compression.type is zstd.")
    delete_retention_ms: Long = setting(
        "delete.retention.ms", days(1), at_least=0, synonyms=("log.cleaner.delete.retention.ms",),
        help="How long a compacted topic keeps tombstones of deleted keys.")
    errors_deadletterqueue_group_enable: bool = setting(
        "errors.deadletterqueue.group.enable", False,
        help="Dead letter queues of share groups; Ottla has none, so true is refused.")
    file_delete_delay_ms: Long = setting(
        "file.delete.delay.ms", 60_000, at_least=0, synonyms=("log.segment.delete.delay.ms",),
        help="How long the file of a deleted segment is kept for current readers.")
    flush_messages: Long = setting(
        "flush.messages", LONG_MAX, at_least=1, synonyms=("log.flush.interval.messages",),
        help="Maximum records without a flush; a Produce request that reaches this number is"
        " answered after the flush.")
    flush_ms: Long = setting(
        "flush.ms", LONG_MAX, at_least=0,
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        help="Flush to the disk after this time, in addition to the flushes of acks=all.")
    follower_replication_throttled_replicas: Names = setting(
        "follower.replication.throttled.replicas", (),
        help="Follower replicas, as partition:broker or *, to which"
        " follower.replication.throttled.rate applies.")
    index_interval_bytes: int = setting(
        "index.interval.bytes", 4096, at_least=0, synonyms=("log.index.interval.bytes",),
        help="Bytes of records between two entries of the offset index.")
    leader_replication_throttled_replicas: Names = setting(
        "leader.replication.throttled.replicas", (),
        help="Leader replicas, as partition:broker or *, to which leader.replication.throttled.rate"
        " applies.")
    local_retention_bytes: Long = setting(
        "local.retention.bytes", -2, at_least=-2, synonyms=("log.local.retention.bytes",),
        help="Tiered storage: bytes to keep on the broker; -2 means retention.bytes.")
    local_retention_ms: Long = setting(
        "local.retention.ms", -2, at_least=-2, synonyms=("log.local.retention.ms",),
        help="Tiered storage: how long to keep records on the broker; -2 means retention.ms.")
    max_compaction_lag_ms: Long = setting(
        "max.compaction.lag.ms", LONG_MAX, at_least=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        help="Maximum time until a record is compacted.")
    max_decompressed_message_bytes: int = setting(
        "max.decompressed.message.bytes", ARRAY_MAX, at_least=1, at_most=ARRAY_MAX,
        synonyms=("max.decompressed.message.bytes",),
        help="Maximum bytes of a decompressed record; a decompressed batch may have up to 128 MiB.")
    max_message_bytes: int = setting(
        "max.message.bytes", 1_048_588, at_least=0, synonyms=("message.max.bytes",),
        help="Maximum bytes of a record batch, as it is sent and as it is stored.")
    message_timestamp_after_max_ms: Long = setting(
        "message.timestamp.after.max.ms", 3_600_000, at_least=0,
        synonyms=("log.message.timestamp.after.max.ms",),
        help="How far a record's timestamp may be ahead of the broker's clock.")
    message_timestamp_before_max_ms: Long = setting(
        "message.timestamp.before.max.ms", LONG_MAX, at_least=0,
        synonyms=("log.message.timestamp.before.max.ms",),
        help="How far a record's timestamp may be behind the broker's clock.")
    message_timestamp_type: str = setting(
        "message.timestamp.type", "CreateTime", one_of=("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
        help="Whether a record's timestamp is the client's create time or the broker's append"
        " time.")
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio", 0.5, at_least=0, at_most=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
        help="A log is compacted once more than this share of its bytes has not been compacted"
        " yet.")
    min_compaction_lag_ms: Long = setting(
        "min.compaction.lag.ms", 0, at_least=0, synonyms=("log.cleaner.min.compaction.lag.ms",),
        help="Minimum time before a record is compacted.")
    min_insync_replicas: int = setting(
        "min.insync.replicas", 1, at_least=1, synonyms=("min.insync.replicas",),
        help="How many replicas must be in sync for a write with acks=all. If the topic has"
        " fewer replicas, all of them must be in sync.")
    preallocate: bool = setting(
        "preallocate", False, synonyms=("log.preallocate",),
        help="Reserve the space of a segment when it is created, if the disk has that much.")
    remote_copy_lag_bytes: Long = setting(
        "remote.copy.lag.bytes", -1, at_least=-1, synonyms=("log.remote.copy.lag.bytes",),
        help="Tiered storage: how many bytes must follow a segment before it is copied.")
    remote_copy_lag_ms: Long = setting(
        "remote.copy.lag.ms", 0, at_least=-1, synonyms=("log.remote.copy.lag.ms",),
        help="Tiered storage: how old a segment must be before it is copied.")
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable", False, help="Tiered storage: stop copying.")
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable", False,
        help="Tiered storage: delete copied segments when tiered storage is disabled.")
    remote_storage_enable: bool = setting(
        "remote.storage.enable", False, help="Tiered storage; Ottla has none, so true is refused.")
    retention_bytes: Long = setting(
        "retention.bytes", -1, synonyms=("log.retention.bytes",),
        help="A partition's size above which old segments are deleted; -1 keeps all.")
    retention_ms: Long = setting(
        "retention.ms", days(7), at_least=-1,
        synonyms=("log.retention.ms", "log.retention.minutes*60000", "log.retention.hours*3600000"),
        help="How long records are kept; -1 keeps them for ever.")
    segment_bytes: int = setting(
        "segment.bytes", 1 << 30, at_least=1 << 20, synonyms=("log.segment.bytes",),
        help="A segment's size; whole segments are deleted or compacted.")
    segment_index_bytes: int = setting(
        "segment.index.bytes", 10 << 20, at_least=4, synonyms=("log.index.size.max.bytes",),
        help="The size of a segment's offset index; a full index ends its segment.")
    segment_jitter_ms: Long = setting(
        "segment.jitter.ms", 0, at_least=0,
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours*3600000"),
        help="Random reduction of segment.ms, so that segments do not all end at once.")
    segment_ms: Long = setting(
        "segment.ms", days(7), at_least=1, synonyms=("log.roll.ms", "log.roll.hours*3600000"),
        help="A segment ends after this time, full or not.")
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable", False, synonyms=("unclean.leader.election.enable",),
        help="Whether the live replica with the longest log becomes the leader 5 seconds after the"
        " last in-sync replica was lost; this may lose records.")


@cache
def synonyms_of(topic_setting: str) -> tuple[tuple[str, int], ...]:
    """The broker's properties for a topic's setting, each with the factor that converts it to the
    topic's unit."""
    pairs = (name.partition("*") for name in TopicConfig.declared[topic_setting].synonyms)
    return tuple((name, int(factor or 1)) for name, _, factor in pairs)


def broker_value(topic_setting: str, layers: Iterable[Mapping[str, str]]) -> str | None:
    """The value of the broker's properties for a topic's setting, in the topic's unit.

    A property in an earlier layer hides all properties of the same meaning in later layers.
    """
    for layer in layers:
        for name, factor in synonyms_of(topic_setting):
            if name in layer:
                return convert_unit(layer[name], factor)
    return None


def convert_unit(text: str, factor: int) -> str:
    """A broker's value in the topic's unit; a negative value becomes -1 if the units differ."""
    if factor == 1:
        return text
    return str(-1 if int(text) < 0 else int(text) * factor)


def defaults(layers: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The topic settings for which a property of the broker is set, in the topic's unit."""
    layers = [layer for layer in layers if layer]
    values = {name: broker_value(name, layers) for name in TopicConfig.declared} if layers else {}
    return {name: text for name, text in values.items() if text is not None}


RETENTION_OF_NOTHING = (
    "must not be 0: records of topics without a retention.ms of their own would be deleted at once;"
    " -1 keeps records for ever"
)
"""Kafka refuses this value as the broker's default, but accepts it as the setting of a topic."""


def check_defaults(properties: Mapping[str, str]) -> None:
    """Raise SettingsError about the first of a broker's properties that gives topics a default that
    they cannot have."""
    for declared in TopicConfig.declared.values():
        for name, factor in synonyms_of(declared.name):
            if name in properties:
                try:
                    value = declared.parse(convert_unit(properties[name], factor))
                    if declared.name == "retention.ms" and value == 0:
                        raise SettingsError(name, RETENTION_OF_NOTHING)
                except SettingsError as error:
                    problem = str(error).removeprefix(f"{declared.name}: ")
                    raise SettingsError(name, problem) from error
                break


def log_config(
    topic: Mapping[str, str],
    broker: Mapping[str, str],
    producer_id_expiration_ms: int = days(1),
) -> LogConfig:
    """The LogConfig of a topic: the settings in `topic` override those in `broker` (made by
    `defaults`)."""
    settings = TopicConfig({**broker, **topic})
    values: dict[str, Any] = vars(settings)
    config = {name: values[name] for name in LogConfig._fields if name in values}
    config["cleanup_policy"] = frozenset(settings.cleanup_policy)
    return LogConfig(**config, producer_id_expiration_ms=producer_id_expiration_ms)


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig if a topic may not have these settings."""
    try:
        for name, text in configs.items():
            if name in TopicConfig.declared:
                TopicConfig.declared[name].parse(text)
            elif name not in REMOVED:
                near = did_you_mean(name, TopicConfig.declared)
                raise SettingsError(name, f"unknown topic setting{near}")
        _check_together(configs)
    except SettingsError as error:
        raise InvalidConfig(str(error)) from error


def _check_together(configs: Mapping[str, str]) -> None:
    settings = TopicConfig(configs)
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
        raise SettingsError(
            "min.compaction.lag.ms", "must not be greater than max.compaction.lag.ms")
    for name, why in REFUSED.items():
        if settings.value(name):
            raise SettingsError(name, why)
    for side in ("leader", "follower"):
        name = f"{side}.replication.throttled.replicas"
        _check_replicas(name, entries_of(configs.get(name, "")))


def _check_replicas(name: str, replicas: Sequence[str]) -> None:
    if replicas == ["*"]:
        return
    for replica in replicas:
        if REPLICA.fullmatch(replica) is None:
            raise SettingsError(
                name,
                f"{replica!r} is not of the form partition:broker; for all replicas, set only *",
            )
