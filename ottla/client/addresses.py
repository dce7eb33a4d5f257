"""Bootstrap addresses: `host:port,host:port`, IPv6 in brackets, the port may be omitted."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Container

from ottla.client.errors import ClientError

DEFAULT_PORT = 9092
DEFAULT_ADDRESS = f"localhost:{DEFAULT_PORT}"
VARIABLE = "OTTLA_BOOTSTRAP_SERVERS"
"""The environment variable with the default bootstrap addresses of commands."""
Address = tuple[str, int]


class BadAddress(ClientError):
    """A bootstrap address that cannot be parsed."""


def default_addresses() -> str:
    """The bootstrap addresses that a command uses by default."""
    return os.environ.get(VARIABLE) or DEFAULT_ADDRESS


def parse_addresses(text: str) -> list[Address]:
    """The addresses of a comma-separated list; raises BadAddress with the part that is wrong."""
    parts = [part.strip() for part in text.split(",")]
    found = [parse_address(part) for part in parts if part]
    if not found:
        raise BadAddress("no bootstrap server given: expected HOST:PORT[,HOST:PORT…]")
    return found


def parse_address(text: str) -> Address:
    """One address. A listener's name in front (`PLAINTEXT://`) is accepted and ignored."""
    bare = text.rpartition("://")[2]
    if bare.startswith("["):
        host, bracket, port = bare[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            raise BadAddress(f"bad bootstrap server {text!r}: expected [IPV6]:PORT")
        port = port[1:]
    elif bare.count(":") > 1:
        raise BadAddress(f"bad bootstrap server {text!r}: write an IPv6 address as [IPV6]:PORT")
    else:
        host, _, port = bare.partition(":")
        if host.isdecimal() and not port:
            raise BadAddress(
                f"bad bootstrap server {text!r}: expected HOST:PORT, such as localhost:{host}")
    if not host or (port and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise BadAddress(f"bad bootstrap server {text!r}: expected HOST:PORT")
    return host, int(port) if port else DEFAULT_PORT


def show_address(address: Address) -> str:
    """`host:port`, with brackets around IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def names_one_of(host: str, names: Container[str]) -> bool:
    """Whether a Host header has one of these lower-case names, or an IP address. Callers refuse
    other requests: they may come from a foreign web page whose host name resolves to this machine
    (DNS rebinding). The browser then sends that host name in the header."""
    name = host.rpartition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]
    if name.lower() in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
