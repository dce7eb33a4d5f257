"""The events of a history: a log of sends, polls and transactions, without Spark.

A history has one JSON object per event. An operation has two events: `invoke` and, unless its
process died, `ok`, `fail` (certainly not done) or `info` (unknown: timeout, disconnect).

    {"process": 3, "idx": 17, "type": "ok", "f": "txn", "t_ns": 812…, "txn_id": "a", "epoch": 4,
     "isolation": "read_committed", "final": false, "rebalance": [],
     "mops": [["send", key, value, offset], ["poll", key, [[offset, value], …]]]}

process   runs one operation at a time; after an `info` the process gets a new number
idx       counts the operations of a process
f         send, poll, txn (`ok` is committed, `fail` aborted), assign, subscribe, seek, init
          (InitProducerId), commit_offsets, fetch_offsets, end_offset, leader
mops      depending on f:
            ["send", key, value, offset or null]
            ["poll", key, [[offset, value], …]], with [offset, value, false] for a wrong checksum
            ["assigned", group, generation, member, key]
            ["commit", group, key, offset]
            ["committed", group, key, offset], with null or -1 if the group has committed none
            ["end", key, epoch, offset]
            ["leader", key, epoch, broker]
key       one topic-partition, any text or number; values are unique within a key
rebalance keys that a rebalance gave to the process or took from it since its last poll
final     true if the operation reads the whole key, after all faults have ended; if such a
          poll has an empty list, the key is empty
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

READS_COMMITTED = "read_committed"
ISOLATIONS = {READS_COMMITTED, "read_uncommitted"}
OPERATIONS = {
    "send", "poll", "txn", "assign", "subscribe", "seek", "init", "commit_offsets",
    "fetch_offsets", "end_offset", "leader",
}  # fmt: skip
LENGTHS = {"send": 4, "poll": 3, "assigned": 5, "commit": 4, "committed": 4, "end": 4, "leader": 4}
"""How many items each kind of `mops` has."""
SCALARS = {str, int, float, bool, type(None)}


class HistoryError(ValueError):
    """The history cannot be checked: the text names the event and its error."""


@dataclass
class Operation:
    """Invocation and completion of one operation."""

    process: Hashable
    idx: int
    kind: str  # ok, fail or info
    f: str
    began: int
    ended: int
    event: dict[str, Any]

    @property
    def id(self) -> tuple[Hashable, int]:
        """A unique identifier of the operation in its history."""
        return self.process, self.idx


@dataclass
class Anomaly:
    """One violation of a rule."""

    rule: str
    where: str
    what: str


@dataclass(slots=True)
class Sends:
    """The values that one operation sent to one key, in the order of the operation.

    Values and offsets are in lists, without an object for each value, because a long history has
    millions of values.
    """

    op: tuple[Hashable, int]
    kind: str
    in_txn: bool
    ended: int
    places: list[int]  # positions in `mops`
    values: list[Any]
    offsets: list[int | None]


@dataclass(slots=True)
class Poll:
    """The values that one poll returned for one key, in order; only a final poll may be empty."""

    op: tuple[Hashable, int]
    place: int  # position in `mops`
    kind: str
    in_txn: bool
    committed_only: bool
    final: bool
    session: int  # each assign, subscribe, seek, rebalance and final read begins a new one
    began: int
    ended: int
    offsets: list[int]
    values: list[Any]
    unsound: frozenset[int]  # positions of values whose checksum is wrong


def operations(events: Iterable[dict[str, Any]]) -> list[Operation]:
    """The operations of `completed`, sorted by process and index."""
    return sorted(completed(events), key=lambda op: (str(op.process), op.idx))


def completed(events: Iterable[dict[str, Any]]) -> Iterator[Operation]:
    """Pairs the `invoke` of each operation with its completion; yields the operation when it
    completes. Operations that never completed are `info` and come last.

    All events of a process must be in the same `events`. Raises HistoryError for an event with a
    missing or wrong field, for a second `invoke`, and for a completion without an `invoke`.
    """
    open_: dict[tuple[Hashable, int], dict[str, Any]] = {}
    last = 0
    for event in events:
        try:
            id_, kind, t = (event["process"], event["idx"]), event["type"], event["t_ns"]
            name = event["f"]
        except KeyError as error:
            raise HistoryError(f"the event {str(event)[:200]} has no field {error}") from None
        if type(t) is not int or name not in OPERATIONS:
            field = "t_ns" if name in OPERATIONS else "f"
            names = ", ".join(sorted(OPERATIONS))
            expected = "an integer" if field == "t_ns" else f"one of {names}"
            raise HistoryError(
                f"operation {id_[1]} of process {id_[0]} has {field}={event[field]}, expected"
                f" {expected}"
            )
        last = max(last, t)
        if kind == "invoke":
            if id_ in open_:
                raise HistoryError(f"operation {id_[1]} of process {id_[0]} is invoked twice")
            open_[id_] = event
        elif kind in ("ok", "fail", "info"):
            began = open_.pop(id_, None)
            if began is None:
                raise HistoryError(
                    f"operation {id_[1]} of process {id_[0]} ends, but was never invoked"
                )
            yield Operation(*id_, kind, name, began["t_ns"], t, began | event)
        else:
            raise HistoryError(
                f"operation {id_[1]} of process {id_[0]} has type={kind!r}, expected invoke, ok,"
                " fail or info"
            )
    for id_, event in open_.items():
        yield Operation(*id_, "info", event["f"], event["t_ns"], last, event)


def spread(ops: Iterable[Operation]) -> Iterator[tuple[str, Hashable, Any]]:
    """The rows of one process's operations, in their order: (table, group, row).

    The table is `send` or `poll` (the group is the key), `own` (anomalies that one operation shows
    by itself), `txn` (the times of transactions), `end`, `offset`, `owner`, `epoch` or `leader`.
    """
    process = ProcessRows()
    for op in ops:
        yield from process.rows(op)


class ProcessRows:
    """Makes the rows of `spread` for one process, one operation at a time."""

    def __init__(self) -> None:
        self.session = 0

    def rows(self, op: Operation) -> Iterator[tuple[str, Hashable, Any]]:
        """The rows of the process's next operation."""
        event, txn = _checked(op), op.f == "txn"
        if op.f in ("assign", "subscribe", "seek") or event.get("final"):
            self.session += 1
        if txn:
            yield "txn", op.id, (op.kind, op.began, op.ended)
        if event.get("txn_id") is not None and op.kind == "ok" and op.f in ("init", "send", "txn"):
            yield "epoch", event["txn_id"], (op.f, event["epoch"], op.began, op.ended, op.id)
        moved = set(map(str, event.get("rebalance") or ()))
        sends: dict[Hashable, Sends] = {}
        sent: set[tuple[str, Any]] = set()
        for place, mop in enumerate(event.get("mops") or ()):
            if mop[0] == "send":
                _, key, value, offset = mop
                if txn:
                    sent.add((str(key), value))
                each = sends.get(key)
                if each is None:
                    each = sends[key] = Sends(op.id, op.kind, txn, op.ended, [], [], [])
                each.places.append(place)
                each.values.append(value)
                each.offsets.append(offset)
            elif mop[0] == "poll" and (txn or op.kind != "fail"):
                _, key, found = mop
                if str(key) in moved:
                    self.session += 1
                if found is None:
                    if op.kind == "ok":
                        raise HistoryError(
                            f"{where(op.id, key)}: the event has type=ok, but its 'poll' has no"
                            " list of values"
                        )
                    continue
                if found or event.get("final"):
                    yield "poll", key, self._poll(op, place, found)
                for one in found if sent else ():
                    if (str(key), one[1]) in sent:
                        what = f"value {one[1]} at offset {one[0]}"
                        yield "own", key, Anomaly("precommitted_read", where(op.id, key), what)
            else:
                yield from _listed(op, mop)
        for key, each in sends.items():
            yield "send", key, each

    def _poll(self, op: Operation, place: int, found: list[Any]) -> Poll:
        event = op.event
        try:
            offsets, values = [one[0] for one in found], [one[1] for one in found]
        except (IndexError, KeyError, TypeError):
            raise HistoryError(
                f"{where(op.id)}: an item of a poll is not an [offset, value] pair"
            ) from None
        if not ({int}.issuperset(map(type, offsets)) and SCALARS.issuperset(map(type, values))):
            raise HistoryError(
                f"{where(op.id)}: a poll has an offset that is not an integer, or a value that is"
                " not text, a number, true, false or null"
            )
        return Poll(
            op.id, place, op.kind, op.f == "txn",
            event.get("isolation", READS_COMMITTED) == READS_COMMITTED,
            bool(event.get("final")), self.session, op.began, op.ended,
            offsets, values,
            frozenset(n for n, one in enumerate(found) if len(one) > 2 and not one[2]),
        )  # fmt: skip


