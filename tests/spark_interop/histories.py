"""Valid histories from a seed: processes send, poll and run transactions; each key has a log."""

from __future__ import annotations

import random
from typing import Any

Events = list[dict[str, Any]]
KEYS = (0, 1, 2)


class Recorder:
    """A log for each key, and the events of all processes, one after the other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.events: Events = []
        self.logs: dict[int, list[tuple[Any, bool]]] = {key: [] for key in KEYS}
        self._now = 0
        self._next_value = 0
        self._idx: dict[int, int] = {}

    def operation(self, process: int, f: str, kind: str = "ok", **fields: Any) -> dict[str, Any]:
        """Add two events; returns the completion, so that a test may change it."""
        idx = self._idx[process] = self._idx.get(process, -1) + 1
        both = {"process": process, "idx": idx, "f": f, **fields}
        self._now += 10
        self.events.append({**both, "type": "invoke", "t_ns": self._now})
        self._now += 10
        self.events.append({**both, "type": kind, "t_ns": self._now})
        return self.events[-1]

    def append(self, key: int, committed: bool = True) -> list[Any]:
        """Add a new value to a log; returns its micro-operation."""
        self._next_value += 1
        self.logs[key].append((self._next_value, committed))
        return ["send", key, self._next_value, len(self.logs[key]) - 1]

    def poll(self, key: int, start: int, count: int) -> list[Any]:
        """What a read_committed reader gets from an offset on."""
        part = list(enumerate(self.logs[key]))[start : start + count]
        return ["poll", key, [[offset, value] for offset, (value, good) in part if good]]


def good_history(seed: int, rounds: int = 40) -> Events:
    """A valid history: sends, some of which fail or have unknown outcomes, transactions that commit
    or abort, and final reads."""
    r = Recorder(seed)
    at = dict.fromkeys(KEYS, 0)
    r.operation(9, "assign")
    for n in range(rounds):
        key = r.random.choice(KEYS)
        r.operation(1 + n % 2, "send", mops=[r.append(key)])
        if n % 7 == 0:
            lost = ["send", key, f"never-{n}", None]
            r.operation(20 + n, "send", r.random.choice(("fail", "info")), mops=[lost])
        if n % 5 == 0:  # unknown to the sender, but stored
            _, _, value, _ = r.append(key)
            r.operation(60 + n, "send", "info", mops=[["send", key, value, None]])
        good = n % 4 != 0
        mops = [r.append(k, good) for k in KEYS]
        fields = {"mops": mops, "txn_id": "t", "epoch": n // 10}
        if n % 10 == 0:
            r.operation(3, "init", txn_id="t", epoch=n // 10)
        r.operation(3, "txn", "ok" if good else "fail", **fields)
        seen = r.poll(key, at[key], 5)
        at[key] = min(at[key] + 5, len(r.logs[key]))
        sent = [r.append(k) for k in KEYS]
        r.operation(9, "txn", mops=[seen, *sent], txn_id="reader", epoch=0)
    r.operation(4, "commit_offsets", mops=[["commit", "g", 0, 7]])
    r.operation(5, "fetch_offsets", mops=[["committed", "g", 0, 7]])
    r.operation(5, "assign", mops=[["assigned", "g", 1, "a", 0], ["assigned", "g", 1, "b", 1]])
    r.operation(6, "end_offset", mops=[["end", 0, 1, 5]])
    r.operation(7, "end_offset", mops=[["end", 0, 1, 8]])
    r.operation(7, "leader", mops=[["leader", 0, 1, 100], ["leader", 0, 2, 101]])
    for process in (50, 51):
        r.operation(process, "assign")
        for key in KEYS:
            whole = r.poll(key, 0, len(r.logs[key]))
            r.operation(process, "poll", mops=[whole], final=True)
    return r.events
