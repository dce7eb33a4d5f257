"""Client instances and their metrics: push intervals, limits, and eviction."""

from __future__ import annotations

import pytest

from ottla.broker.telemetry import client_instances
from ottla.broker.telemetry.client_instances import ClientInstance, ClientInstances, check_push
from ottla.broker.telemetry.otlp import Point
from ottla.replication.metadata import ConfigSet, MetadataImage
from ottla.wire.errors import ProtocolError
from tests.fakes import FakeClock

EVERY_SECOND = MetadataImage.empty().apply([
    ConfigSet("client-metrics", "m", "metrics", "*"),
    ConfigSet("client-metrics", "m", "interval.ms", "1000"),
])


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def instances(clock: FakeClock) -> ClientInstances:
    return ClientInstances(clock)


def one(instances: ClientInstances, number: int = 1) -> ClientInstance:
    return instances.instance(bytes([number]) * 16, {"client_id": "c"}, EVERY_SECOND)


def push(
    instances: ClientInstances, instance: ClientInstance, subscription_id: int | None = None,
    codec: int = 0, terminating: bool = False, size: int = 0,
) -> int:
    """Push once; returns the error code."""
    wanted = instance.wanted.subscription_id
    try:
        check_push(
            instance, wanted if subscription_id is None else subscription_id, codec, terminating,
            size, 100, instances.now_ms(),
        )
    except ProtocolError as error:
        instance.newest_error = error.code
        return int(error.code)
    finally:
        instance.terminating = terminating
    return 0


def test_a_client_asks_and_pushes_once_an_interval(
    instances: ClientInstances, clock: FakeClock
) -> None:
    client = one(instances)
    assert client.may_ask(instances.now_ms()) and not client.may_ask(instances.now_ms())
    assert push(instances, client) == 0
    assert push(instances, client) == 89                    # THROTTLING_QUOTA_EXCEEDED
    clock.advance(ms=999)
    assert push(instances, client) == 89 and not client.may_ask(instances.now_ms())
    clock.advance(ms=1)
    assert push(instances, client) == 0


def test_the_last_push_comes_at_any_time_and_nothing_after_it(
    instances: ClientInstances, clock: FakeClock
) -> None:
    client = one(instances)
    assert push(instances, client) == 0
    assert push(instances, client, terminating=True) == 0
    clock.advance(ms=5000)
    assert push(instances, client, terminating=True) == 42


def test_refusals_say_what_is_wrong(instances: ClientInstances) -> None:
    for number, (given, code) in enumerate((
        ({"subscription_id": 5}, 117), ({"codec": 5}, 76), ({"codec": -1}, 76),
        ({"size": 101}, 118), ({"size": 100}, 0),
    )):
        assert push(instances, one(instances, number), **given) == code     # type: ignore[arg-type]


def test_after_an_unknown_subscription_a_client_asks_again_at_once(
    instances: ClientInstances,
) -> None:
    client = one(instances)
    assert client.may_ask(instances.now_ms())
    assert push(instances, client, subscription_id=5) == 117
    assert client.may_ask(instances.now_ms())
    assert push(instances, client) == 0


def test_a_changed_subscription_is_another_question(instances: ClientInstances) -> None:
    before = one(instances)
    old = before.wanted.subscription_id
    assert before.may_ask(instances.now_ms()) and push(instances, before) == 0
    changed = EVERY_SECOND.apply([ConfigSet("client-metrics", "m", "interval.ms", "500")])
    client = instances.instance(before.instance_id, {"client_id": "c"}, changed)
    assert client is before and client.wanted.interval_ms == 500
    assert push(instances, client, subscription_id=old) == 117


def test_a_delta_is_added_and_a_total_replaces(instances: ClientInstances) -> None:
    client = one(instances)
    for _ in range(2):
        instances.keep(client, [Point("d", (), 2.0, True, True), Point("t", (), 5.0, True)], 1)
    assert {name: point.value for (name, _), point in client.values.items()} == {"d": 4, "t": 5}
    assert (instances.series, instances.dropped, client.pushes) == (2, 2, 2)


def test_values_and_clients_are_bounded(
    instances: ClientInstances, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_instances, "SERIES_MAX", 3)
    monkeypatch.setattr(client_instances, "INSTANCES_MAX", 2)
    first, second = one(instances, 1), one(instances, 2)
    instances.keep(first, [Point(f"m{i}", (), 1.0) for i in range(5)], 0)
    assert (instances.series, instances.dropped) == (3, 2)
    instances.keep(first, [Point("m0", (), 9.0)], 0)        # a known series may change
    assert first.values["m0", ()].value == 9.0
    one(instances, 2)
    third = one(instances, 3)                               # the first has been silent longest
    assert list(instances) == [second, third] and instances.series == 0
    instances.keep(first, [Point("late", (), 1.0)], 0)      # a push that was still being decoded
    assert instances.series == 0


def test_who_is_silent_for_three_intervals_and_a_minute_is_forgotten(
    instances: ClientInstances, clock: FakeClock
) -> None:
    client = one(instances)
    instances.keep(client, [Point("m", (), 1.0)], 0)
    clock.advance(ms=60_000)
    assert list(instances) == [client]
    clock.advance(ms=1)
    assert list(instances) == [] and instances.series == 0
