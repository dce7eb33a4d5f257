"""The rules for a history of sends, polls and transactions, without Spark.

`history_events` defines a history. The rules follow Elle and Jepsen's workload for Kafka:
write-write cycles are legal, since Kafka does not isolate writes. `check` runs in this process.
For large histories `history.check_history` applies the same functions to groups of rows in Spark:
`spread` needs only the operations of one process, `judge_key` the rows of one key,
`history_lists.judge_lists` the rows of one group, and `judge_transactions` a few facts about all
transactions.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla.spark_interop.history_events import (
    Anomaly,
    HistoryError,
    Poll,
    ProcessRows,
    Sends,
    completed,
    spread,
    where,
)
from ottla.spark_interop.history_lists import LISTS, judge_lists
from ottla.spark_interop.history_spool import Spool
from ottla.wire.wording import counted

__all__ = [
    "RULES",
    "Anomaly",
    "HistoryError",
    "KeyFacts",
    "Verdict",
    "check",
    "judge_key",
    "judge_transactions",
    "spread",
]
EXAMPLES_MAX = 32
RULES = {
    "corrupt_value": "a polled value was never sent, or its checksum is wrong",
    "inconsistent_offsets": "one offset of a key had two values",
    "duplicate": "one value is at two offsets of a key",
    "lost_write": "readers went past a write that must have happened, and never read it",
    "unseen_at_end": "an acknowledged value is not in the final read",
    "stale_end": "the final read ends before an acknowledged offset",
    "stuck_read_committed": "the final read with read_uncommitted has a value that the final read"
    " with read_committed lacks",
    "aborted_read": "a value of an aborted transaction or a failed send was read",
    "precommitted_read": "a transaction read a value that it had sent itself",
    "poll_skip": "a reader went past a committed value",
    "nonmonotonic_poll": "a reader went back without a seek",
    "nonmonotonic_send": "a send has a lower offset than an earlier send of its process",
    "torn_transaction": "some values of a transaction are visible, others are lost",
    "circular_information_flow": "transactions read from each other in a circle (G1c)",
    "circular_in_real_time": "the reads of transactions contradict their order in real time",
    "end_offset_regress": "a visible end offset went back within a leader epoch",
    "offset_commit_loss": "a group's committed offset is less than an offset committed before",
    "double_ownership": "two members had the same partition in the same generation",
    "zombie_write": "a producer wrote after a newer epoch of its id was acknowledged",
    "split_leadership": "two brokers led the same partition in the same leader epoch",
}


@dataclass
class KeyFacts:
    """A key's anomalies, and its data for the rules over several keys, which are checked last."""

    anomalies: list[Anomaly]
    seen: dict[tuple[Hashable, int], tuple[int, int]]  # writing txn: values seen, values lost
    reads_from: list[tuple[tuple[Hashable, int], tuple[Hashable, int]]]  # writer, reader
    unread: list[Hashable] = field(default_factory=list)  # the key, if no final read succeeded


class Versions:
    """The values that were seen at each offset of a key; nearly every offset has one value."""

    def __init__(self) -> None:
        self.first: dict[int, Any] = {}
        self.several: dict[int, list[Any]] = {}  # all values of an offset that has more than one

    def add(self, offsets: list[int], values: list[Any]) -> None:
        """Notes that each offset was seen with its value."""
        if list(map(self.first.setdefault, offsets, values)) == values:
            return
        for offset, value in zip(offsets, values, strict=True):
            if value not in self.at(offset):
                self.several[offset] = [*self.at(offset), value]

    def at(self, offset: int) -> list[Any]:
        """The values of a known offset, in the order in which they were seen."""
        return self.several.get(offset) or [self.first[offset]]


