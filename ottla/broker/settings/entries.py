"""The value of each setting and its sources, in Kafka's order, for DescribeConfigs.

The value of a topic's setting is the topic's own, or that of a broker's property with the same
meaning, or Kafka's default. The broker's property may be set for this broker, for all brokers, or
in server.properties; the first of these wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING

from ottla.broker.settings.broker import DYNAMIC
from ottla.broker.settings.declaration import Setting, SettingsError
from ottla.broker.settings.kafka_settings import kafka_settings
from ottla.broker.settings.listener_settings import bare_name, is_dynamic
from ottla.broker.settings.loggers import levels
from ottla.broker.settings.topic import TopicConfig, convert_unit, synonyms_of
from ottla.replication.metadata import MetadataImage

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext


class ResourceType(IntEnum):
    """Kafka's numbers of the resource types that have settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """The source of a value, with Kafka's numbers."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    STATIC = 4
    DEFAULT = 5
    LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


TYPES = {
    "unknown": 0, "boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6,
    "list": 7, "class": 8, "password": 9,
}
"""Kafka's numbers of the types (KIP-226, KIP-569)."""
NODE_IDS = frozenset({"node.id", "broker.id"})
"""Two names of one number: if only one is set, the other one has the same value."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that applies if the values before it are missing; it has its own name and unit."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting of a resource in DescribeConfigs. The value of a secret is None."""

    name: str
    value: str | None
    source: Source
    kind: str
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    documentation: str


Layers = list[tuple[Source, Mapping[str, str]]]


def broker_layers(broker: BrokerContext, image: MetadataImage) -> Layers:
    """The broker's properties, by descending precedence."""
    return [
        (Source.BROKER, image.config_of("broker", str(broker.node_id))),
        (Source.ALL_BROKERS, image.config_of("broker", "")),
        (Source.STATIC, broker.config.static),
    ]


def topic_entries(
    broker: BrokerContext, image: MetadataImage, own: Mapping[str, str]
) -> Iterator[Entry]:
    """All settings of a topic; `own` are those that the topic sets itself."""
    layers = broker_layers(broker, image)
    for name, setting in TopicConfig.declared.items():
        names = synonyms_of(name)
        synonyms: list[tuple[Synonym, int]] = []
        if name in own:
            text = own[name]
            if setting.kind == "list":
                text = setting.text(setting.parse(text)) or ""
            synonyms.append((Synonym(name, text, Source.TOPIC), 1))
        synonyms += [
            (Synonym(synonym, layer[synonym], source), factor)
            for source, layer in layers
            for synonym, factor in names
            if synonym in layer
        ]
        synonyms += _defaults(name)
        standard = Synonym(name, setting.text(setting.default), Source.DEFAULT)
        first, factor = synonyms[0] if synonyms else (standard, 1)
        value = None if first.value is None else convert_unit(first.value, factor)
        if factor == 1:
            value = _as_parsed(setting, value)
        yield Entry(
            name, value, first.source, setting.kind, False, setting.sensitive,
            tuple(
                synonym for synonym, factor in synonyms
                if factor == 1 or synonym.source != Source.DEFAULT
            ),
            setting.help,
        )


@cache
def _defaults(topic_setting: str) -> tuple[tuple[Synonym, int], ...]:
    """The defaults of the broker's properties that correspond to a topic's setting."""
    known = kafka_settings("broker")
    return tuple(
        (Synonym(name, setting.text(setting.default), Source.DEFAULT), factor)
        for setting, name, factor in (
            (known[name].setting, name, factor)
            for name, factor in synonyms_of(topic_setting) if name in known
        )
        if setting.default is not None
    )


def broker_entries(broker: BrokerContext, image: MetadataImage) -> Iterator[Entry]:
    """All settings of this broker: Kafka's, Ottla's own, and others that were set. A listener's
    settings have the broker's settings as synonyms."""
    *layers, (_, static) = broker_layers(broker, image)
    if NODE_IDS & static.keys():
        static = {**static, **dict.fromkeys(NODE_IDS, str(broker.node_id))}
    layers.append((Source.STATIC, static))
    known, meanings = kafka_settings("broker"), _meanings()
    declared = broker.config.declared
    names = dict.fromkeys([*known, *declared, *(n for _, layer in layers for n in layer)])
    for name in sorted(names):
        bare = bare_name(name)
        setting = declared.get(bare) or (known[bare].setting if bare in known else None)
        read_only = known[name].update == "read-only" if name in known else name not in DYNAMIC
        same = meanings.get(name, (name,))
        synonyms = [
            Synonym(other, layer[other], source)
            for source, layer in layers
            for other in same
            if other in layer
        ]
        if bare != name:                    # a listener's value wins, whatever its source
            read_only, same = not is_dynamic(name), (bare,)
            synonyms += [Synonym(bare, layer[bare], s) for s, layer in layers if bare in layer]
        for other in same:
            standard = known[other].setting if other in known else declared.get(other)
            if standard is not None and standard.default is not None:
                synonyms.append(Synonym(other, standard.text(standard.default), Source.DEFAULT))
        yield _entry(name, setting, synonyms, read_only and setting is not None, own_unit=True)


