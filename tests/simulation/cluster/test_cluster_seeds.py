"""Runs of three brokers: every promise is kept, and the same seed is the same run."""

from __future__ import annotations

import pytest

from tests.simulation.cluster.options import ClusterOptions
from tests.simulation.run import outcome

FOUND = {21: "a session that had ended still wrote and set watches: the simulated ZooKeeper's own"}
"""Seeds of runs that found something."""


@pytest.mark.parametrize("seed", [*range(1, 9), *FOUND])
def test_three_brokers_keep_every_promise(seed: int) -> None:
    found = outcome(seed, ClusterOptions.draw(seed))
    assert not found.violation, f"{found.violation}\n" + "\n".join(found.trace[-40:])


def test_the_same_seed_is_the_same_run_of_three_brokers() -> None:
    first, second = (outcome(2, ClusterOptions.draw(2)) for _ in range(2))
    assert (first.steps, first.trace) == (second.steps, second.trace)
