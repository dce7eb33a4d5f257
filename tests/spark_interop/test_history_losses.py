"""A loss at any position of a history is reported under its own name, and nothing else is
reported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.history import check_history_file
from ottla.spark_interop.history_rules import HistoryError, check
from tests.spark_interop.histories import Events, Recorder

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def sent(count: int, key: int = 0) -> Recorder:
    """A history of acknowledged sends to one key."""
    r = Recorder(0)
    for _ in range(count):
        r.operation(1, "send", mops=[r.append(key)])
    return r


def final(
    r: Recorder, process: int, without: Sequence[int] = (), key: int = 0, **fields: Any
) -> None:
    """Add a final read of a key that lacks the offsets in `without`."""
    found = [one for one in r.poll(key, 0, len(r.logs[key]))[2] if one[0] not in without]
    r.operation(process, "poll", mops=[["poll", key, found]], final=True, **fields)


def counts(events: Events) -> dict[str, int]:
    """How many anomalies of each name `check` finds. Its verdict must have no `doubts`."""
    verdict = check(events)
    assert not verdict.doubts
    return verdict.counts


@pytest.mark.parametrize(
    ("count", "without", "expected"),
    [
        (5, (), {}),
        (1, (0,), {"unseen_at_end": 1, "stale_end": 1}),
        (5, range(5), {"unseen_at_end": 5, "stale_end": 1}),
        (5, (0,), {"lost_write": 1}),
        (5, (2,), {"lost_write": 1, "poll_skip": 1}),
        (5, (4,), {"unseen_at_end": 1, "stale_end": 1}),
    ],
)
def test_a_lost_write_is_found_in_every_position(
    count: int, without: Sequence[int], expected: dict[str, int]
) -> None:
    r = sent(count)
    final(r, 2, without)
    assert counts(r.events) == expected


@pytest.mark.parametrize("short", [0, 1])
@pytest.mark.parametrize("process", [(2, 3), (2, 2)])
@pytest.mark.parametrize(
    ("without", "expected"),
    [
        (range(5), {"unseen_at_end": 5, "stale_end": 1}),
        (range(3, 5), {"unseen_at_end": 2, "stale_end": 1}),
        ((0,), {"unseen_at_end": 1}),
        ((2,), {"unseen_at_end": 1, "poll_skip": 1}),
    ],
)
def test_every_final_read_has_everything(
    process: tuple[int, int], short: int, without: Sequence[int], expected: dict[str, int]
) -> None:
    r = sent(5)
    for n in range(2):
        final(r, process[n], without if n == short else ())
    assert counts(r.events) == expected


@pytest.mark.parametrize(
    ("without", "stuck"), [(range(5), 5), ((4,), 1), ((0,), 1)]
)
@pytest.mark.parametrize("committed_first", [True, False])
def test_a_committed_read_that_lacks_what_the_other_has_is_stuck(
    without: Sequence[int], stuck: int, committed_first: bool
) -> None:
    r = sent(5)
    reads = [(without, COMMITTED), ((), UNCOMMITTED)]
    for n, (lacks, isolation) in enumerate(reads if committed_first else reads[::-1]):
        final(r, 2 + n, lacks, isolation=isolation)
    assert counts(r.events) == {"stuck_read_committed": stuck}


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
@pytest.mark.parametrize("key", [0, 1, 2])
@pytest.mark.parametrize("unread", [False, True])
def test_a_transaction_that_lacks_a_key_is_torn(isolation: str, key: int, unread: bool) -> None:
    r = Recorder(0)
    r.operation(1, "txn", mops=[r.append(k) for k in (0, 1, 2)], txn_id="t", epoch=0)
    for k in (0, 1, 2):
        if k != key or not unread:
            final(r, 2, (0,) if k == key else (), k, isolation=isolation)
    expected = {"unseen_at_end": 1, "torn_transaction": 1}
    assert counts(r.events) == (expected if unread else {**expected, "stale_end": 1})


def test_a_transaction_that_is_missing_is_unseen_as_a_whole() -> None:
    r = Recorder(0)
    r.operation(1, "txn", mops=[r.append(k) for k in (0, 1)], txn_id="t", epoch=0)
    for k in (0, 1):
        final(r, 2, (0,), k)
    assert counts(r.events) == {"unseen_at_end": 2, "stale_end": 2}


def test_a_key_of_which_no_final_read_succeeded_is_a_doubt() -> None:
    r = sent(5)
    r.operation(1, "send", mops=[r.append(1)])
    final(r, 2)
    r.operation(3, "poll", "info", mops=[], final=True)
    verdict = check(r.events)
    assert not verdict.counts
    assert verdict.doubts == ["no final read of 1 key succeeded, for example of 1"]
    final(r, 4, key=1)
    assert check(r.events).valid


def test_what_is_sent_after_a_final_read_need_not_be_in_it() -> None:
    r = sent(2)
    final(r, 2)
    r.operation(1, "send", mops=[r.append(0)])
    _, _, value, _ = r.append(0)
    r.operation(5, "send", "info", mops=[["send", 0, value, None]])
    final(r, 3)
    assert check(r.events).valid
    final(r, 4, (3,))       # the unknown value has been read
    assert counts(r.events) == {"unseen_at_end": 1}


@pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
def test_an_empty_key_may_be_empty(isolation: str) -> None:
    r = Recorder(0)
    r.append(0, committed=False)
    r.operation(1, "txn", "fail", mops=[["send", 0, 1, 0]], txn_id="t", epoch=0)
    final(r, 2, isolation=isolation)
    r.operation(2, "poll", mops=[["poll", 1, []]])
    assert counts(r.events) == {}


@pytest.mark.parametrize("nothing", [None, -1])
def test_a_group_that_has_nothing_committed_has_lost_its_commit(nothing: int | None) -> None:
    r = Recorder(0)
    r.operation(2, "fetch_offsets", mops=[["committed", "g", 0, nothing]])
    assert check(r.events).valid
    r.operation(1, "commit_offsets", mops=[["commit", "g", 0, 0]])
    r.operation(2, "fetch_offsets", mops=[["committed", "g", 0, nothing]])
    assert counts(r.events) == {"offset_commit_loss": 1}


@pytest.mark.parametrize(
    ("f", "mop", "error"),
    [
        ("commit_offsets", ["commit", "g", 0, None], "the offset None of 'commit'"),
        ("end_offset", ["end", 0, 1, None], "the offset None of 'end'"),
        ("poll", ["poll", 0, None], "has type=ok, but its 'poll' has no list"),
    ],
)
def test_an_answer_without_a_value_is_refused(f: str, mop: list[Any], error: str) -> None:
    r = Recorder(0)
    r.operation(1, f, mops=[mop])
    with pytest.raises(HistoryError, match=error):
        check(r.events)


@pytest.mark.parametrize(
    ("f", "mops", "fields"),
    [
        ("sned", [["send", 0, 1, 0]], {}),
        ("send", [["sent", 0, 1, 0]], {}),
        ("send", [["send", 0, 1]], {}),
        ("send", [["send", 0, 1, "0"]], {}),
        ("send", [["send", 0, 1, True]], {}),
        ("send", [["send", 0, [1], 0]], {}),
        ("send", [["send", [0], 1, 0]], {}),
        ("send", {"send": 0}, {}),
        ("send", [[]], {}),
        ("send", [["send", 0, None, 0], ["send", 0, None, 1]], {}),
        ("send", [["send", 0, 1, 0]], {"t_ns": None}),
        ("poll", [["poll", 0]], {}),
        ("poll", [["poll", 0, [[1]]]], {}),
        ("poll", [["poll", 0, [1]]], {}),
        ("poll", [["poll", 0, [[None, 1]]]], {}),
        ("poll", [["poll", 0, [["1", 1]]]], {}),
        ("poll", [["poll", 0, [[1, {}]]]], {}),
        ("poll", [["poll", 0, [[0, 1]]]], {"isolation": "read-committed"}),
        ("poll", [["poll", 0, []]], {"final": "false"}),
        ("txn", [], {"txn_id": "t"}),
        ("assign", [["assigned", "g", 1]], {}),
        ("end_offset", [["end", 0, 1, True]], {}),
    ],
)
def test_what_no_rule_would_look_at_is_refused(
    f: str, mops: Any, fields: dict[str, Any], tmp_path: Path
) -> None:
    r = sent(3, key=2)
    r.operation(2, f, mops=mops, **fields)
    for event in r.events[-2:]:
        event.update(fields)
    file = tmp_path / "history.jsonl"
    file.write_text("\n".join(map(json.dumps, r.events)))
    with pytest.raises(PipelineError, match=rf"^{file}: .*(process 2|operation 0|key 0)"):
        check_history_file(None, file, small=True)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_circle_is_found_wherever_its_value_is_in_the_poll(place: int) -> None:
    r = Recorder(0)
    values = ["x", "y"]
    values.insert(place, "a")
    found = [[offset, value] for offset, value in enumerate(values)]
    for offset, value in found:
        polled = [["poll", 8, [[0, "b"]]]] if value == "a" else []
        r.operation(10 + offset, "txn", mops=[["send", 7, value, offset], *polled])
    r.operation(20, "txn", mops=[["send", 8, "b", 0], ["poll", 7, found]])
    assert counts(r.events) == {"circular_information_flow": 1}
