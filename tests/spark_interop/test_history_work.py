"""The work of checking a history grows no faster than the history, and each value costs little."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from ottla.spark_interop.history_rules import check
from tests.spark_interop.histories import Events, Recorder, good_history

LINES_FOR_A_READ = 10
"""7 lines are executed for each value that one more reader reads. They were 50 when each read was
an object."""
LINES_FOR_A_VALUE = 120
"""83 lines are executed for one more value and its four reads. They once were 261."""


class Process(int):
    """A process number that counts its comparisons, so that a search through a list counts, too."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Process.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def work(events: Events) -> int:
    """How many lines are executed, and process numbers compared, to check a history."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    for event in events:
        event["process"] = Process(event["process"])
    Process.compared, before = 0, sys.gettrace()
    sys.settrace(trace)
    try:
        check(events)
    finally:
        sys.settrace(before)
    return lines + Process.compared


def commits(count: int) -> Events:
    """Commits of a group, half of them with unknown outcomes. Each is followed by a fetch."""
    r = Recorder(0)
    for n in range(count):
        kind = "info" if n % 2 else "ok"
        r.operation(100 + n, "commit_offsets", kind, mops=[["commit", "g", 0, n]])
        r.operation(1, "fetch_offsets", mops=[["committed", "g", 0, n]])
    return r.events


def epochs(count: int) -> Events:
    """A transactional id that gets a new epoch before each transaction."""
    r = Recorder(0)
    for n in range(count):
        r.operation(1, "init", txn_id="t", epoch=n)
        r.operation(1, "txn", mops=[r.append(0)], txn_id="t", epoch=n)
    return r.events


def chain(count: int) -> Events:
    """Transactions, each of which reads what the previous one has sent."""
    r = Recorder(0)
    for n in range(count):
        poll = r.poll(0, n - 1, 1) if n else ["poll", 0, []]
        r.operation(n % 5, "txn", mops=[poll, r.append(0)])
    return r.events


def readers(keys: int, count: int = 4) -> Events:
    """A send of a hundred values to each key, and `count` readers of all keys."""
    r = Recorder(0)
    for n in range(keys):
        r.logs[n] = []
        r.operation(1, "send", mops=[r.append(n) for _ in range(100)])
    for process in range(2, 2 + count):
        r.operation(process, "poll", mops=[r.poll(n, 0, 100) for n in range(keys)])
    return r.events


def everything(count: int) -> Events:
    """Operations of all kinds."""
    return good_history(1, count)


@pytest.mark.parametrize("history", [commits, epochs, chain, everything])
def test_work_grows_with_the_history(history: Callable[[int], Events]) -> None:
    # Four times the events take four times the work; quadratic work would be sixteen times as much.
    assert work(history(800)) < 5 * work(history(200))


def test_a_value_costs_few_lines() -> None:
    base = work(readers(4, 4))
    assert work(readers(4, 5)) - base < 400 * LINES_FOR_A_READ
    assert work(readers(5, 4)) - base < 100 * LINES_FOR_A_VALUE
