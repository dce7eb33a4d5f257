"""The rules for a history's end offsets, committed offsets, owners, epochs and leaders.

Each rule checks a list of plain rows. A row has the values, and for most rules the times, of one
operation; `history_events.spread` makes the rows.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import Any

from ottla.spark_interop.history_events import Anomaly, where


def judge_lists(table: str, group: Any, rows: list[Any]) -> list[Anomaly]:
    """Checks the rows of one group by the rule of their table, which is a key of LISTS."""
    return LISTS[table](group, rows)


def _ends(group: Any, rows: list[Any]) -> list[Anomaly]:
    """If one end offset was reported before another was requested, the second must not be lower."""
    found, reported, highest = [], sorted(rows, key=lambda r: r[2]), -1
    done = 0
    for offset, began, _, op in sorted(rows, key=lambda r: r[1]):
        while done < len(reported) and reported[done][2] < began:
            highest = max(highest, reported[done][0])
            done += 1
        if offset < highest:
            what = (
                f"the end offset was {highest}, and later {offset}, both in leader epoch {group[1]}"
            )
            found.append(Anomaly("end_offset_regress", where(op, group[0]), what))
    return found


def _offsets(group: Any, rows: list[Any]) -> list[Anomaly]:
    anomalies = []
    sure: list[Any] = []
    by_offset: dict[int, list[tuple[int, float]]] = defaultdict(list)  # times of the commits
    for row in rows:
        what, offset, kind, began, ended, _ = row
        if what == "commit" and kind == "ok":
            sure.append(row)
            by_offset[offset].append((began, ended))
        elif what == "commit" and kind == "info":
            by_offset[offset].append((began, math.inf))
    sure.sort(key=lambda row: row[4])
    ends = [row[4] for row in sure]
    for what, offset, kind, began, ended, op in rows:
        if what != "committed" or kind != "ok":
            continue
        before = bisect_left(ends, began) - 1
        if before < 0 or offset >= sure[before][1]:
            continue
        newest = sure[before]
        # A commit of this offset that may have followed `newest` explains the result.
        if not any(b <= ended and e >= newest[3] for b, e in by_offset.get(offset, ())):
            has = "no committed offset" if offset == -1 else f"the committed offset {offset}"
            text = f"group {group[0]} has {has}, although it had committed offset {newest[1]}"
            anomalies.append(Anomaly("offset_commit_loss", where(op, group[1]), text))
    return anomalies


def _owners(group: Any, rows: list[Any]) -> list[Anomaly]:
    place = f"group {group[0]}, generation {group[1]}, key {group[2]}"
    return _several("double_ownership", place, "owned by", rows)


def _epochs(group: Any, rows: list[Any]) -> list[Anomaly]:
    anomalies = []
    begins = sorted((ended, epoch) for f, epoch, _, ended, _ in rows if f == "init")
    ends = [ended for ended, _ in begins]
    highest = list(accumulate((epoch for _, epoch in begins), max))
    for f, epoch, began, _, op in rows:
        before = bisect_left(ends, began) - 1
        if f != "init" and before >= 0 and highest[before] > epoch:
            what = f"transactional id {group} wrote in epoch {epoch} after epoch {highest[before]}"
            anomalies.append(Anomaly("zombie_write", where(op), what))
    return anomalies


def _leaders(group: Any, rows: list[Any]) -> list[Anomaly]:
    place = f"key {group[0]}, leader epoch {group[1]}"
    return _several("split_leadership", place, "led by brokers", rows)


def _several(rule: str, place: str, what: str, rows: list[Any]) -> list[Anomaly]:
    """An anomaly if the rows, which should all be equal, differ."""
    names = sorted(set(map(str, rows)))
    return [Anomaly(rule, place, f"{what} {', '.join(names)}")] if len(names) > 1 else []


LISTS = {
    "end": _ends, "offset": _offsets, "owner": _owners, "epoch": _epochs, "leader": _leaders,
}  # fmt: skip
"""By table of `history_events.spread`: the function that checks the rows of one group. The rules
for the tables that are not listed here are in `history_rules`."""
