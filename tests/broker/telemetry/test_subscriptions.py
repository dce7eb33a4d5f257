"""Which subscriptions match a client, and the resulting metrics and interval."""

from __future__ import annotations

from ottla.broker.telemetry.subscriptions import (
    INTERVAL_MS_DEFAULT,
    Wanted,
    subscriptions_of,
    wanted_from,
)
from ottla.replication.metadata import ConfigSet, MetadataImage

WHO = {
    "client_id": "orders-1", "client_software_name": "apache-kafka-java",
    "client_source_port": "1234",
}


def image(**subscriptions: dict[str, str]) -> MetadataImage:
    records = [
        ConfigSet("client-metrics", name, key, value)
        for name, settings in subscriptions.items() for key, value in settings.items()
    ]
    return MetadataImage.empty().apply([*records, ConfigSet("topic", "t", "metrics", "no")])


def wanted(instance_id: bytes = b"1" * 16, **subscriptions: dict[str, str]) -> Wanted:
    return wanted_from(subscriptions_of(image(**subscriptions)), instance_id, WHO)


def test_without_subscriptions_nothing_is_asked_for() -> None:
    assert wanted().metrics == ()
    assert wanted().interval_ms == INTERVAL_MS_DEFAULT


def test_the_metrics_of_all_that_match_are_asked_for_at_the_shortest_interval() -> None:
    found = wanted(
        a={"metrics": "x.,y.", "interval.ms": "5000"},
        b={"metrics": "y., z.", "match": "client_id=orders-.*"},
        c={"metrics": "no", "interval.ms": "100", "match": "client_id=other"},
    )
    assert (found.metrics, found.interval_ms) == (("x.", "y.", "z."), 5000)


def test_a_star_asks_for_everything() -> None:
    assert wanted(a={"metrics": "x"}, b={"metrics": "*"}).metrics == ("*",)


def test_every_expression_has_to_match_the_whole_attribute() -> None:
    for match, matches in (
        ("client_id=orders-1", True), ("client_id=orders", False),
        ("client_id=orders-.*,client_source_port=1234", True),
        ("client_id=orders-.*, client_source_port=4", False),
        ("client_software_version=.+", False),
    ):
        assert bool(wanted(a={"metrics": "m", "match": match}).metrics) is matches, match


def test_a_pattern_that_backtracks_elsewhere_does_not_hold_the_broker() -> None:
    subscription = {"metrics": "m", "match": "client_id=([a-z]+-?)+[0-9]+"}
    found = subscriptions_of(image(a=subscription))
    assert not wanted_from(found, b"1" * 16, {"client_id": "a" * 30_000}).metrics
    assert wanted_from(found, b"1" * 16, {"client_id": "orders-eu-1"}).metrics == ("m",)


def test_a_stored_pattern_that_is_invalid_here_matches_no_client_and_hides_no_other() -> None:
    found = wanted(
        a={"metrics": "x", "match": "client_id=(?=orders).*"}, b={"metrics": "y"},
    )
    assert found.metrics == ("y",)


def test_the_id_of_a_subscription_changes_with_what_is_asked_and_with_the_client() -> None:
    asked = {"metrics": "m", "interval.ms": "1000"}
    ids = {
        wanted(a=asked).subscription_id, wanted(b=asked, a=asked).subscription_id,
        wanted(b"2" * 16, a=asked).subscription_id,
        wanted(a={**asked, "interval.ms": "2000"}).subscription_id,
        wanted(a={**asked, "metrics": "n"}).subscription_id,
    }
    assert len(ids) == 4 and all(-(1 << 31) <= each < 1 << 31 for each in ids)
