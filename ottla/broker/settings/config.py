"""Reads a broker's settings from server.properties and overrides, and derives values from them.

Kafka's properties that Ottla does not use are checked against Kafka's own table and accepted with
one warning; unknown names cause a warning with the nearest known name.
"""

from __future__ import annotations

import logging
import operator
import re
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.settings import topic
from ottla.broker.settings.addresses import (
    LOOPBACK,
    Address,
    canonical_host,
    check_advertised,
    check_ports,
    check_protocols,
    check_zookeeper,
    is_everywhere,
    parse_addresses,
    parse_http_address,
    parse_protocols,
)
from ottla.broker.settings.broker import (
    DYNAMIC,
    LEADER_SELECTOR,
    RACK_AWARE_SELECTOR,
    BrokerSettings,
)
from ottla.broker.settings.cordoned import check_cordoned, is_cordoned
from ottla.broker.settings.declaration import Problems, Setting, SettingsError, did_you_mean
from ottla.broker.settings.group_rules import check_group_settings, known_assignors
from ottla.broker.settings.kafka_settings import OUTSIDE_THE_TABLE, kafka_settings
from ottla.broker.settings.listener_settings import idle, is_dynamic, listener_limits
from ottla.broker.settings.sources import Sources
from ottla.broker.settings.topic import (
    TopicConfig,
    check_defaults,
    defaults,
    log_config,
    synonyms_of,
)
from ottla.log.partition.config import LogConfig
from ottla.replication.networks import parse_network

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage

__all__ = ["BrokerConfig", "SettingsError"]

log = logging.getLogger("ottla.config")

TOPIC_DEFAULTS = {
    name
    for each in TopicConfig.declared.keys() - topic.IDLE.keys()
    for name, _ in synonyms_of(each)
}
"""The broker's properties that are defaults of topic settings."""

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""Two authorizers with the same rules; the second one belongs to Kafka's ZooKeeper mode."""
KEY_LINE_SIZE_MIN = 40
METRICS_FAMILIES = frozenset({"confluent", "lag_exporter"})
PROVIDERS = "config.providers"
"""The beginning of the names of the settings that say how references in values are resolved."""
OF_AUTHORIZERS = ("super.users", "allow.everyone.if.no.acl.found")
NOTHING: Mapping[str, str] = {}
Layers = tuple[Mapping[str, str], ...]


class Reloaded:
    """What a reload has found: changed properties (old and new text) and refused names."""

    def __init__(self) -> None:
        self.changed: dict[str, tuple[str | None, str | None]] = {}
        self.refused: list[str] = []


