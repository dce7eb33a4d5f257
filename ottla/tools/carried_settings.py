"""The settings of topics that an import carries over.

Some settings decide which records are deleted. If one of them cannot be carried over, the import
is refused, because the first start might delete records. This applies to a topic's own settings,
and to those that it gets from the brokers' dynamic settings. If the settings are unknown, all
records are kept until an operator changes the settings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.topic import broker_value, check_topic_configs
from ottla.broker.topic_creation import internal_configs, is_internal
from ottla.replication.metadata import ConfigSet
from ottla.tools.findings import ImportRefused
from ottla.tools.kraft_image import KraftImage
from ottla.wire.errors import ProtocolError

KEEPING = (
    "cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms",
    "min.compaction.lag.ms",
)
"""The settings that decide which records are deleted."""
ELSEWHERE = "remote.storage.enable"
"""With this setting, a topic's older records may be in remote storage instead of its log."""
KEEP_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def carried_settings(
    image: KraftImage, names: Collection[str], node_id: int, notes: list[str]
) -> list[ConfigSet]:
    """The settings of the topics `names` in a controller's metadata. Adds notes about settings that
    are not carried over, and about brokers' defaults that become a topic's own settings. Raises
    ImportRefused."""
    layers = [image.configs.get(("broker", who), {}) for who in (str(node_id), "")]
    carried = []
    for name in sorted(names):
        own = image.configs.get(("topic", name), {})
        if is_internal(name):
            own = {**dict(internal_configs(BrokerConfig({}), name, 1)), **own}
        carried += _of_topic(name, own, notes)
        for setting in KEEPING:
            value = None if setting in own else broker_value(setting, layers)
            if value is not None:
                notes.append(f"topic {name} gets {setting}={value}, which was the brokers' default")
                carried += _of_topic(name, {setting: value}, notes)
    for (kind, resource), settings in image.configs.items():
        if kind != "topic" and settings:
            what = f"settings of {kind} {resource}"
            if not resource:
                what = f"default settings of all {kind}s"
            notes.append(f"{what} are not carried over: {settings}")
    return carried


def _of_topic(topic: str, settings: Mapping[str, str], notes: list[str]) -> list[ConfigSet]:
    carried = []
    for name, value in settings.items():
        try:
            check_topic_configs({name: value})
        except ProtocolError as error:
            if name in (*KEEPING, ELSEWHERE):
                raise ImportRefused(
                    f"topic {topic}: {name}={value} cannot be carried over: {error}. Without this"
                    " setting, records would be lost. Before the import, change the setting or"
                    " delete the topic in Kafka"
                ) from error
            notes.append(f"topic {topic}: {name}={value} is not carried over: {error}")
            continue
        carried.append(ConfigSet("topic", topic, name, value))
    return carried


def settings_unknown(names: Collection[str]) -> list[ConfigSet]:
    """Settings for topics that are known only from their directories: all records are kept, and
    internal topics have their usual settings."""
    return [
        ConfigSet("topic", topic, name, value)
        for topic in sorted(names)
        for name, value in (
            internal_configs(BrokerConfig({}), topic, 1) if is_internal(topic) else KEEP_ALL.items()
        )
    ]