@cache
def _meanings() -> dict[str, tuple[str, ...]]:
    """For each property: itself, and the properties of the same meaning that apply if it is not
    set, such as log.retention.ms, .minutes, .hours."""
    chains: dict[str, tuple[str, ...]] = {}
    for topic_setting in TopicConfig.declared:
        names = tuple(synonym for synonym, _ in synonyms_of(topic_setting))
        for at, name in enumerate(names):
            chains.setdefault(name, names[at:])
    return chains


def all_brokers_entries(image: MetadataImage) -> Iterator[Entry]:
    """The settings that were set at run time for all brokers."""
    known = kafka_settings("broker")
    for name, value in sorted(image.config_of("broker", "").items()):
        bare = bare_name(name)
        setting = known[bare].setting if bare in known else None
        yield _entry(name, setting, [Synonym(name, value, Source.ALL_BROKERS)], False)


def group_entries(
    broker: BrokerContext, image: MetadataImage, own: Mapping[str, str]
) -> Iterator[Entry]:
    """All settings of a group."""
    layers = broker_layers(broker, image)
    known = kafka_settings("broker")
    for name, group_setting in kafka_settings("group").items():
        setting = group_setting.setting
        synonyms = [Synonym(name, own[name], Source.GROUP)] if name in own else []
        for other in setting.synonyms:
            synonyms += [
                Synonym(other, layer[other], source) for source, layer in layers if other in layer
            ]
            standard = known[other].setting
            synonyms.append(Synonym(other, standard.text(standard.default), Source.DEFAULT))
        if not setting.synonyms:
            synonyms.append(Synonym(name, setting.text(setting.default), Source.DEFAULT))
        yield _entry(name, setting, synonyms, False)


def client_metrics_entries(own: Mapping[str, str]) -> Iterator[Entry]:
    """All settings of a subscription to client metrics (KIP-714)."""
    for name, known in kafka_settings("client-metrics").items():
        synonyms = [Synonym(name, own[name], Source.CLIENT_METRICS)] if name in own else []
        setting = known.setting
        if synonyms:
            yield _entry(name, setting, synonyms, False)
        else:
            default = setting.text(setting.default)
            yield Entry(name, default, Source.DEFAULT, setting.kind, False, False, (), setting.help)


def logger_entries() -> Iterator[Entry]:
    """The level of every logger of this process (KIP-412)."""
    for name, level in levels():
        yield Entry(name, level, Source.LOGGER, "unknown", False, False, (), "")


def _as_parsed(setting: Setting | None, text: str | None) -> str | None:
    """A value as the broker has parsed it; the synonyms show the value as it was written."""
    if setting is None or setting.sensitive or text is None:
        return text
    try:
        return setting.text(setting.parse(text))
    except SettingsError:                   # an older version accepted it
        return text


def _entry(
    name: str,
    setting: Setting | None,
    synonyms: Iterable[Synonym],
    read_only: bool,
    own_unit: bool = False,
) -> Entry:
    """The entry of a setting with its effective value. With `own_unit`, only a synonym of the same
    name supplies the value, since other synonyms may have another unit."""
    # An undeclared setting may be a password: as in Kafka its value is not shown.
    sensitive = setting is None or setting.sensitive
    shown = tuple(
        Synonym(each.name, None, each.source) if sensitive else each for each in synonyms
    )
    first = shown[0] if shown else Synonym(name, None, Source.DEFAULT)
    value = first.value
    if own_unit and first.name != name:
        value = next((each.value for each in shown if each.name == name), None)
    return Entry(
        name,
        _as_parsed(setting, value),
        first.source,
        setting.kind if setting is not None else "password" if sensitive else "string",
        read_only,
        sensitive,
        shown,
        setting.help if setting is not None else "",
    )
