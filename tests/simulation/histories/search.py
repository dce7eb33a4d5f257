"""Decides whether a history is linearizable, by the search of Wing & Gong with Lowe's cache.

Clients send requests concurrently. The answers must be as if each request had been executed at one
moment between its sending and its answer. The search tries one order of the requests after the
other. For each set of requests that it has ordered, it remembers the state to which they led. So it
never continues twice from the same place. A request without a certain answer may have been executed
at any later time, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Any

NEVER = inf
PLACES_MAX = 50_000
"""A search gives up after this number of places. That takes about half a second."""

Step = Callable[[Any, Any], Hashable | None]
"""A function of a state and an operation that returns the next state, or None if the operation is
impossible in this state."""
Place = tuple[int, int, int, Any]
"""A place of a search. Answered requests are numbered from 0 in the order of their sending. The
place has four parts: the number of the first answered request that is not ordered yet; a bit for
each answered request from there on, set if it is ordered; a bit for each request without an answer,
set if it is ordered; the state."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What one request did, or may have done."""

    asked: int
    answered: float
    """When the answer came. NEVER: there is no certain answer, and the request may have been
    executed at any time after it was sent, or not at all."""
    what: tuple[Any, ...]
    until: float = NEVER
    """If `answered` is NEVER: the request was not executed after this time."""

    @property
    def is_lost(self) -> bool:
        """Whether there is no answer that says whether the request was executed."""
        return self.answered == NEVER


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a search."""

    order: Sequence[Operation] | None
    """An order that explains every answer, if there is one."""
    decided: bool = True
    stuck: Operation | None = None
    """If there is no order: the first operation that no order explains, and the possible states
    before it."""
    states: Sequence[Any] = ()


def linearize(
    operations: Sequence[Operation], state: Hashable, step: Step, most: int = PLACES_MAX
) -> Verdict:
    """Look for an order of these operations in which each operation is possible in the state to
    which the operations before it lead. Gives up after `most` places."""
    by_time = attrgetter("asked")
    done = sorted((each for each in operations if not each.is_lost), key=by_time)
    lost = sorted((each for each in operations if each.is_lost), key=by_time)
    first: Place = (0, 0, 0, state)
    seen, furthest, states = {first}, 0, {state: None}
    path: list[Operation] = []
    branches = [_after(first, done, lost, step)]
    if not done:
        return Verdict(path)
    while branches:
        for operation, place in branches[-1]:
            if place in seen:
                continue
            if len(seen) == most:
                return Verdict(None, decided=False)
            seen.add(place)
            path.append(operation)
            if place[0] == len(done):
                return Verdict(path)
            if place[0] > furthest:
                furthest, states = place[0], {}
            if place[0] == furthest:
                states[place[3]] = None
            branches.append(_after(place, done, lost, step))
            break
        else:
            branches.pop()
            if path:
                path.pop()
    return Verdict(None, stuck=done[furthest], states=[*states])


def _after(
    place: Place, done: Sequence[Operation], lost: Sequence[Operation], step: Step
) -> Iterator[tuple[Operation, Place]]:
    """Each operation that can be the next one, with the place to which it leads. Answered
    operations come first, in the order of their answers. Those without an answer follow, because
    they need not have been executed."""
    low, ahead, gone, state = place
    deadline, at, begun = NEVER, low, []
    while at < len(done) and done[at].asked < deadline:
        if not ahead >> (at - low) & 1:
            begun.append(at)
            deadline = min(deadline, done[at].answered)
        at += 1
    for at in sorted(begun, key=lambda at: done[at].answered):
        after = step(state, done[at].what)
        if after is not None:
            yield done[at], _advanced(low, ahead | 1 << (at - low), gone, after)
    newest = done[low - 1].asked if low else -1
    for at, each in enumerate(lost):
        if each.asked > deadline:
            break
        if gone >> at & 1 or each.until < newest:
            continue
        after = step(state, each.what)
        if after is not None and after != state:
            yield each, (low, ahead, gone | 1 << at, after)


def _advanced(low: int, ahead: int, gone: int, state: Any) -> Place:
    while ahead & 1:
        ahead >>= 1
        low += 1
    return low, ahead, gone, state