class BrokerConfig(BrokerSettings):
    """The settings of a broker. `static` has the properties that were set; `warnings` has the texts
    to be logged."""

    @property
    def redirects_consumers(self) -> bool:
        """Whether brokers send consumers to replicas in the consumers' racks (KIP-392); followers
        then get every new high watermark at once."""
        return self.replica_selector_class == RACK_AWARE_SELECTOR

    def __init__(self, texts: Mapping[str, str]) -> None:
        """`texts` maps names of properties to their values; `load` reads them from a file. Raises
        SettingsError."""
        self.static = dict(texts)
        self.warnings: list[str] = []
        self.sources = Sources()
        problems = Problems()
        super().__init__(texts, problems)
        self._check_others(problems)
        for check in (
            partial(self._check_ids, problems.names), self._read_super_users,
            self._read_addresses, self._check_groups, self._check_cluster, self._check_classes,
            self._check_http, self._check_idle_time,
        ):
            with problems:
                check()
        if not problems.found:
            with problems:
                check_defaults(self.static)
        problems.tell(self.warnings)
        self._cached: tuple[Layers, dict[str, str], LogConfig] | None = None

    @classmethod
    def load(cls, path: Path | None = None, overrides: Sequence[str] = ()) -> BrokerConfig:
        """Read a file, then `name=value` overrides. Raises SettingsError or OSError."""
        return cls.of(Sources(path, overrides))

    @classmethod
    def of(cls, sources: Sources) -> BrokerConfig:
        """Read the properties of `sources`. Raises SettingsError or OSError."""
        config = cls(sources.read())
        config.sources = sources
        return config

    def _check_ids(self, wrong: set[str]) -> None:
        """Give node.id and broker.id the same value, as in Kafka, unless one of them is among the
        `wrong` settings, whose values are not known. Raises SettingsError."""
        if {"node.id", "broker.id"} & wrong:
            return
        if self.broker_id < 0:
            if self.zookeeper_connect and "node.id" not in self.static:
                raise SettingsError("node.id", "has to be set together with zookeeper.connect")
            self.broker_id = self.node_id
        elif "node.id" not in self.static:
            self.node_id = self.broker_id
        elif self.node_id != self.broker_id:
            raise SettingsError(
                "node.id", f"is {self.node_id} but broker.id is {self.broker_id}: remove broker.id"
            )

    def _read_super_users(self) -> None:
        self.super_user_names = _principals(self.super_users if self.authorizer_class_name else "")

    def _read_addresses(self) -> None:
        self._listeners, self._advertised = self._addresses()
        names = [each.name for each in self._listeners]
        self.listener_limits = listener_limits(names, self.static)

    def _check_groups(self) -> None:
        self.group_consumer_assignors = known_assignors(self.group_consumer_assignors)
        self.group_consumer_migration_policy = self.group_consumer_migration_policy.lower()
        self.warnings += check_group_settings(self)

    def _check_cluster(self) -> None:
        if self.zookeeper_connect:
            check_zookeeper(self.zookeeper_connect)
        elif self.default_replication_factor > 1:
            self.warnings.append(
                f"default.replication.factor is {self.default_replication_factor}, but this broker"
                " has no cluster (zookeeper.connect is not set): topics have one replica"
            )
        check_cordoned(self.cordoned_log_dirs, [*map(str, self.log_directories())])

    def _check_classes(self) -> None:
        if self.authorizer_class_name not in ("", *AUTHORIZERS):
            raise SettingsError(
                "authorizer.class.name",
                f"{self.authorizer_class_name!r} is not available, only {AUTHORIZERS[0]} is",
            )
        if self.replica_selector_class not in (None, "", LEADER_SELECTOR, RACK_AWARE_SELECTOR):
            raise SettingsError(
                "replica.selector.class",
                f"{self.replica_selector_class!r} is not available, only {RACK_AWARE_SELECTOR} and"
                f" {LEADER_SELECTOR} are",
            )
        strange = set(self.ottla_metrics_compat) - METRICS_FAMILIES
        if strange:
            known = " and ".join(sorted(METRICS_FAMILIES))
            text = f"{min(strange)!r} is not available, only {known} are"
            raise SettingsError("ottla.metrics.compat", text)

    def _check_idle_time(self) -> None:
        delay_ms = self.connection_failed_authentication_delay_ms
        if 0 <= self.connections_max_idle_ms <= delay_ms:
            raise SettingsError(
                "connection.failed.authentication.delay.ms",
                f"is {delay_ms}, but has to be less than"
                f" connections.max.idle.ms={self.connections_max_idle_ms}: otherwise a client may"
                " be disconnected before it learns that its login has failed",
            )

    def _check_http(self) -> None:
        self.max_connections_by_host = limits_by_host(self.max_connections_per_ip_overrides)
        if self.ottla_http_listener:
            parse_http_address(self.ottla_http_listener)
        for network in self.ottla_http_networks:
            try:
                parse_network(network)
            except ValueError as error:
                raise SettingsError("ottla.http.networks", f"{network!r}: {error}") from error
        if self.ottla_console_listener:
            parse_http_address(self.ottla_console_listener, "ottla.console.listener")

    def _check_others(self, problems: Problems) -> None:
        """Check the properties that BrokerSettings does not declare, and collect warnings about
        properties that are unknown, have no effect, or repeat an entry."""
        unused: list[str] = []
        unknown: list[str] = []
        with problems:
            unused += idle(self.static, self._served_protocols())
        for name, text in self.static.items():
            if name in OF_AUTHORIZERS and not self.authorizer_class_name:
                unused.append(name)
            if name in self.declared:
                self._note_repetition(self.declared[name], text)
                continue
            if name.startswith(PROVIDERS):
                continue
            if name.startswith("listener.name."):
                continue
            if name in OUTSIDE_THE_TABLE:
                unused.append(name)
            elif name in kafka_settings("broker"):
                setting = kafka_settings("broker")[name].setting
                with problems:
                    setting.parse(text)
                    self._note_repetition(setting, text)
                if name not in TOPIC_DEFAULTS:
                    unused.append(name)
            elif name in TopicConfig.declared and name in TOPIC_DEFAULTS:
                # Kafka's table does not have this setting yet.
                with problems:
                    TopicConfig.declared[name].parse(text)
            elif name in kafka_settings("removed"):
                unused.append(name)
            else:
                unknown += why_unknown([name])
        if unknown and len(unknown) == len(self.static):
            with problems:
                raise SettingsError(
                    shown(next(iter(self.static))),
                    "Kafka and Ottla know neither this setting nor any other in the file: is it the"
                    " right file?",
                )
            return
        self.warnings += unknown
        if unused:
            self.warnings.append(f"without effect in Ottla: {', '.join(sorted(unused))}")

    def _note_repetition(self, setting: Setting, text: str) -> None:
        if setting.repeats(text):
            self.warnings.append(f"{setting.name}={text}: a repeated entry counts once")

    def _served_protocols(self) -> dict[str, str]:
        """The security protocol of each listener for clients; "" if it is not defined."""
        protocols = parse_protocols(self.listener_security_protocol_map)
        for_controllers = {name.upper() for name in self.controller_listener_names}
        return {
            each.name: protocols.get(each.name, "")
            for each in parse_addresses("listeners", self.listeners)
            if each.name not in for_controllers
        }

    def _addresses(self) -> tuple[list[Address], dict[str, Address]]:
        everywhere = parse_addresses("listeners", self.listeners)
        for_controllers = {name.upper() for name in self.controller_listener_names}
        listeners = [each for each in everywhere if each.name not in for_controllers]
        if not listeners:
            raise SettingsError("listeners", "names no listener for clients")
        self.protocols = parse_protocols(self.listener_security_protocol_map)
        check_protocols(listeners, self.protocols)
        check_ports(everywhere)
        if len(listeners) < len(everywhere):
            self.warnings.append("the listeners in controller.listener.names are not opened")
        told = parse_addresses("advertised.listeners", self.advertised_listeners or ())
        told = [each for each in told if each.name not in for_controllers]
        check_advertised(told, listeners)
        advertised = {each.name: each for each in told}
        for each in listeners:
            address = advertised.setdefault(each.name, each)
            if address is each and each.host and is_everywhere(each.host):
                raise SettingsError(
                    "advertised.listeners",
                    f"has to name the host for {each.name}: clients cannot reach {each.host}",
                )
            if address.host in LOOPBACK and each.host not in LOOPBACK:
                self.warnings.append(
                    f"{each.name} listens beyond this machine but advertises {address.host}:"
                    " clients elsewhere will not reach it; set advertised.listeners"
                )
        self._check_internal(listeners)
        return listeners, advertised

    def _check_internal(self, listeners: Sequence[Address]) -> None:
        internal = self.inter_broker_listener_name
        if internal is not None:
            if internal.upper() not in {each.name for each in listeners}:
                raise SettingsError(
                    "inter.broker.listener.name",
                    f"`listeners` has no listener with the name {internal}",
                )
            if "security.inter.broker.protocol" in self.static:
                raise SettingsError(
                    "security.inter.broker.protocol",
                    "cannot be set together with inter.broker.listener.name",
                )
        elif "security.inter.broker.protocol" in self.static and not any(
            self.protocols[each.name] == self.security_inter_broker_protocol for each in listeners
        ):
            raise SettingsError(
                "security.inter.broker.protocol",
                f"no listener has the protocol {self.security_inter_broker_protocol}; set"
                " inter.broker.listener.name",
            )

    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves."""
        if self.inter_broker_listener_name is not None:
            return self.inter_broker_listener_name.upper()
        wanted = self.security_inter_broker_protocol
        names = [each.name for each in self._listeners]
        return next((name for name in names if self.protocols[name] == wanted), names[0])

    def listener_of_brokers_alone(self) -> str | None:
        """The inter-broker listener if clients use another one; None if all use the same
        listener."""
        return self.inter_broker_listener() if len(self._listeners) > 1 else None

    def security_texts(self, image: MetadataImage | None = None) -> dict[str, str]:
        """The effective properties, from which a listener's security follows."""
        texts: dict[str, str] = {}
        for layer in reversed(self.layers(image)):
            texts |= layer
        return texts

    def endpoints(self) -> list[Address]:
        """The addresses to listen on."""
        return self._listeners

    def advertised(self, listener: str, bound_port: int) -> tuple[str, int]:
        """The host and port advertised to clients of a listener, once it is bound to a port."""
        address = self._advertised[listener]
        return address.host or socket.gethostname(), address.port or bound_port

    @property
    def hosts(self) -> set[str]:
        """The hosts of the listeners, and the advertised hosts."""
        addresses = (*self._listeners, *self._advertised.values())
        return {each.host or socket.gethostname() for each in addresses}

    def log_directories(self) -> list[Path]:
        """The data directories. The first start of a standalone broker puts its metadata into the
        first one that is not cordoned."""
        return [Path(name) for name in (self.log_dirs or self.log_dir)]

    def is_cordoned(self, path: str) -> bool:
        """Whether a log directory gets no new partitions."""
        return is_cordoned(path, self.cordoned_log_dirs)

    def follow(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        """Apply the settings that were set at run time, for this broker or for all brokers. The
        metadata log calls this with every new image."""
        layers = self.layers(new)
        if all(map(operator.is_, layers, self.layers(old))):
            return
        for name in sorted(DYNAMIC):
            declared = self.declared[name]
            text = next((layer[name] for layer in layers if name in layer), None)
            try:
                value = declared.default if text is None else declared.parse(text)
                if name == "max.connections.per.ip.overrides":
                    self.max_connections_by_host = limits_by_host(value)
            except SettingsError as error:
                log.error("%s; %s is unchanged", error, name)
                continue
            if value != self.value(name):
                log.info("%s is now set to %s", name, text or "its default")
                setattr(self, declared.attribute, value)
        self._limit_listeners(new)

    def _limit_listeners(self, image: MetadataImage) -> None:
        try:
            self.listener_limits = listener_limits(
                self.listener_limits, self.security_texts(image)
            )
        except SettingsError as error:
            log.error("%s; the limits of the listeners are unchanged", error)

    def reload(self, texts: Mapping[str, str], image: MetadataImage) -> Reloaded:
        """Apply the changes in `texts` that are possible on a running broker; return them and the
        names of refused changes.

        Settings made at run time take precedence. Raises SettingsError, and then changes nothing.
        """
        fresh = BrokerConfig(texts)
        reloaded = Reloaded()
        static = dict(self.static)
        for name in sorted(static.keys() | texts.keys()):
            old, new = static.get(name), texts.get(name)
            if old == new:
                continue
            if not (
                name in DYNAMIC or name in TOPIC_DEFAULTS or is_dynamic(name)
                or name.startswith(PROVIDERS)       # the values in `texts` are already resolved
            ):
                reloaded.refused.append(name)
                continue
            reloaded.changed[name] = old, new
            if new is None:
                del static[name]
            else:
                static[name] = new
        self.static = static
        for name in reloaded.changed.keys() & self.declared.keys():
            if not any(name in layer for layer in self.layers(image)[:-1]):
                setattr(self, self.declared[name].attribute, fresh.value(name))
        if "max.connections.per.ip.overrides" in reloaded.changed:
            self.max_connections_by_host = limits_by_host(self.max_connections_per_ip_overrides)
        self._limit_listeners(image)
        return reloaded

    def layers(self, image: MetadataImage | None = None) -> Layers:
        """The layers of the broker's properties: for this node, for all brokers, from the file.
        The first two are in the `image`; without it, only the last is returned."""
        if image is None:
            return (self.static,)
        mine = image.configs.get(("broker", str(self.node_id)), NOTHING)
        return (mine, image.configs.get(("broker", ""), NOTHING), self.static)

    def topic_defaults(self, image: MetadataImage | None = None) -> dict[str, str]:
        """The values of the broker's properties for topic settings that a topic does not set."""
        return defaults(self.layers(image))

    def topic_log_config(self, image: MetadataImage, topic: str) -> LogConfig:
        """A topic's effective settings: its own, then the broker's, then Kafka's defaults."""
        layers = self.layers(image)
        if self._cached is None or not all(map(operator.is_, self._cached[0], layers)):
            values = defaults(layers)
            shared = log_config({}, values, self.producer_id_expiration_ms)
            self._cached = layers, values, shared
        own = image.config_of("topic", topic)
        if not own:
            return self._cached[2]
        return log_config(own, self._cached[1], self.producer_id_expiration_ms)


def _principals(text: str) -> frozenset[str]:
    """Parse super.users. Raises SettingsError."""
    users = [user for user in map(str.strip, text.split(";")) if user]
    for user in users:
        kind, colon, name = user.partition(":")
        if not (kind and colon and name):
            raise SettingsError(
                "super.users", f"{user!r} is not of the form principalType:principalName; write"
                f" User:{user} for a user, and separate users by semicolons",
            )
    return frozenset(users)


def limits_by_host(text: str, names: bool = True) -> dict[str, int]:
    """Parse max.connections.per.ip.overrides; `names` allows host names besides addresses. Raises
    SettingsError."""
    limits = {}
    for pair in filter(None, text.split(",")):
        host, _, count = pair.rpartition(":")
        if not host or re.fullmatch("[0-9]{1,10}", count.strip()) is None:
            raise SettingsError(
                "max.connections.per.ip.overrides", f"{pair!r} is not of the form host:count"
            )
        for address in _addresses(host.strip().strip("[]"), names):
            limits[address] = int(count)
    return limits


@lru_cache
def _addresses(host: str, names: bool) -> tuple[str, ...]:
    """The addresses of a host; cached, since a look-up would block the loop."""
    flags = 0 if names else socket.AI_NUMERICHOST
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            "max.connections.per.ip.overrides",
            f"{host!r} does not resolve to an address" if names else
            f"{host!r} is not an address; host names are allowed in server.properties only",
        ) from error
    return tuple({canonical_host(str(info[4][0])): None for info in infos})


