"""Samples that are taken at each request show whether lag grows."""

from __future__ import annotations

from ottla.broker.history.lag_samples import GROUPS_MAX, SAMPLES_MAX, SPACING_MS, LagSamples, Sample


def test_the_lag_is_compared_with_a_sample_that_is_old_enough() -> None:
    samples = LagSamples()
    assert samples.compare("g", Sample(0, 100, 5)) is None
    assert samples.compare("g", Sample(9_000, 120, 5)) is None
    change = samples.compare("g", Sample(10_000, 150, 7))
    assert change == (10_000, 50, 2)
    assert samples.compare("g", Sample(1_000_000, 0, 9)) is None, "what is too old says nothing"


def test_offsets_that_have_disappeared_were_not_set_back() -> None:
    samples = LagSamples()
    assert samples.compare("g", Sample(0, 100, 500, places=1)) is None
    assert samples.compare("g", Sample(20_000, 10, 5, places=2)) is None
    assert samples.compare("g", Sample(40_000, 12, 4, places=2)) == (20_000, 2, -1)


def test_samples_are_bounded() -> None:
    samples = LagSamples()
    for at in range(3000):
        change = samples.compare("g", Sample(at * 100, at, 0))
        assert change is None or change.over_ms < SAMPLES_MAX * SPACING_MS
    for at in range(GROUPS_MAX + 50):
        samples.compare(f"g{at}", Sample(0, 0, 0))
    assert len(samples) == GROUPS_MAX
