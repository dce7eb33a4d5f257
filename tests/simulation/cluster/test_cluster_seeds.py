"""Tests that runs of three brokers keep every promise, and that a seed always gives the same run.

After a change of the simulator, a seed gives another run, which may no longer find the defect that
the seed once found. Mutants are patches that bring such a defect back: they show whether runs still
find it.
"""

from __future__ import annotations

import pytest

from tests.simulation.run import python_alone, run_alone

FOUND = {
    89: "a loop that took a connection closed by another one's request for a stranger's",
    111: "a checker that could not wait for the repair of a damaged log of a coordinator",
    242: "a controller that waited for ever for the outcome of its own write, which was lost",
    10191: "damage that the scrub passed over after a power cut",
    10369: "a model that held the offsets of a transaction only until an earlier one was named",
    11488: "the same, of a log that its broker knew to be damaged",
    13169: "a directory that was missed although it was on a disk that had just been replaced",
    47016: "a reassignment that dropped the only replica whose disk had the records",
}
"""Seeds of long lives that once broke a promise, each with the defect that caused it."""
OFFLINE = 152200
"""A seed in which a log directory goes offline. Formerly the simulated operator did not restart the
broker."""
CUT_AT_THE_START = 413
"""A seed in which a connection to ZooKeeper breaks before a broker has registered. Formerly the
broker ended because of that."""
RESTORED = 66
"""A seed in which one backup of ZooKeeper is restored three times. Formerly an epoch had two
leaders."""
RESTORED_UNWRITTEN = 604
"""A seed like RESTORED in which no client writes between two restores. Formerly a leader epoch that
was in no log was assigned twice."""
ELSEWHERE = 200576
"""A seed in which a former leader is elected uncleanly. Its log has a record, which it never
acknowledged, at another offset than its successor did. Formerly the model expected the record at
the successor's offset."""


@pytest.mark.parametrize("seed", [
    *range(1, 13), CUT_AT_THE_START, OFFLINE, RESTORED, RESTORED_UNWRITTEN, ELSEWHERE,
])
def test_three_brokers_keep_every_promise(seed: int) -> None:
    ran = run_alone(seed, brokers=3)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


@pytest.mark.parametrize("seed", FOUND)
def test_a_run_of_three_brokers_that_broke_a_promise_keeps_all(seed: int) -> None:
    ran = run_alone(seed, brokers=3, long=True)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


def test_the_same_seed_is_the_same_run_of_three_brokers() -> None:
    assert run_alone(2, brokers=3).stdout == run_alone(2, brokers=3).stdout


def test_a_seed_is_the_same_run_whatever_ran_before_it_in_the_process() -> None:
    program = (
        "from tests.simulation.cluster.options import ClusterOptions\n"
        "from tests.simulation.run import outcome\n"
        "one, other = (outcome(20001, ClusterOptions.draw(20001)).trace for _ in range(2))\n"
        "assert one == other, [pair for pair in zip(one, other) if pair[0] != pair[1]][:1]\n"
    )
    ran = python_alone("-c", program)
    assert ran.returncode == 0, ran.stderr[-2000:]
