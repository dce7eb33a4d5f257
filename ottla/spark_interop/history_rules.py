"""The rules for a history of sends, polls and transactions, without Spark.

`history_events` defines a history. The definitions follow Elle and Jepsen's workload for Kafka:
write-write cycles are legal, since Kafka does not isolate writes. Small histories: `check`. Large
ones: `history.check_history` applies the same functions to Spark's groups; `spread`, `judge_key`,
`judge_lists` and `judge_transactions` each need only the rows of one process, one key, one list,
one transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.spark_interop.history_events import (
    Anomaly,
    HistoryError,
    ProcessRows,
    Read,
    Send,
    completed,
    spread,
    where,
)
from ottla.spark_interop.history_spool import Spool

__all__ = [
    "RULES",
    "Anomaly",
    "HistoryError",
    "KeyFacts",
    "Verdict",
    "check",
    "judge_key",
    "judge_lists",
    "judge_transactions",
    "spread",
]
EXAMPLES_MAX = 32
RULES = {
    "corrupt_value": "a polled value was never sent, or its checksum is wrong",
    "inconsistent_offsets": "one offset of a key had two values",
    "duplicate": "one value is at two offsets of a key",
    "lost_write": "a write that must have happened was passed by readers, and nobody ever read it",
    "unseen_at_end": "an acknowledged value is not in the final read",
    "stale_end": "the final read ends before an acknowledged offset",
    "stuck_read_committed": "the final read_committed read lacks what the final one without has",
    "aborted_read": "a value of an aborted transaction or a failed send was read",
    "precommitted_read": "a transaction read what it had sent itself",
    "poll_skip": "a reader went past a committed value",
    "nonmonotonic_poll": "a reader went back without a seek",
    "nonmonotonic_send": "a process's later send has the lower offset",
    "torn_transaction": "of a transaction some values are there and some are lost",
    "circular_information_flow": "transactions read from each other in a circle (G1c)",
    "circular_in_real_time": "such a circle together with the order of real time",
    "end_offset_regress": "a visible end offset went back within a leader epoch",
    "offset_commit_loss": "a group's committed offset is less than what was committed before",
    "double_ownership": "two members had one partition in one generation",
    "zombie_write": "a producer wrote after a newer epoch of its id was acknowledged",
    "split_leadership": "two brokers led one partition in one leader epoch",
}


@dataclass
class KeyFacts:
    """What a key contributes to the rules over transactions, which are checked at the end."""

    anomalies: list[Anomaly]
    seen: dict[tuple[Hashable, int], tuple[int, int]]  # writing txn: values seen, values lost
    reads_from: list[tuple[tuple[Hashable, int], tuple[Hashable, int]]]  # writer, reader


def judge_key(
    key: Hashable, sends: list[Send], reads: list[Read], idempotent: bool = True
) -> KeyFacts:
    """Every rule that needs the rows of one key only."""
    facts = KeyFacts([], {}, [])
    good = [read for read in reads if read.kind == "ok"]
    writer = {send.value: send for send in sends}
    versions: dict[int, list[Any]] = defaultdict(list)
    seen = {read.value for read in good}
    for read in reads:
        if read.value not in versions[read.offset]:
            versions[read.offset].append(read.value)
    # What proves that a write took place; in a transaction only committed reads do.
    shown = {False: seen, True: {read.value for read in good if read.committed_only}}
    must = {
        s.value: s for s in sends
        if s.kind == "ok" or (s.kind == "info" and s.value in shown[s.in_txn])
    }
    for send in must.values():
        if send.offset is not None and send.value not in versions[send.offset]:
            versions[send.offset].append(send.value)
    order = sorted(versions)
    at: dict[Any, int] = {}
    for offset in order:
        for value in versions[offset]:
            at.setdefault(value, offset)

    facts.anomalies += _values(key, good, writer, versions, order, idempotent)
    lost = _lost(key, must, good, seen, at, facts.anomalies)
    facts.anomalies += _sends(key, sends)
    facts.anomalies += _polls(key, good, must, versions, order)
    for send in sends:
        if send.in_txn:
            known = facts.seen.get(send.op, (0, 0))
            here = send.value in shown[True]
            facts.seen[send.op] = (known[0] + here, known[1] + (send.value in lost))
    facts.reads_from = _edges(good, writer)
    # An info transaction with a visible value in another key must have this one visible too.
    if any(read.final for read in good):
        for send in sends:
            if send.in_txn and send.kind == "info" and send.value not in must:
                known = facts.seen[send.op]
                facts.seen[send.op] = (known[0], known[1] + 1)
    return facts


def _values(
    key: Hashable,
    good: list[Read],
    writer: dict[Any, Send],
    versions: dict[int, list[Any]],
    order: list[int],
    idempotent: bool,
) -> list[Anomaly]:
    found = []
    for read in good:
        send, place = writer.get(read.value), where(read.op, key)
        at = f"value {read.value} at offset {read.offset}"
        if send is None or not read.sound:
            found.append(Anomaly("corrupt_value", place, at))
        elif send.kind == "fail" and (read.committed_only or not send.in_txn):
            found.append(Anomaly("aborted_read", place, f"{at}, sent by {where(send.op)}"))
    places: dict[Any, list[int]] = defaultdict(list)
    for offset in order:
        if len(versions[offset]) > 1:
            what = f"offset {offset} had the values {versions[offset]}"
            found.append(Anomaly("inconsistent_offsets", f"key {key}", what))
        for value in versions[offset]:
            places[value].append(offset)
    for value, offsets in places.items():
        if len(offsets) > 1 and idempotent:
            what = f"value {value} at offsets {offsets}"
            found.append(Anomaly("duplicate", f"key {key}", what))
    return found


def _lost(
    key: Hashable,
    must: dict[Any, Send],
    good: list[Read],
    seen: set[Any],
    at: dict[Any, int],
    found: list[Anomaly],
) -> set[Any]:
    """Values that must be there and are not; adds the anomalies to `found`."""
    finals = [read for read in good if read.final]
    final = {read.value for read in finals}
    committed = {read.value for read in finals if read.committed_only}
    passed = max((at[value] for value in seen if value in at), default=-1)
    lost = set()
    for value, send in must.items():
        offset = at.get(value)
        what = f"value {value} sent to offset {send.offset} by {where(send.op)}"
        if value not in seen and offset is not None and offset <= passed:
            lost.add(value)
            found.append(Anomaly("lost_write", f"key {key}", f"{what}; readers got to {passed}"))
        elif finals and value not in final:
            lost.add(value)
            found.append(Anomaly("unseen_at_end", f"key {key}", what))
        elif committed and value not in committed:
            found.append(Anomaly("stuck_read_committed", f"key {key}", what))
    end = max((read.offset for read in finals), default=None)
    acked = max((s.offset for s in must.values() if s.offset is not None), default=-1)
    if end is not None and end < acked:
        what = f"the final read ends at {end}, offset {acked} was acknowledged"
        found.append(Anomaly("stale_end", f"key {key}", what))
    return lost


def _sends(key: Hashable, sends: list[Send]) -> list[Anomaly]:
    found = []
    before: dict[Hashable, Send] = {}
    for send in sorted(sends, key=lambda s: (str(s.op[0]), s.op[1], s.place)):
        if send.kind != "ok" or send.offset is None:
            continue
        last = before.get(send.op[0])
        if last is not None and last.offset is not None and send.offset <= last.offset:
            what = f"offset {send.offset} after {last.offset} of {where(last.op)}"
            found.append(Anomaly("nonmonotonic_send", where(send.op, key), what))
        before[send.op[0]] = send
    return found


def _polls(
    key: Hashable,
    good: list[Read],
    must: dict[Any, Send],
    versions: dict[int, list[Any]],
    order: list[int],
) -> list[Anomaly]:
    """Skipped offsets and steps back, within a poll and between polls of the same session."""
    index = {offset: n for n, offset in enumerate(order)}
    # How many offsets up to here a reader has to see: all with a write that took place.
    bound = [0]
    for offset in order:
        bound.append(bound[-1] + any(value in must for value in versions[offset]))
    found = []
    before: dict[tuple[Hashable, int], Read] = {}
    reads = sorted(enumerate(good), key=lambda x: (str(x[1].op[0]), x[1].op[1], x[1].place, x[0]))
    for _, read in reads:
        last = before.get((read.op[0], read.session))
        before[read.op[0], read.session] = read
        if last is None:
            continue
        here, there = index[read.offset], index[last.offset]
        what = f"offset {read.offset} after {last.offset}"
        if here <= there:
            found.append(Anomaly("nonmonotonic_poll", where(read.op, key), what))
        elif bound[here] > bound[there + 1]:
            found.append(Anomaly("poll_skip", where(read.op, key), what))
    return found


def _edges(
    good: list[Read], writer: dict[Any, Send]
) -> list[tuple[tuple[Hashable, int], tuple[Hashable, int]]]:
    """The highest read of each reading transaction by writer; lower ones add nothing."""
    highest: dict[tuple[Hashable, int], Read] = {}
    for read in good:
        if read.in_txn and (read.op not in highest or highest[read.op].offset < read.offset):
            highest[read.op] = read
    edges = []
    for reader, read in highest.items():
        send = writer.get(read.value)
        if send is not None and send.in_txn and send.op != reader:
            edges.append((send.op, reader))
    return edges


def judge_transactions(
    seen: dict[tuple[Hashable, int], tuple[int, int]],
    edges: Iterable[tuple[tuple[Hashable, int], tuple[Hashable, int]]],
    times: dict[tuple[Hashable, int], tuple[str, int, int]],
) -> list[Anomaly]:
    """The rules over several keys: torn transactions, cycles of information."""
    found = []
    for op, (shown, lost) in seen.items():
        if shown and lost:
            what = f"{shown} of its values were read, {lost} are lost"
            found.append(Anomaly("torn_transaction", where(op), what))
    edges = set(edges)
    for circle in circles(edges):
        text = ", ".join(where(op) for op in circle[:6])
        found.append(Anomaly("circular_information_flow", where(circle[0]), text))
    if not found or all(a.rule == "torn_transaction" for a in found):
        for circle in circles(edges | real_time(edges, times)):
            text = ", ".join(where(op) for op in circle[:6])
            found.append(Anomaly("circular_in_real_time", where(circle[0]), text))
    return found


def real_time(edges: set[Any], times: dict[Any, tuple[str, int, int]]) -> set[Any]:
    """Edges from operations that ended to those that began later, without implied ones."""
    nodes = sorted({n for edge in edges for n in edge if n in times}, key=lambda n: times[n][1])
    ends = sorted(nodes, key=lambda n: times[n][2])
    result: set[Any] = set()
    frontier: list[Any] = []
    next_end = 0
    for node in nodes:
        began = times[node][1]
        while next_end < len(ends) and times[ends[next_end]][2] < began:
            done = ends[next_end]
            next_end += 1
            # What ended before this one began already precedes it.
            frontier = [n for n in frontier if times[n][2] >= times[done][1]] + [done]
        result |= {(before, node) for before in frontier if before != node}
    return result


def circles(edges: Iterable[tuple[Any, Any]]) -> list[list[Any]]:
    """The strongly connected components of more than one node (Tarjan, without recursion)."""
    graph: dict[Any, list[Any]] = defaultdict(list)
    for a, b in edges:
        graph[a].append(b)
        graph.setdefault(b, [])
    number: dict[Any, int] = {}
    low: dict[Any, int] = {}
    stack: list[Any] = []
    on: set[Any] = set()
    found = []
    for root in list(graph):
        work = [] if root in number else [(root, iter(graph[root]))]
        while work:
            node, rest = work[-1]
            if node not in number:
                number[node] = low[node] = len(number)
                stack.append(node)
                on.add(node)
            for other in rest:
                if other not in number:
                    work.append((other, iter(graph[other])))
                    break
                if other in on:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    part = stack[stack.index(node) :]
                    del stack[-len(part) :]
                    on.difference_update(part)
                    if len(part) > 1:
                        found.append(part)
    return found


def judge_lists(table: str, group: Any, rows: list[Any]) -> list[Anomaly]:
    """The rules over plain lists: end offsets, committed offsets, owners, epochs, leaders."""
    return {
        "end": _ends, "offset": _offsets, "owner": _owners, "epoch": _epochs, "leader": _leaders,
    }[table](group, rows)  # fmt: skip


def _ends(group: Any, rows: list[Any]) -> list[Anomaly]:
    """An end offset is at least every one that was reported before it was asked for."""
    found, reported, highest = [], sorted(rows, key=lambda r: r[2]), -1
    done = 0
    for offset, began, _, op in sorted(rows, key=lambda r: r[1]):
        while done < len(reported) and reported[done][2] < began:
            highest = max(highest, reported[done][0])
            done += 1
        if offset < highest:
            what = f"{offset} after {highest}, leader epoch {group[1]}"
            found.append(Anomaly("end_offset_regress", where(op, group[0]), what))
    return found


def _offsets(group: Any, rows: list[Any]) -> list[Anomaly]:
    found = []
    commits = [row for row in rows if row[0] == "commit"]
    sure = sorted((row for row in commits if row[2] == "ok"), key=lambda row: row[4])
    unsure = [row for row in commits if row[2] == "info"]
    ends, longest = [row[4] for row in sure], max((row[4] - row[3] for row in sure), default=0)
    for what, offset, kind, began, ended, op in rows:
        if what != "committed" or kind != "ok":
            continue
        before = bisect_left(ends, began) - 1
        if before < 0:
            continue
        newest = sure[before]
        # Any commit that may have come after that one explains what was read. Of the sure ones
        # none that ended later than the longest takes can have begun by then.
        some = sure[bisect_left(ends, newest[3]) : bisect_right(ends, ended + longest)]
        possible = {c[1] for c in (*some, *unsure) if c[3] <= ended}
        if offset not in possible and offset < newest[1]:
            text = f"group {group[0]} has {offset}, committed was {newest[1]}"
            found.append(Anomaly("offset_commit_loss", where(op, group[1]), text))
    return found


def _owners(group: Any, rows: list[Any]) -> list[Anomaly]:
    members = sorted(set(map(str, rows)))
    if len(members) < 2:
        return []
    place = f"group {group[0]}, generation {group[1]}, key {group[2]}"
    return [Anomaly("double_ownership", place, f"owned by {', '.join(members)}")]


def _epochs(group: Any, rows: list[Any]) -> list[Anomaly]:
    found = []
    begins = sorted((ended, epoch) for f, epoch, _, ended, _ in rows if f == "init")
    for f, epoch, began, _, op in rows:
        newer = [e for ended, e in begins if ended < began and e > epoch]
        if f != "init" and newer:
            what = f"transactional id {group}, epoch {epoch}, after epoch {max(newer)} began"
            found.append(Anomaly("zombie_write", where(op), what))
    return found


def _leaders(group: Any, rows: list[Any]) -> list[Anomaly]:
    brokers = sorted(set(map(str, rows)))
    if len(brokers) < 2:
        return []
    place = f"key {group[0]}, leader epoch {group[1]}"
    return [Anomaly("split_leadership", place, f"led by brokers {', '.join(brokers)}")]


@dataclass
class Verdict:
    """The outcome: how often each rule was broken, examples, and whether the run says anything."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[Anomaly]] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """No rule was violated, and there was enough to check."""
        return not self.counts and not self.doubts

    def add(self, anomaly: Anomaly) -> None:
        """Count one; the first EXAMPLES_MAX of a rule are kept."""
        self.counts[anomaly.rule] = self.counts.get(anomaly.rule, 0) + 1
        some = self.examples.setdefault(anomaly.rule, [])
        if len(some) < EXAMPLES_MAX:
            some.append(anomaly)

    def doubt(self, ok_share_min: float) -> None:
        """Adds doubts: a run in which little succeeded proves little."""
        whole, ok = sum(self.operations.values()), self.operations.get("ok", 0)
        if not whole:
            self.doubts.append("the history has no operations")
        elif ok < ok_share_min * whole:
            self.doubts.append(f"only {ok} of {whole} operations are ok: the run shows too little")

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "valid": self.valid,
            "anomalies": self.counts,
            "examples": {
                rule: [{"where": a.where, "what": a.what} for a in some]
                for rule, some in self.examples.items()
            },
            "operations": self.operations,
            "doubts": self.doubts,
        }


def check(
    events: Iterable[dict[str, Any]], *, idempotent: bool = True, ok_share_min: float = 0.5,
    directory: Path | None = None,
) -> Verdict:
    """Check a history. All of it has to fit into memory, or, with a directory for what has to wait,
    the sends and reads of one key.

    `idempotent` says that producers were: else duplicates are legal. A history of which less than
    `ok_share_min` succeeded is not valid, whatever it shows. Raises HistoryError where events do
    not fit together.
    """
    verdict = Verdict()
    processes: dict[Hashable, ProcessRows] = defaultdict(ProcessRows)
    sends, reads = Spool(directory), Spool(directory)
    tables: dict[str, dict[Hashable, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for op in completed(events):
        verdict.operations[op.kind] = verdict.operations.get(op.kind, 0) + 1
        for table, group, row in processes[op.process].rows(op):
            if table == "send":
                sends.add(group, row)
            elif table == "read":
                reads.add(group, row)
            else:
                tables[table][group].append(row)
    seen: dict[tuple[Hashable, int], tuple[int, int]] = {}
    edges: set[Any] = set()
    for rows in tables["own"].values():
        for anomaly in rows:
            verdict.add(anomaly)
    for key in sorted(sends.keys() | reads.keys(), key=str):
        facts = judge_key(key, sends.take(key), reads.take(key), idempotent)
        for anomaly in facts.anomalies:
            verdict.add(anomaly)
        for writer, (shown, lost) in facts.seen.items():
            known = seen.get(writer, (0, 0))
            seen[writer] = (known[0] + shown, known[1] + lost)
        edges.update(facts.reads_from)
    times: dict[Any, Any] = {op: rows[0] for op, rows in tables["txn"].items()}
    for anomaly in judge_transactions(seen, edges, times):
        verdict.add(anomaly)
    for table in ("end", "offset", "owner", "epoch", "leader"):
        for group, rows in tables[table].items():
            for anomaly in judge_lists(table, group, rows):
                verdict.add(anomaly)
    verdict.doubt(ok_share_min)
    return verdict
