"""Parses the addresses and security protocols of listeners, and ZooKeeper's addresses."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from ottla.broker.settings.declaration import SettingsError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ADDRESS = re.compile(r"([\w.-]+)://(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:/\[\]]*)):(-?\d{1,9})")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Address(NamedTuple):
    """A listener's name with a host and a port. An empty host means every interface."""

    name: str
    host: str
    port: int


def canonical_host(host: str) -> str:
    """The normal form of a client's address, for comparisons. ACLs and limits may be written in
    Java's form of IPv6, `0:0:0:0:0:0:0:1`. A socket for IPv6 and IPv4 reports IPv4 addresses as
    `::ffff:192.0.2.1`.
    """
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def is_everywhere(host: str) -> bool:
    """Whether a host means every interface, in any form that the system accepts."""
    if not host:
        return True
    for read in (socket.inet_aton, lambda text: socket.inet_pton(socket.AF_INET6, text)):
        try:
            return not any(read(host))
        except OSError:
            pass
    return False


def parse_addresses(setting: str, listed: Iterable[str]) -> list[Address]:
    """The addresses of `listeners` or `advertised.listeners`. Raises SettingsError."""
    addresses: list[Address] = []
    for text in listed:
        match = ADDRESS.fullmatch(text)
        if match is None:
            raise SettingsError(setting, f"{text!r} is not of the form NAME://host:port")
        name, bracketed, plain, port = match.groups()
        if not 0 <= int(port) <= 65535:
            raise SettingsError(setting, f"{text!r}: a port is a number from 0 to 65535")
        addresses.append(Address(name.upper(), bracketed or plain or "", int(port)))
    counts = Counter(address.name for address in addresses)
    twice = min((name for name, count in counts.items() if count > 1), default=None)
    if twice is not None:
        raise SettingsError(setting, f"two listeners have the name {twice}")
    return addresses


def parse_http_address(text: str, setting: str = "ottla.http.listener") -> tuple[str, int]:
    """The host and the port in the value of a setting, `host:port`; an IPv6 address is written in
    brackets. Raises SettingsError."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535 or "/" in host:
        raise SettingsError(setting, f"{text!r} is not of the form host:port")
    return host.strip("[]"), int(port)


def check_zookeeper(text: str) -> None:
    """Raise SettingsError unless zookeeper.connect is of the form `host:port,host:port/chroot`."""
    servers, _, chroot = text.partition("/")
    for server in servers.split(","):
        try:
            parts = urlsplit(f"//{server.strip()}")
            wrong = not parts.hostname or parts.port == 0
        except ValueError:                          # an invalid port, or an unpaired bracket
            wrong = True
        if wrong:
            raise SettingsError(
                "zookeeper.connect",
                f"{server.strip()!r} in {text!r} is not of the form host:port (write an IPv6"
                " address in brackets: [::1]:2181)",
            )
    if "," in chroot:
        raise SettingsError(
            "zookeeper.connect",
            f"{text!r} has a chroot before the last server. Write the chroot once, at the end:"
            " host:port,host:port/chroot",
        )
    if not {".", ".."}.isdisjoint(chroot.split("/")):
        raise SettingsError(
            "zookeeper.connect",
            f"the chroot {'/' + chroot!r} must not contain . or .. between slashes",
        )


def parse_protocols(text: str) -> dict[str, str]:
    """`listener.security.protocol.map`: the security protocol of each listener's name."""
    protocols: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.rpartition(":")
        protocol = protocol.strip().upper()
        if not colon or protocol not in PROTOCOLS:
            raise SettingsError(
                "listener.security.protocol.map",
                f"{pair!r} is not of the form NAME:PROTOCOL, where PROTOCOL is one of"
                f" {', '.join(PROTOCOLS)}",
            )
        protocols[name.strip().upper()] = protocol
    return protocols


def check_protocols(addresses: Iterable[Address], protocols: dict[str, str]) -> None:
    """Raise SettingsError for a listener without a security protocol."""
    for address in addresses:
        if address.name not in protocols:
            raise SettingsError(
                "listener.security.protocol.map", f"names no security protocol for {address.name}"
            )


def check_advertised(advertised: Iterable[Address], listeners: Iterable[Address]) -> None:
    """Raise SettingsError if clients would get an advertised address that they cannot use."""
    names = {address.name for address in listeners}
    for address in advertised:
        if address.name not in names:
            raise SettingsError(
                "advertised.listeners", f"`listeners` has no listener with the name {address.name}"
            )
        if address.host and is_everywhere(address.host):
            raise SettingsError(
                "advertised.listeners",
                f"clients cannot reach {address.host}; set a name or an address of this machine",
            )


def check_ports(listeners: Iterable[Address]) -> None:
    """Raise SettingsError if two listeners use the same port, unless exactly one of them has an
    IPv6 host."""
    ports: dict[tuple[int, bool], str] = {}
    for address in listeners:
        key = (address.port, ":" in address.host)
        if address.port and key in ports:
            raise SettingsError(
                "listeners", f"{ports[key]} and {address.name} both use port {address.port}"
            )
        ports[key] = address.name
