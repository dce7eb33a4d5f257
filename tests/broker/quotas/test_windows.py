"""Sliding windows and token buckets: how much passes at once, and how long a client then waits."""

from __future__ import annotations

import random

import pytest

from ottla.broker.quotas.windows import Rate, TokenBucket

QUOTA = 1000.0


def test_a_first_burst_may_take_what_nearly_a_whole_window_allows() -> None:
    rate = Rate(11, 1, QUOTA)
    assert rate.record(10 * QUOTA, 100.0) == 0
    assert rate.record(1, 100.0) == pytest.approx(0.001)


def test_who_took_twice_the_window_waits_for_as_long_as_that_takes() -> None:
    assert Rate(11, 1, QUOTA).record(20 * QUOTA, 100.0) == pytest.approx(10)


@pytest.mark.parametrize("size", [100, 700, 3000, 9000])
def test_a_client_that_waits_as_told_keeps_its_rate(size: int) -> None:
    rate, now, total = Rate(11, 1, QUOTA), 0.0, 0
    rate.record(10 * QUOTA, now)                # the initial burst
    began, chance = 10.0, random.Random(size)
    now = began
    while now < began + 100:
        total += size
        now += max(rate.record(size, now), chance.random() * 0.001)
    assert total / (now - began) == pytest.approx(QUOTA, rel=0.15)


def test_what_is_older_than_the_window_does_not_count() -> None:
    rate = Rate(11, 1, QUOTA)
    assert rate.record(50 * QUOTA, 0.0) > 0
    assert rate.record(10 * QUOTA, 11.5) == 0


def test_asking_counts_nothing_and_lets_pass_what_never_fits() -> None:
    rate = Rate(11, 1, QUOTA)
    assert rate.would_wait(1000 * QUOTA, 0.0) == 0
    assert rate.record(9 * QUOTA, 0.0) == 0
    assert rate.would_wait(2 * QUOTA, 0.0) == rate.would_wait(2 * QUOTA, 0.0) > 0
    assert rate.record(1 * QUOTA, 0.0) == 0


def test_tokens_that_are_owed_come_back_at_the_rate() -> None:
    bucket = TokenBucket(11, 1, 2.0, 0.0)
    assert bucket.wait(0.0) == 0
    bucket.take(32, 0.0)                        # ten more than the burst
    assert bucket.wait(0.0) == pytest.approx(5)
    assert bucket.wait(3.0) == pytest.approx(2)
    assert bucket.wait(60.0) == 0


def test_a_rest_saves_no_more_than_a_burst() -> None:
    bucket = TokenBucket(11, 1, 2.0, 0.0)
    bucket.take(1, 1000.0)
    bucket.take(22, 1000.0)
    assert bucket.wait(1000.0) == pytest.approx(0.5)


def test_a_smaller_rate_takes_what_was_saved() -> None:
    bucket = TokenBucket(11, 1, 20.0, 0.0)
    bucket.allow(1.0, 0.0)
    bucket.take(12, 0.0)
    assert bucket.wait(0.0) == pytest.approx(1)