def judge_key(
    key: Hashable, sends: list[Sends], polls: list[Poll], idempotent: bool = True,
    ended: bool = False,
) -> KeyFacts:
    """Checks every rule that needs the rows of one key only.

    `ended` says that all final reads of the history succeeded: a value is then lost if none of them
    returned it.
    """
    facts = KeyFacts([], {}, [])
    good = [poll for poll in polls if poll.kind == "ok"]
    writer = {value: each for each in sends for value in each.values}
    if len(writer) < sum(len(each.values) for each in sends):
        [(value, _)] = Counter(value for each in sends for value in each.values).most_common(1)
        raise HistoryError(f"key {key}: the value {value} was sent twice")
    seen = _values_of(good)
    versions = Versions()
    for poll in polls:
        versions.add(poll.offsets, poll.values)
    # A value that was read proves that its write succeeded. If the write belongs to a transaction,
    # only a read_committed read proves that.
    shown = {False: seen, True: _values_of(poll for poll in good if poll.committed_only)}
    must = {
        value: offset
        for each in sends
        if each.kind in ("ok", "info")
        for value, offset in zip(each.values, each.offsets, strict=True)
        if each.kind == "ok" or value in shown[each.in_txn]
    }
    acked = {value: offset for value, offset in must.items() if offset is not None}
    versions.add(list(acked.values()), list(acked))
    order = sorted(versions.first)
    at: dict[Any, int] = {}
    for offset in order:
        for value in versions.at(offset):
            at.setdefault(value, offset)

    facts.anomalies += _values(key, good, writer, versions, at, idempotent)
    finals = [poll for poll in good if poll.final]
    lost = _lost(key, must, good, writer, at, ended, facts.anomalies)
    if must and not finals:
        facts.unread.append(key)
    facts.anomalies += _sends(key, sends)
    facts.anomalies += _polls(key, good, must, versions, order)
    # A transaction is visible as a whole or not at all, even if its outcome is unknown (`info`).
    # Count the values of each transaction that were seen in this key, and those that are missing.
    for each in sends:
        if each.in_txn:
            there, missing = facts.seen.get(each.op, (0, 0))
            # A value of a committed transaction counts if any reader saw it. A value of any other
            # transaction counts only if a read_committed reader saw it.
            there += sum(value in shown[each.kind != "ok"] for value in each.values)
            missing += sum(value in lost for value in each.values)
            if (ended or finals) and each.kind == "info":
                missing += sum(value not in must for value in each.values)
            facts.seen[each.op] = (there, missing)
    facts.reads_from = _edges(good, writer)
    return facts


def _values_of(polls: Iterable[Poll]) -> set[Any]:
    return set().union(*(poll.values for poll in polls))


def _values(
    key: Hashable,
    good: list[Poll],
    writer: dict[Any, Sends],
    versions: Versions,
    at: dict[Any, int],
    idempotent: bool,
) -> list[Anomaly]:
    anomalies = []
    # The values that a poll may return. Most polls have no others, so `issuperset` checks all
    # values of a poll at once.
    allowed = {
        committed_only: {
            value for value, send in writer.items()
            if send.kind != "fail" or (send.in_txn and not committed_only)
        }
        for committed_only in (False, True)
    }
    for poll in good:
        if not poll.unsound and allowed[poll.committed_only].issuperset(poll.values):
            continue
        place = where(poll.op, key)
        for n, (offset, value) in enumerate(zip(poll.offsets, poll.values, strict=True)):
            what = f"value {value} at offset {offset}"
            if value not in writer or n in poll.unsound:
                anomalies.append(Anomaly("corrupt_value", place, what))
            elif value not in allowed[poll.committed_only]:
                what += f", sent by {where(writer[value].op)}"
                anomalies.append(Anomaly("aborted_read", place, what))
    again: dict[Any, list[int]] = {}
    for offset in sorted(versions.first):
        if offset in versions.several:
            what = f"offset {offset} had the values {versions.at(offset)}"
            anomalies.append(Anomaly("inconsistent_offsets", f"key {key}", what))
        for value in versions.at(offset):
            if at[value] != offset:
                again.setdefault(value, [at[value]]).append(offset)
    for value in at if again and idempotent else ():
        if value in again:
            what = f"value {value} is at offsets {again[value]}"
            anomalies.append(Anomaly("duplicate", f"key {key}", what))
    return anomalies


def _lost(
    key: Hashable,
    must: dict[Any, int | None],
    good: list[Poll],
    writer: dict[Any, Sends],
    at: dict[Any, int],
    ended: bool,
    found: list[Anomaly],
) -> set[Any]:
    """Values that must be there but are missing; adds the anomalies to `found`."""
    seen = _values_of(good)
    finals = [poll for poll in good if poll.final]
    final = _values_of(finals)
    committed = _values_of(poll for poll in finals if poll.committed_only)
    passed = max((at[value] for value in seen if value in at), default=-1)
    lacking = _lacking(must, good, writer)
    lost = set()
    stuck = set()
    for value in [v for v in must if v in lacking or v not in seen] if must else ():
        offset, reads = at.get(value), lacking.get(value, [])
        what = f"value {value} sent to offset {must[value]} by {where(writer[value].op)}"
        if value not in seen and offset is not None and offset <= passed:
            lost.add(value)
            what += f"; readers got to offset {passed}"
            found.append(Anomaly("lost_write", f"key {key}", what))
        elif reads and value in final - committed and all(read.committed_only for read in reads):
            stuck.add(value)
            found.append(Anomaly("stuck_read_committed", f"key {key}", what))
        elif reads or (ended and not finals):
            if value not in final:
                lost.add(value)
            by = f"{where(reads[0].op)} does not have it" if reads else "no final read has the key"
            found.append(Anomaly("unseen_at_end", f"key {key}", f"{what}; {by}"))
    last: dict[tuple[Hashable, int], int] = {}  # per read: highest acknowledged offset it lacks
    for value, reads in lacking.items():
        for read in reads if value not in stuck else ():
            last[read.op] = max(last.get(read.op, -1), _known(must[value]))
    for read in finals:
        end = max(read.offsets, default=-1)
        if end < last.get(read.op, -1):
            what = (
                f"the final read ends at offset {end}, but offset {last[read.op]} was acknowledged"
            )
            found.append(Anomaly("stale_end", where(read.op, key), what))
    return lost