def why_unknown(names: Iterable[str]) -> list[str]:
    """Messages about properties that neither Kafka nor Ottla has."""
    known = {
        **BrokerSettings.declared, **kafka_settings("broker"), **kafka_settings("removed"),
        **dict.fromkeys(OUTSIDE_THE_TABLE), **dict.fromkeys(TOPIC_DEFAULTS),
    }
    wrong = []
    for name in names:
        if name in known or name.startswith((PROVIDERS, "listener.name.")):
            continue
        hint = did_you_mean(name, known)
        wrong.append(f"{shown(name)} is not a setting of Kafka or Ottla{hint}")
    return wrong


def has_effect(name: str) -> bool:
    """Whether a setting of Kafka's or Ottla's brokers has an effect here."""
    known = name in BrokerSettings.declared or name in TOPIC_DEFAULTS
    return known or name.startswith((PROVIDERS, "listener.name."))


def shown(name: str) -> str:
    """A setting's name for the log. A long name without dots is not shown: it is probably a line of
    a PEM key. Such a line is taken for a setting if the line before lacks a backslash at its end.
    """
    if len(name) < KEY_LINE_SIZE_MIN or "." in name:
        return name
    return (
        f"a line of {len(name)} characters (perhaps of a PEM key: in a properties file, a backslash"
        " has to continue each of its lines)"
    )
