"""Seeds that once broke a promise no longer do. The same seed always gives the same run."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from tests.simulation.mutants import mutants
from tests.simulation.run import ROOT, run_alone

FOUND = {
    10: "offsets of an open transaction came back after their group was deleted",
    17: "a topic made anew began with the checkpoints of the one before it",
    18: "a kill during deletions left directories for ever",
    24: "a missing log directory was replaced by empty partitions",
    38: "a flush beside a deletion took the last log directory offline",
    46: "a clock that went back kept deleted files for hours",
    6: "DeleteTopics on a full disk ended the process",
    2: "after a kill, look-ups by time missed the last records of sealed segments",
    113: "a topic deleted while a group's shard was loading left its offsets to the next one",
    366: "a batch overtook its producer's first one, whose write had failed, and shut it out",
    434: "a lost index of aborted transactions went unnoticed where one was open at the stop",
    529: "a compacted topic kept the hole that a power cut had made at the end of a segment",
    576: "a rebuilt index of aborted transactions was not durable, and recovery had passed it",
    741: "a name that deleted topics had left in two directories could not be used again",
    2119: "what a clean stop knew of a lost index was forgotten by a kill after the next start",
    2575: "a failed write left a directory without an id, which kept the broker from starting",
    512: "the model: of a key under `compact,delete`, the newer record had the older time and aged",
    2642: "the model: a deletion of a group began and ended while a commit's answer was on its way",
    3008: "the model: a commit and a deletion of its group were answered at almost the same time",
    305: "a produce in a transaction to an offline partition closed the connection",
    88: "a look-up by time of append named a record that compaction had removed",
}
"""The seeds of runs that first showed these defects. At that time all lives were long. A change of
this folder may change what the clients of a seed do, so a seed may no longer show its defect. The
patches in mutants/, which `make mutants` tries, bring defects back."""


@pytest.mark.parametrize("seed", sorted(FOUND))
def test_a_run_that_broke_a_promise_keeps_all_of_them(seed: int) -> None:
    ran = run_alone(seed, long=True)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


FOUND_AS_DRAWN = {
    426: "the model: retention took what a look-up by time was then asked for",
    41: "the model: compaction between a reading and look-ups by time",
    621: "a batch came before others that were refused while their log could not be opened",
    988: "a log that moved away and back while it was compacted lost a segment",
    1027: "offsets of deleted topics stayed where a full disk had refused their tombstones",
    5060: "gaps of a compaction before a kill ended every reader once the topic was not compacted",
    6899: "the model: compaction between two readings hid records from the second one",
}


@pytest.mark.parametrize("seed", sorted(FOUND_AS_DRAWN))
def test_a_run_as_it_is_drawn_keeps_what_it_broke(seed: int) -> None:
    ran = run_alone(seed)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]


def trace_of(seed: int, junk: int) -> str:
    """A hash of the trace of a run in a process of its own. Another `junk` gives objects other
    addresses."""
    program = (
        "from tests.simulation.options import Options\n"
        "from tests.simulation.run import outcome\n"
        f"junk = [object() for _ in range({junk})]\n"
        f"found = outcome({seed}, Options.draw({seed}))\n"
        "print(found.steps, *found.trace)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, capture_output=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": "0"}, timeout=100,
    )
    return hashlib.sha256(ran.stdout).hexdigest()


def test_the_same_seed_is_the_same_run() -> None:
    assert trace_of(3, 0) == trace_of(3, 7777)


def test_every_mutant_changes_what_there_is() -> None:
    for mutant in mutants():
        assert mutant.texts(), mutant.name