def _known(offset: int | None) -> int:
    return -1 if offset is None else offset


def _lacking(
    must: dict[Any, int | None], good: list[Poll], writer: dict[Any, Sends]
) -> dict[Any, list[Poll]]:
    """By value, the final reads that lack it although its write was certain before they began."""
    lacking: dict[Any, list[Poll]] = {}
    certain: dict[Any, float] = {}
    for read in good:
        missing = must.keys() - set(read.values) if read.final else ()
        if missing and not certain:
            certain = _certain(must, good, writer)
        for value in missing:
            if certain[value] <= read.began:
                lacking.setdefault(value, []).append(read)
    return lacking


def _certain(
    must: dict[Any, int | None], good: list[Poll], writer: dict[Any, Sends]
) -> dict[Any, float]:
    """When each write became certain: at its acknowledgement or first read, whichever was first."""
    certain = {
        value: writer[value].ended if writer[value].kind == "ok" else math.inf for value in must
    }
    for poll in good:
        for value in poll.values:
            if poll.ended < certain.get(value, -1):
                certain[value] = poll.ended
    return certain


def _sends(key: Hashable, sends: list[Sends]) -> list[Anomaly]:
    anomalies = []
    before: dict[Hashable, tuple[float, tuple[Hashable, int]]] = {}  # offset and operation
    for send in sorted(sends, key=lambda s: (str(s.op[0]), s.op[1], s.places[0])):
        if send.kind != "ok":
            continue
        last, op = before.get(send.op[0], (-math.inf, send.op))
        for offset in send.offsets:
            if offset is None:
                continue
            if offset <= last:
                what = f"offset {offset} follows offset {last} of {where(op)}"
                anomalies.append(Anomaly("nonmonotonic_send", where(send.op, key), what))
            last, op = offset, send.op
        before[send.op[0]] = last, op
    return anomalies


def _polls(
    key: Hashable,
    good: list[Poll],
    must: dict[Any, int | None],
    versions: Versions,
    order: list[int],
) -> list[Anomaly]:
    """Finds readers that skip offsets or go back, within a poll or between polls of a session."""
    # For each offset, the next offset whose write certainly happened: readers must not skip it.
    due: dict[int, float] = {}
    upcoming = math.inf
    for offset in reversed(order):
        due[offset] = upcoming
        if any(value in must for value in versions.at(offset)):
            upcoming = offset
    anomalies = []
    before: dict[tuple[Hashable, int], int] = {}
    for poll in sorted(good, key=lambda p: (str(p.op[0]), p.op[1], p.place)):
        if not poll.offsets:
            continue
        session = poll.op[0], poll.session
        last = before.get(session)
        before[session] = poll.offsets[-1]
        for offset in poll.offsets:
            if last is not None and not last < offset <= due[last]:
                rule = "nonmonotonic_poll" if offset <= last else "poll_skip"
                what = f"offset {offset} follows offset {last}"
                anomalies.append(Anomaly(rule, where(poll.op, key), what))
            last = offset
    return anomalies


def _edges(
    good: list[Poll], writer: dict[Any, Sends]
) -> list[tuple[tuple[Hashable, int], tuple[Hashable, int]]]:
    """Pairs of transactions: the writer of a value, and a transaction that read the value."""
    edges = set()
    for poll in good:
        if poll.in_txn:
            sends = (writer[value] for value in poll.values if value in writer)
            edges |= {(send.op, poll.op) for send in sends if send.in_txn and send.op != poll.op}
    return list(edges)


def judge_transactions(
    seen: dict[tuple[Hashable, int], tuple[int, int]],
    edges: Iterable[tuple[tuple[Hashable, int], tuple[Hashable, int]]],
    times: dict[tuple[Hashable, int], tuple[str, int, int]],
) -> list[Anomaly]:
    """Checks the rules over several keys: torn transactions, cycles of information flow."""
    anomalies = []
    for op, (shown, lost) in seen.items():
        if shown and lost:
            what = f"{shown} of its values were read, {lost} are lost"
            anomalies.append(Anomaly("torn_transaction", where(op), what))
    edges = set(edges)
    for circle in circles(edges):
        text = ", ".join(where(op) for op in circle[:6])
        anomalies.append(Anomaly("circular_information_flow", where(circle[0]), text))
    if not anomalies or all(a.rule == "torn_transaction" for a in anomalies):
        for circle in circles(edges | real_time(edges, times)):
            text = ", ".join(where(op) for op in circle[:6])
            anomalies.append(Anomaly("circular_in_real_time", where(circle[0]), text))
    return anomalies


