"""Throttled replicas stay within the rate; those in sync never wait (KIP-73)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.replication.metadata import ConfigSet, MetadataImage
from ottla.replication.throttle import UNLIMITED, Throttle
from tests.fakes import FakeClock

SETTING = "leader.replication.throttled.replicas"


def throttle(text: str, rate: int = 1000) -> tuple[Throttle, FakeClock]:
    clock = FakeClock()
    made = Throttle("leader", 7, lambda: rate, clock)
    empty = MetadataImage.empty("c")
    made.follow(empty, empty.apply([ConfigSet("topic", "t", SETTING, text)]))
    return made, clock


def partition(index: int = 0, isr: tuple[int, ...] = (7,)) -> Any:
    return SimpleNamespace(topic="t", index=index, isr=isr)


@pytest.mark.parametrize(
    ("text", "named"),
    [("*", {0, 1, 2}), ("0:7,2:7,1:3", {0, 2}), ("1:17", set()), ("0:7, 1:7", {0, 1})],
)
def test_the_named_replicas_of_this_broker_are_throttled(text: str, named: set[int]) -> None:
    made, _ = throttle(text)
    assert {n for n in range(3) if made.applies_to("t", n)} == named
    assert not made.applies_to("u", 0)
    assert made.active == bool(named)


def test_a_replica_out_of_sync_waits_until_the_rate_is_met() -> None:
    made, clock = throttle("*")
    assert made.wait_for(partition(), 8) == 0
    made.record("t", 0, 3000)
    assert made.wait_for(partition(), 8) == 1, "two seconds are due, one is waited for at once"
    assert made.wait_for(partition(isr=(7, 8)), 8) == 0, "those in sync go on"
    clock.advance(2500)
    assert made.wait_for(partition(), 8) == pytest.approx(0.5)
    clock.advance(500)
    assert made.wait_for(partition(), 8) == 0


def test_over_a_minute_no_more_goes_through_than_the_rate_allows() -> None:
    made, clock = throttle("*", rate=10_000)
    sent = 0
    for _ in range(600):
        while made.wait_for(partition(), 8) == 0:
            made.record("t", 0, 700)
            sent += 700
        clock.advance(100)
    assert 500_000 < sent < 650_000


def test_bytes_count_for_eleven_seconds() -> None:
    made, clock = throttle("*")
    made.record("t", 0, 50_000)
    clock.advance(10_999)
    assert made.wait_for(partition(), 8) == 1
    clock.advance(1)
    assert made.wait_for(partition(), 8) == 0
    assert not made.samples


def test_bytes_that_nobody_waits_for_are_forgotten_as_well() -> None:
    made, clock = throttle("*", UNLIMITED)
    for _ in range(600):
        made.record("t", 0, 1)
        clock.advance(100)
    assert len(made.samples) == 11 and sum(size for _, size in made.samples) == 110


def test_without_a_rate_or_with_none_left_nothing_or_everything_waits() -> None:
    made, _ = throttle("*", UNLIMITED)
    made.record("t", 0, 1 << 40)
    assert made.wait_for(partition(), 8) == 0
    made, _ = throttle("*", 0)
    assert made.wait_for(partition(), 8) == 1


def test_a_setting_that_is_removed_throttles_no_more() -> None:
    made, _ = throttle("*", 0)
    before = MetadataImage.empty("c").apply([ConfigSet("topic", "t", SETTING, "*")])
    made.follow(before, before.apply([ConfigSet("topic", "t", SETTING, None)]))
    assert not made.active and made.wait_for(partition(), 8) == 0
