"""Prominent warnings about risky configurations; none of them prevents a start."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from ottla.broker.settings.addresses import LOOPBACK, is_everywhere
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.listener_settings import bare_name

WIDTH = 100
DEFAULT_PRINCIPALS = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
UNENFORCED = {
    "principal.builder.class": "principals are those of Kafka's default builder",
    "create.topic.policy.class.name": "no policy refuses the creation of topics",
    "alter.config.policy.class.name": "no policy refuses changes of settings",
    "client.quota.callback.class": "only quotas set with kafka-configs apply",
    "ssl.engine.factory.class": "TLS follows from the ssl.… settings alone",
}
"""Settings that name a class with its own rules, and the consequence of not running that class."""
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm", "/run")
FOR_A_WHILE = "ottla-dev-"
"""The prefix of temporary directories that `ottla server dev` makes on purpose."""


def hazards(config: BrokerConfig) -> Iterator[str]:
    """One or two sentences for each hazard."""
    for endpoint in config.endpoints():
        if _is_open(config, endpoint.name) and is_everywhere(endpoint.host):
            yield (
                f"listeners: {endpoint.name} listens on all interfaces without authentication:"
                f" whoever reaches port {endpoint.port} of this machine can read, write and delete"
                " everything. Name one interface, or protect the port with a firewall."
            )
    temporary = {Path(name).resolve() for name in (os.environ.get("TMPDIR", "/tmp"), *TEMPORARY)}
    for directory in config.log_directories():
        meant = any(part.startswith(FOR_A_WHILE) for part in directory.parts)
        if not meant and any(directory.resolve().is_relative_to(each) for each in temporary):
            yield (
                f"log.dirs: {directory} is in a temporary directory, which the system may empty,"
                " for example when the machine starts. Name a directory that is never emptied."
            )
    yield from _unenforced(config.static)
    others = None if config.zookeeper_connect else _other_brokers(config.static)
    if others:
        yield (
            f"{others}, but this broker starts alone: a cluster of Ottla needs ZooKeeper, and"
            " zookeeper.connect is not set. This broker knows no other brokers, and its topics have"
            " one replica."
        )
    if host := _hides_from_others(config):
        yield (
            f"advertised.listeners: {config.inter_broker_listener()} sends the other brokers of the"
            f" cluster to {host}, which is their own machine: they copy nothing from this one. Name"
            " an address that they reach, here or in listeners."
        )


def _unenforced(static: dict[str, str]) -> Iterator[str]:
    for name, text in sorted(static.items()):
        bare = bare_name(name)
        if bare in UNENFORCED and text.strip() not in ("", DEFAULT_PRINCIPALS):
            yield (
                f"{name}: Ottla does not run {text.strip()}: {UNENFORCED[bare]}. Remove the setting"
                " once nothing depends on that class."
            )


def _hides_from_others(config: BrokerConfig) -> str | None:
    """The loopback address that this broker advertises to the other brokers of its cluster; None if
    it advertises another address. None also if ZooKeeper is on this machine: the other brokers may
    be on this machine, too, and can then use the loopback address."""
    if not config.zookeeper_connect:
        return None
    servers = config.zookeeper_connect.partition("/")[0].split(",")
    if all(urlsplit(f"//{each.strip()}").hostname in LOOPBACK for each in servers):
        return None
    host, _ = config.advertised(config.inter_broker_listener(), 0)
    return host if host in LOOPBACK else None


def _is_open(config: BrokerConfig, listener: str) -> bool:
    """Whether clients of a listener need neither a login nor a certificate."""
    if config.protocols[listener] == "PLAINTEXT":
        return True
    wanted = config.static.get("ssl.client.auth", "none")
    wanted = config.static.get(f"listener.name.{listener.lower()}.ssl.client.auth", wanted)
    return config.protocols[listener] == "SSL" and wanted.strip().lower() != "required"


def _other_brokers(static: dict[str, str]) -> str | None:
    for name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers"):
        members = [member for member in static.get(name, "").split(",") if member.strip()]
        if len(members) > 1:
            return f"{name} names {len(members)} controllers"
    roles = static.get("process.roles", "").replace(" ", "").split(",")
    if roles == ["broker"]:
        return "process.roles=broker says that a controller is elsewhere"
    return None


def framed(texts: list[str]) -> str:
    """The hazards, wrapped, between two lines of stars."""
    import textwrap

    lines = ["", "*" * WIDTH]
    for text in texts:
        lines += textwrap.wrap(text, WIDTH, initial_indent="* ATTENTION: ", subsequent_indent="* ")
    return "\n".join([*lines, "*" * WIDTH])


def unresolvable(config: BrokerConfig) -> Iterator[str]:
    """Advertised names that this machine cannot resolve. Asks DNS, which may be slow."""
    for endpoint in config.endpoints():
        host, port = config.advertised(endpoint.name, endpoint.port)
        try:
            socket.getaddrinfo(host, port or None)
        except OSError as error:
            yield (
                f"advertised.listeners: {endpoint.name} sends clients to {host}, which this machine"
                f" cannot resolve ({error.strerror or error}); clients may fail to connect"
            )
