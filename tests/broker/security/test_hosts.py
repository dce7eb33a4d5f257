"""A client's address is the same in every notation: for ACLs, limits and quotas."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.quotas.connection_rates import ConnectionRates
from ottla.broker.security.authorizer import Authorizer
from ottla.broker.settings.addresses import canonical_host
from ottla.broker.settings.config import BrokerConfig, SettingsError, limits_by_host
from ottla.replication.controller.access import Operation, Pattern, Permission, Resource
from ottla.replication.metadata import MetadataImage
from ottla.replication.principals import AccessRule, QuotaSet, RuleSet
from ottla.wire.messages import MetadataRequest
from tests.broker.running import RunningBroker, WireClient


@pytest.mark.parametrize(
    ("given", "compared"),
    [
        ("::ffff:192.0.2.1", "192.0.2.1"), ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8:0:0:0:0:0:A", "2001:db8::a"), ("fe80:0:0:0:0:0:0:1%eth0", "fe80::1%eth0"),
        ("192.0.2.1", "192.0.2.1"), ("*", "*"), ("host:9092", "host:9092"), ("::x", "::x"),
    ],
)
def test_an_address_has_one_form(given: str, compared: str) -> None:
    assert canonical_host(given) == compared


def test_a_client_of_ipv4_is_known_by_its_address_on_a_socket_of_both(tmp_path: Path) -> None:
    """An earlier version knew this client as `::ffff:127.0.0.1`, so an ACL that denies 127.0.0.1
    did not apply."""
    settings = {
        "listeners": "PLAINTEXT://[::]:0", "advertised.listeners": "PLAINTEXT://localhost:0",
    }
    with RunningBroker(tmp_path, **settings) as broker:
        for host in ("127.0.0.1", "::1"):
            with WireClient((host, broker.port)) as client:
                assert client.call(MetadataRequest(topics=[]), 9).brokers
                [connection] = broker.server.listeners[0].connections
                assert connection.client.host == host
                assert broker.server.listeners[0].limits.per_host == {host: 1}


@pytest.mark.parametrize("host", ["0:0:0:0:0:0:0:1", "::1", "0::1"])
def test_a_rule_with_any_form_of_a_host_is_about_it(host: str) -> None:
    made, empty = Authorizer([], False), MetadataImage.empty()
    made.follow(empty, empty.apply(
        RuleSet(AccessRule(
            Resource.TOPIC, Pattern.LITERAL, "t", "User:a", where, Operation.READ, permission
        ), True)
        for where, permission in (("*", Permission.ALLOW), (host, Permission.DENY))
    ))  # fmt: skip
    assert not made.allows("User:a", "::1", Operation.READ, Resource.TOPIC, "t")
    assert made.allows("User:a", "::2", Operation.READ, Resource.TOPIC, "t")


def test_limits_of_addresses_hold_for_any_form() -> None:
    assert limits_by_host("[0:0:0:0:0:0:0:1]:5,192.0.2.1:7") == {"::1": 5, "192.0.2.1": 7}
    # An earlier version compared the name as text with addresses, so the limit had no effect.
    assert limits_by_host("localhost:3")["127.0.0.1"] == 3
    with pytest.raises(SettingsError, match="'localhost' is not an address"):
        limits_by_host("localhost:3", names=False)
    with pytest.raises(SettingsError, match="does not resolve"):
        limits_by_host("no-such.invalid:3")
    rates = ConnectionRates(BrokerConfig.load(None, ["log.dirs=/nowhere"]))
    quota = QuotaSet((("ip", "0:0:0:0:0:0:0:1"),), "connection_creation_rate", 1.0)
    rates.follow(MetadataImage.empty(), MetadataImage.empty().apply([quota]))
    assert [rates.held("::1", 0.0) > 0 for _ in range(12)].count(True) == 2
    assert not any(rates.held("::2", 0.0) for _ in range(12))