def real_time(edges: set[Any], times: dict[Any, tuple[str, int, int]]) -> set[Any]:
    """Edges from operations that ended to operations that began later. An edge that follows from
    others is left out."""
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
            # An operation that ended before `done` began needs no edge: `done` has one.
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
    components = []
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
                    part = [stack.pop()]
                    while part[-1] != node:
                        part.append(stack.pop())
                    part.reverse()
                    on.difference_update(part)
                    if len(part) > 1:
                        components.append(part)
    return components


@dataclass
class Verdict:
    """The outcome of a check: how often each rule was broken, examples, and reasons to doubt that
    the run proves anything."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[Anomaly]] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """True if no rule was violated and there are no doubts."""
        return not self.counts and not self.doubts

    def add(self, anomaly: Anomaly) -> None:
        """Counts an anomaly, and keeps the first EXAMPLES_MAX of each rule as examples."""
        self.counts[anomaly.rule] = self.counts.get(anomaly.rule, 0) + 1
        some = self.examples.setdefault(anomaly.rule, [])
        if len(some) < EXAMPLES_MAX:
            some.append(anomaly)

    def doubt(self, ok_share_min: float, unread: Sequence[Hashable] = ()) -> None:
        """Adds doubts: a run in which few operations succeeded proves little. `unread` are keys
        that have values, but no successful final read."""
        whole, ok = sum(self.operations.values()), self.operations.get("ok", 0)
        if not whole:
            self.doubts.append("the history has no operations")
        elif ok < ok_share_min * whole:
            self.doubts.append(
                f"only {ok} of {whole} operations are ok, too few for a verdict")
        if unread:
            some = ", ".join(map(str, unread[:6]))
            keys = counted(len(unread), "key")
            self.doubts.append(f"no final read of {keys} succeeded, for example of {some}")

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain values, for JSON."""
        return {
            "valid": self.valid,
            "anomalies": self.counts,
            "rules": {rule: RULES[rule] for rule in self.counts},
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
    """Check a history; `history_events` describes its events.

    Without `directory`, the whole history must fit into memory. With a `directory` for temporary
    files, sends and polls are kept in it, and only those of one key (a topic-partition) must fit
    into memory.

    `idempotent` says whether producers were idempotent; if not, duplicates are legal. A history is
    not valid if the share of operations that succeeded is below `ok_share_min`. Raises HistoryError
    if events contradict each other, for example if one operation is invoked twice.
    """
    verdict = Verdict()
    processes: dict[Hashable, ProcessRows] = defaultdict(ProcessRows)
    sends, polls = Spool(directory), Spool(directory)
    tables: dict[str, dict[Hashable, list[Any]]] = defaultdict(lambda: defaultdict(list))
    finals: set[str] = set()  # how the final reads ended
    for op in completed(events):
        if op.event.get("final"):
            finals.add(op.kind)
        verdict.operations[op.kind] = verdict.operations.get(op.kind, 0) + 1
        for table, group, row in processes[op.process].rows(op):
            if table == "send":
                sends.add(group, row)
            elif table == "poll":
                polls.add(group, row)
            else:
                tables[table][group].append(row)
    seen: dict[tuple[Hashable, int], tuple[int, int]] = {}
    edges: set[Any] = set()
    unread: list[Hashable] = []
    for rows in tables["own"].values():
        for anomaly in rows:
            verdict.add(anomaly)
    for key in sorted(sends.keys() | polls.keys(), key=str):
        facts = judge_key(key, sends.take(key), polls.take(key), idempotent, finals == {"ok"})
        unread += facts.unread
        for anomaly in facts.anomalies:
            verdict.add(anomaly)
        for writer, (shown, lost) in facts.seen.items():
            known = seen.get(writer, (0, 0))
            seen[writer] = (known[0] + shown, known[1] + lost)
        edges.update(facts.reads_from)
    times: dict[Any, Any] = {op: rows[0] for op, rows in tables["txn"].items()}
    for anomaly in judge_transactions(seen, edges, times):
        verdict.add(anomaly)
    for table in LISTS:
        for group, rows in tables[table].items():
            for anomaly in judge_lists(table, group, rows):
                verdict.add(anomaly)
    verdict.doubt(ok_share_min, unread if finals - {"ok"} else ())
    return verdict
