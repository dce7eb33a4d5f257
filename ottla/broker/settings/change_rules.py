"""Which settings of a resource may be changed on a running cluster, and their limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ottla.broker.settings.broker import CLEANER_MEMORY_MIN, DYNAMIC, BrokerSettings
from ottla.broker.settings.config import TOPIC_DEFAULTS, limits_by_host, why_unknown
from ottla.broker.settings.cordoned import CORDONED, check_cordoned
from ottla.broker.settings.declaration import Setting, SettingsError, did_you_mean
from ottla.broker.settings.kafka_settings import kafka_settings
from ottla.broker.settings.listener_settings import (
    MECHANISM_OF_PEERS,
    ListenerLimits,
    bare_name,
    is_dynamic,
)
from ottla.broker.settings.topic import (
    RETENTION_OF_NOTHING,
    TopicConfig,
    check_topic_configs,
    defaults,
)
from ottla.replication.controller.configs import ConfigRules
from ottla.wire.errors import InvalidConfig, InvalidRequest, ProtocolError
from ottla.wire.patterns import InvalidPattern, compiled

NODE_ID = re.compile(r"-?[0-9]{1,10}")
METRICS_INTERVAL_MS = range(100, 3_600_001)
MATCHED = (
    "client_id", "client_instance_id", "client_software_name", "client_software_version",
    "client_source_address", "client_source_port",
)
"""The attributes that a subscription to client metrics may match (KIP-714)."""
TIMES = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms")
GROUP_SETTINGS = frozenset(TIMES)
"""The settings of groups that have an effect here."""
GROUP_LIMITS = re.compile(
    r"(consumer|share|streams)\.((?:session|heartbeat)\.(?:timeout|interval)\.ms)"
)
"""Settings of groups; the broker's group.<type>.min.* and .max.* limit their values."""


def rules_for(
    known: Collection[int],
    node_id: int,
    static: Mapping[str, str],
    check_listeners: Callable[[Mapping[str, str]], object] = lambda texts: None,
    log_directories: Collection[str] = (),
) -> dict[str, ConfigRules]:
    """The rules of each type of resource for broker `node_id` with these static properties.

    `known` has the ids of the brokers whose settings a request may change: only this broker if the
    request comes from a client, all brokers if another broker has forwarded the request. Checks
    that need a broker's own server.properties are made only by that broker, before it forwards the
    request.
    `check_listeners` raises SettingsError if a listener cannot use the given properties;
    `log_directories` are this broker's.
    """

    def check_broker(name: str, configs: Mapping[str, str], changed: frozenset[str]) -> None:
        _check_broker(known, node_id, name, configs, changed)
        if name == str(node_id) and CORDONED in changed & configs.keys():
            _check_cordoned(configs[CORDONED], log_directories)
        of_listeners = MECHANISM_OF_PEERS in changed or any(map(is_dynamic, changed))
        if name == str(node_id) and of_listeners:
            try:
                check_listeners({**static, **configs})
            except SettingsError as error:
                raise InvalidRequest(f"Invalid config value: {error}") from error

    def check_group(name: str, configs: Mapping[str, str], changed: frozenset[str]) -> None:
        _check_group(static, configs, changed)

    return {
        "topic": ConfigRules(_topic_list, _check_topic),
        "broker": ConfigRules(lambda name: _list(_broker_setting(name)), check_broker),
        "group": ConfigRules(lambda name: _known_list("group", name), check_group),
        # As in Kafka, nothing can be appended to the lists of these settings.
        "client-metrics": ConfigRules(lambda name: None, _check_client_metrics),
    }


def _topic_list(name: str) -> str | None:
    return _list(TopicConfig.declared.get(name))


def _check_topic(name: str, configs: Mapping[str, str], changed: frozenset[str]) -> None:
    check_topic_configs(configs)


def _known_list(scope: str, name: str) -> str | None:
    known = kafka_settings(scope).get(name)
    return None if known is None else _list(known.setting)


def _list(setting: Setting | None) -> str | None:
    """The default of a list setting as text; None for other settings."""
    if setting is None or setting.kind != "list":
        return None
    return setting.text(setting.default) or ""


def _broker_setting(name: str) -> Setting | None:
    known = kafka_settings("broker").get(bare_name(name))
    return None if known is None else known.setting


def _check_broker(
    nodes: Collection[int],
    node_id: int,
    name: str,
    configs: Mapping[str, str],
    changed: frozenset[str],
) -> None:
    if name:
        if NODE_ID.fullmatch(name) is None:
            raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
        if int(name) not in nodes:
            raise InvalidRequest(f"Unexpected broker id, expected {node_id}, but received {name}")
    known = kafka_settings("broker")
    for key in sorted(changed):
        bare = bare_name(key)
        if bare not in known:
            # A name outside Kafka's table is accepted, as it may be a plugin's setting. The table
            # also lacks a few settings that Kafka accepts only at run time: check their values.
            if bare in DYNAMIC and key in configs:
                _check_broker_value(bare, configs[key], BrokerSettings.declared[bare])
            continue
        update = known[bare].update
        if update == "read-only":
            raise InvalidRequest(f"Cannot update these configs dynamically: [{key}]")
        if update == "per-broker" and not name:
            raise InvalidRequest(
                f"{key} is a per-broker setting: set it for each broker, not as the default for all"
                " brokers")
        if key in configs:
            limit = ListenerLimits.declared.get(bare) if key != bare else None
            _check_broker_value(bare, configs[key], limit or known[bare].setting)
            _check_topic_default(key, configs[key])


