"""Networks of ACLs are read as by Apache Kafka 4.4.0.

`EXPECTED` was recorded from Kafka's class CidrUtils. For each host of an ACL it has the clients to
which the ACL applies, or None if the host is refused. Addresses are written in Ottla's form.
"""

from __future__ import annotations

import pytest

from ottla.broker.security.authorizer import Authorizer
from ottla.replication.controller.access import (
    Operation,
    Pattern,
    Permission,
    Resource,
    create_rules,
)
from ottla.replication.metadata import FeatureSet, MetadataImage
from ottla.replication.networks import is_inside, parse_network
from ottla.replication.principals import AccessRule, RuleSet
from ottla.wire.errors import ErrorCode

V4 = (
    "127.0.0.1", "127.255.255.255", "127.0.0.0", "10.0.0.0", "10.0.0.1", "10.0.0.255",
    "192.168.1.255", "255.255.255.255",
)
V6 = ("::1", "2001:db8::a", "fe80::1%eth0", "fe80::1", "::")
TEN = ("10.0.0.0", "10.0.0.1", "10.0.0.255")

EXPECTED: dict[str, tuple[str, ...] | None] = {
    "127.0.0.0/8": V4[:3], "127.0.0.1/8": V4[:3], "0.0.0.0/0": V4, "10.0.0.0/0": V4,
    "10.0.0.0/32": TEN[:1], "10.0.0.0/31": TEN[:2], "10.0.0.0/08": TEN, "010.0.0.0/8": TEN,
    "10.0.0.5/24": TEN, "192.168.001.0/24": ("192.168.1.255",),
    "255.255.255.255/32": ("255.255.255.255",),
    "10.0.0.0/99": None, "10.0.0.0/-1": None, "10.0.0/8": None, "10.0.0.256/8": None,
    "10.0.0.0/": None, "/8": None, "10.0.0.0/8/8": None, " 10.0.0.0/8": None,
    "10.0.0.0/8 ": None, "10.0.0.0/+8": None, "10.0.0.0/255.0.0.0": None, "a/8": None,
    "1.2.3.4.5/8": None, "10.0.0.0/000000008": None, "10.0.0.0/\u0663": None,
    "::1/128": ("::1",), "::/0": V6, "2001:db8::/32": ("2001:db8::a",),
    "2001:db8::1/32": ("2001:db8::a",), "2001:db8::/+32": ("2001:db8::a",),
    "2001:db8::/032": ("2001:db8::a",), "fe80::1%eth0/64": ("fe80::1%eth0", "fe80::1"),
    "[::1]/128": ("::1",), "0:0:0:0:0:0:0:1/128": ("::1",), "::10.0.0.0/104": (),
    "2001:db8::/129": None, "2001:db8::/-1": None, "2001:db8::/": None, "x::y/3": None,
    ":/8": None, "localhost:/8": None, "10.0.0.0/8:": None, "::/0/0": None, "::g/8": None,
    "::ffff:10.0.0.0/104": None,
}


@pytest.mark.parametrize("host", EXPECTED)
def test_networks_are_those_of_kafka(host: str) -> None:
    expected = EXPECTED[host]
    assert tuple(each for each in (*V4, *V6) if is_inside(each, host)) == (expected or ())
    rule = AccessRule(
        Resource.TOPIC, Pattern.LITERAL, "t", "User:a", host, Operation.READ, Permission.DENY
    )
    [error] = create_rules(MetadataImage.empty(), [rule]).result
    if expected is None:
        with pytest.raises(ValueError):
            parse_network(host)
        assert error is not None and error.message.startswith(f"Invalid CIDR notation '{host}': ")
    else:
        assert error is None


@pytest.mark.parametrize("level", [30, 31, 32, 33])
def test_networks_need_the_metadata_version_of_kafka_4_4(level: int) -> None:
    """Older brokers would ignore a DENY for a network. While a cluster has such brokers,
    its metadata.version is lower."""
    image = MetadataImage.empty().apply([FeatureSet("metadata.version", level)])
    made = [
        AccessRule(
            Resource.TOPIC, Pattern.LITERAL, "t", "User:a", host, Operation.READ, Permission.DENY
        )
        for host in ("10.0.0.0/8", "10.0.0.1")
    ]
    network, address = create_rules(image, made).result
    assert address is None
    assert (network is None) == (level >= 32)
    assert network is None or network.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_host_that_cannot_be_read_is_inside_of_nothing() -> None:
    assert not any(is_inside(host, "0.0.0.0/0") for host in ("", "unix", "1.2.3", "::1"))
    assert not is_inside("10.0.0.1", "10.0.0.1")


def test_a_network_is_an_acls_host_for_allowing_and_denying() -> None:
    made, empty = Authorizer([], False), MetadataImage.empty()
    made.follow(empty, empty.apply(
        RuleSet(AccessRule(
            Resource.TOPIC, Pattern.LITERAL, "t", "User:a", where, Operation.READ, permission
        ), True)
        for where, permission in (
            ("10.0.0.0/8", Permission.ALLOW), ("10.9.0.0/16", Permission.DENY),
            ("2001:db8::/32", Permission.ALLOW), ("10.0.0.0/99", Permission.ALLOW),
        )
    ))  # fmt: skip
    read = Operation.READ, Resource.TOPIC
    for host, allowed in (
        ("10.1.2.3", True), ("10.9.2.3", False), ("11.0.0.1", False), ("2001:db8::5", True),
        ("2001:db9::5", False),
    ):
        assert made.allows("User:a", host, *read, "t") == allowed, host
    assert made.allows_any("User:a", "10.1.2.3", *read)
    assert not made.allows_any("User:a", "10.9.2.3", *read)


@pytest.mark.parametrize(("text", "reason"), [
    ("::/129", "the prefix length 129 is greater than 128"),
    ("10.0.0.0/33", "length 33 is greater than 32"),
    ("10.0.256.0/8", "256 in the address is greater than 255"), ("10.0.0/8", "not of the form"),
    ("::/x", "'x' is not a prefix length"), ("::ffff:10.0.0.1/100", "write 10.0.0.1"),
])
def test_a_network_that_is_none_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_network(text)