def _checked(op: Operation) -> dict[str, Any]:
    """The operation's event. Raises HistoryError for fields that no rule would understand."""
    event = op.event
    isolation, final = event.get("isolation", READS_COMMITTED), event.get("final")
    if isolation not in ISOLATIONS or final not in (None, True, False):
        raise HistoryError(
            f"{where(op.id)} has isolation={isolation} and final={final}: expected"
            " isolation=read_committed or read_uncommitted, and final=true or false"
        )
    if event.get("txn_id") is not None and type(event.get("epoch")) is not int:
        raise HistoryError(
            f"{where(op.id)} has a `txn_id`, but its `epoch` is {event.get('epoch')}, not an"
            " integer"
        )
    mops = event.get("mops") or []
    for mop in mops if isinstance(mops, list) else [mops]:
        if not isinstance(mop, list) or not mop or LENGTHS.get(str(mop[0])) != len(mop):
            raise HistoryError(
                f"{where(op.id)}: {str(mop)[:200]} in `mops` has an unknown kind or a wrong"
                " number of items; the kinds with their numbers of items are"
                f" {', '.join(f'{k} {n}' for k, n in LENGTHS.items())}"
            )
        plain = mop[:2] if mop[0] == "poll" else mop
        if not SCALARS.issuperset(map(type, plain)):
            raise HistoryError(
                f"{where(op.id)}: {str(mop)[:200]} has an item that is not text, a number, true,"
                " false or null"
            )
        if mop[0] == "send" and type(mop[3]) not in (int, type(None)):
            raise HistoryError(f"{where(op.id)}: the offset {mop[3]!r} of 'send' is not a number")
    return event


def _listed(op: Operation, mop: list[Any]) -> Iterator[tuple[str, Hashable, Any]]:
    if mop[0] == "assigned":
        yield "owner", (mop[1], mop[2], mop[4]), mop[3]
    elif mop[0] in ("commit", "committed"):
        offset = -1 if mop[0] == "committed" and mop[3] is None else _offset(op, mop)
        yield "offset", (mop[1], mop[2]), (mop[0], offset, op.kind, op.began, op.ended, op.id)
    elif mop[0] == "end" and op.kind == "ok":
        yield "end", (mop[1], mop[2]), (_offset(op, mop), op.began, op.ended, op.id)
    elif mop[0] == "leader" and op.kind == "ok":
        yield "leader", (mop[1], mop[2]), mop[3]


def _offset(op: Operation, mop: list[Any]) -> int:
    if type(mop[3]) is not int:
        raise HistoryError(f"{where(op.id)}: the offset {mop[3]!r} of {mop[0]!r} is not a number")
    return mop[3]


def where(op: tuple[Hashable, int], key: Any = None) -> str:
    """The name of an operation in messages."""
    of_key = "" if key is None else f", key {key}"
    return f"process {op[0]} operation {op[1]}{of_key}"