def _check_cordoned(text: str, log_directories: Collection[str]) -> None:
    try:
        check_cordoned(BrokerSettings.declared[CORDONED].parse(text), log_directories)
    except SettingsError as error:
        raise InvalidRequest(str(error)) from error


def _check_broker_value(name: str, text: str, setting: Setting) -> None:
    try:
        value = setting.parse(text)
        if setting.repeats(text):               # Kafka accepts repetitions in the file only
            raise SettingsError(name, "values must not be duplicated")
        if name == "max.connections.per.ip.overrides":
            limits_by_host(text, names=False)
        if name == "max.connection.creation.rate" and value < 1:
            raise SettingsError(name, "must be at least 1, or nobody could connect")
        if name == "log.cleaner.dedupe.buffer.size" and value < CLEANER_MEMORY_MIN:
            raise SettingsError(name, f"must be at least {CLEANER_MEMORY_MIN}")
        if name == "log.retention.ms" and value == 0:
            raise SettingsError(name, RETENTION_OF_NOTHING)
    except SettingsError as error:
        raise InvalidRequest(str(error)) from error


def _check_topic_default(name: str, text: str) -> None:
    """Check a broker's default of a topic setting by the rules of the topic setting itself."""
    try:
        check_topic_configs(defaults(({name: text},)))
    except InvalidConfig as error:
        raise InvalidRequest(
            f"{name}: topics cannot have this value: {error.message}"
        ) from error


def without_effect(names: Iterable[str]) -> str | None:
    """The message about the broker's settings among `names` that can be changed but have no effect
    here; None if there are none.

    They are accepted, as in Kafka, so that a script that sets numbers of threads still works.
    """
    idle = [
        name for name in names
        if name not in DYNAMIC and name not in TOPIC_DEFAULTS and not is_dynamic(name)
    ]
    of_start = sorted(name for name in idle if name in BrokerSettings.declared)
    others = sorted(set(idle).difference(of_start))
    notes = why_unknown(idle)
    if others:
        notes.insert(0, f"without effect in Ottla: {', '.join(others)}")
    if of_start:
        notes.insert(0, f"only read at start, from the properties: {', '.join(of_start)}")
    return "; ".join(notes) or None


def _parse_known(
    scope: str, what: str, configs: Mapping[str, str], refusal: type[ProtocolError]
) -> dict[str, Any]:
    known = kafka_settings(scope)
    values: dict[str, Any] = {}
    for name, text in configs.items():
        if name not in known:
            raise refusal(f"Unknown {what}: {name}{did_you_mean(name, known)}")
        try:
            values[name] = known[name].setting.parse(text)
        except SettingsError as error:
            raise refusal(str(error)) from error
    return values


def _check_group(
    static: Mapping[str, str], configs: Mapping[str, str], changed: frozenset[str]
) -> None:
    values = _parse_known("group", "group config name", configs, InvalidConfig)
    idle = sorted(changed & values.keys() - GROUP_SETTINGS)
    if idle:
        raise InvalidConfig(
            f"{', '.join(idle)}: without effect in Ottla, which has no share or streams groups and"
            f" assigns partitions at once; a group may set {', '.join(sorted(GROUP_SETTINGS))}"
        )
    broker = kafka_settings("broker")

    def of_broker(name: str) -> Any:
        setting = broker[name].setting
        return setting.parse(static[name]) if name in static else setting.default

    for name, value in values.items():
        limited = GROUP_LIMITS.fullmatch(name)
        if limited is None or not isinstance(value, int):
            continue
        for word, relation in (("min", "greater"), ("max", "less")):
            limit_name = f"group.{limited[1]}.{word}.{limited[2]}"
            if limit_name not in broker:
                continue
            limit = of_broker(limit_name)
            if value < limit if word == "min" else value > limit:
                raise InvalidConfig(f"{name} must be {relation} than or equal to {limit_name}")
    if not GROUP_SETTINGS.isdisjoint(values):
        session, interval = (values.get(name, of_broker(f"group.{name}")) for name in TIMES)
        if session <= interval:
            raise InvalidConfig(f"{TIMES[0]} must be greater than {TIMES[1]}")


def _check_client_metrics(
    name: str, configs: Mapping[str, str], changed: frozenset[str]
) -> None:
    values = _parse_known(
        "client-metrics", "client metrics configuration", configs, InvalidRequest
    )
    interval = values.get("interval.ms", METRICS_INTERVAL_MS.start)
    if interval not in METRICS_INTERVAL_MS:
        raise InvalidRequest(
            f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000"
            " (1 hour)"
        )
    for pattern in filter(None, configs.get("match", "").split(",")):
        key, equals, expression = pattern.partition("=")
        try:
            compiled(expression.strip())
        except InvalidPattern as error:
            raise InvalidConfig(f"Illegal client matching pattern: {pattern}: {error}") from error
        if not equals or key.strip() not in MATCHED:
            raise InvalidConfig(f"Illegal client matching pattern: {pattern}")
