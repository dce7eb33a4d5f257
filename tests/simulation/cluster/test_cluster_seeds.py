"""Runs of three brokers: every promise is kept, and the same seed is the same run."""

from __future__ import annotations

import pytest

from tests.simulation.run import run_alone

FOUND = {
    8: "a controller that is deposed answered FindCoordinator with NOT_CONTROLLER",
    70: "all power cut: members returned before the sessions of the dead had ended; the preferred"
        " replica led instead of the longest log",
    110: "metadata that change while a broker stops, after it has let go what it fetched",
    144: "all power cut: the controller removed the dead one by one, and only the last one stayed",
    349: "all power cut, then a clean stop of the only one in sync: another led without asking it",
    21: "a session that had ended still wrote and set watches: the simulated ZooKeeper's own",
}
"""Seeds of runs that found something."""


@pytest.mark.parametrize("seed", sorted({*range(1, 9), *FOUND}))
def test_three_brokers_keep_every_promise(seed: int) -> None:
    ran = run_alone(seed, brokers=3)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


def test_the_same_seed_is_the_same_run_of_three_brokers() -> None:
    assert run_alone(2, brokers=3).stdout == run_alone(2, brokers=3).stdout
