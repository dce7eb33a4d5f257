"""Networks as the hosts of ACLs, in CIDR notation: `10.0.0.0/8` or `2001:db8::/32`.

They are parsed and compared as in Apache Kafka 4.4. The address before the slash may be any address
of the network. A netmask instead of the prefix length is refused. An IPv6 network contains no IPv4
clients.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network

IPV4 = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
LENGTH = re.compile(r"\+?\d{1,9}", re.ASCII)
KEPT_MAX = 10_000
"""How many parsed networks and addresses are cached."""

Network = IPv4Network | IPv6Network


def parse_network(text: str) -> Network:
    """Parse an ACL's host that has a slash. Raises ValueError with the reason."""
    return _ipv6(text) if ":" in text else _ipv4(text)


def _ipv4(text: str) -> IPv4Network:
    match = IPV4.fullmatch(text)
    if match is None:
        raise ValueError("the network is not of the form 192.0.2.0/24")
    *parts, length = map(int, match.groups())
    if max(parts) > 255:
        raise ValueError(f"{max(parts)} in the address is greater than 255")
    if length > 32:
        raise ValueError(f"the prefix length {length} is greater than 32")
    return IPv4Network((bytes(parts), length), strict=False)


def _ipv6(text: str) -> IPv6Network:
    address, _, length = text.partition("/")
    if LENGTH.fullmatch(length) is None:
        raise ValueError(f"{length!r} is not a prefix length")
    if int(length) > 128:
        raise ValueError(f"the prefix length {int(length)} is greater than 128")
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    try:
        parsed = IPv6Address(address)
    except AddressValueError as error:
        raise ValueError(str(error)) from error
    if parsed.ipv4_mapped is not None:
        raise ValueError(
            f"{address} is an IPv4 address in IPv6 notation: write {parsed.ipv4_mapped}")
    return IPv6Network((int(parsed), int(length)), strict=False)


def is_inside(host: str, network: str) -> bool:
    """Whether an address belongs to a network; False if either cannot be parsed."""
    if "/" not in network:
        return False
    inside, address = _network(network), _address(host)
    return inside is not None and address is not None and address in inside


@lru_cache(KEPT_MAX)
def _network(text: str) -> Network | None:
    try:
        return parse_network(text)
    except ValueError:
        return None


@lru_cache(KEPT_MAX)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return IPv6Address(text) if ":" in text else IPv4Address(text)
    except AddressValueError:
        return None
