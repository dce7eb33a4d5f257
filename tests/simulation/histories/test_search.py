"""Tests the search with histories of a simple register, which is 0 at first and is written and
read."""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Any

from tests.simulation.histories.search import NEVER, Operation, linearize


def step(state: int, what: tuple[Any, ...]) -> int | None:
    kind, value = what
    if kind == "write":
        return int(value)
    return state if value == state else None


def write(asked: int, answered: float, value: int, until: float = NEVER) -> Operation:
    return Operation(asked, answered, ("write", value), until)


def read(asked: int, answered: int, value: int) -> Operation:
    return Operation(asked, answered, ("read", value))


def holds(*operations: Operation) -> bool:
    verdict = linearize(operations, 0, step)
    assert verdict.decided
    return verdict.order is not None


def test_one_after_the_other_each_read_is_of_the_last_write() -> None:
    assert holds(read(1, 2, 0), write(3, 4, 7), read(5, 6, 7))
    assert not holds(write(1, 2, 7), write(3, 4, 8), read(5, 6, 7))     # stale
    assert not holds(write(1, 2, 7), read(3, 4, 0))                     # lost
    assert not holds(write(1, 2, 7), read(3, 4, 9))                     # from nowhere


def test_requests_at_once_may_come_in_any_order_but_the_same_for_all() -> None:
    writes = write(1, 10, 7), write(2, 9, 8)
    assert holds(*writes, read(11, 12, 7))
    assert holds(*writes, read(11, 12, 8))
    assert holds(*writes, read(3, 4, 7), read(5, 6, 8), read(11, 12, 8))
    assert not holds(*writes, read(3, 4, 7), read(5, 6, 8), read(7, 8, 7))
    assert not holds(*writes, read(11, 12, 7), read(13, 14, 8))


def test_a_read_that_began_before_a_write_was_answered_may_miss_it_a_later_one_may_not() -> None:
    assert holds(write(1, 5, 7), read(2, 3, 0))
    assert holds(write(1, 5, 7), read(2, 3, 7), read(4, 6, 7))
    assert not holds(write(1, 5, 7), read(2, 3, 7), read(4, 6, 0))


def test_what_was_not_answered_may_have_happened_at_any_later_time_once_or_never() -> None:
    lost = write(1, NEVER, 7)
    assert holds(lost, read(2, 3, 0), read(4, 5, 0))
    assert holds(lost, read(2, 3, 0), write(4, 5, 8), read(6, 7, 8), read(8, 9, 7))
    assert not holds(lost, read(2, 3, 7), write(4, 5, 8), read(6, 7, 8), read(8, 9, 7))
    assert not holds(read(2, 3, 7), write(4, NEVER, 7))                 # read before the write
    assert holds(lost)


def test_what_cannot_have_happened_after_a_time_did_not() -> None:
    assert holds(write(1, NEVER, 7, until=4), read(2, 3, 7))
    assert not holds(write(1, NEVER, 7, until=4), read(5, 6, 0), read(7, 8, 7))


def test_the_first_answer_without_an_explanation_is_told_with_the_states_before_it() -> None:
    verdict = linearize(
        [write(1, 10, 7), write(2, 9, 8), read(11, 12, 6), read(13, 14, 7)], 0, step
    )
    assert verdict.order is None
    assert verdict.stuck == read(11, 12, 6)
    assert {*verdict.states} == {7, 8}


def test_a_search_that_takes_too_long_says_so_and_decides_nothing() -> None:
    many = [write(at, 100, at) for at in range(1, 16)]
    verdict = linearize([*many, read(101, 102, 99)], 0, step, most=1000)
    assert (verdict.order, verdict.decided, verdict.stuck) == (None, False, None)


def test_the_search_agrees_with_the_trial_of_every_order() -> None:
    chance, known = Random(7), {True: 0, False: 0}
    for _ in range(3000):
        operations = some_history(chance)
        expected = any(explains(each) for each in permutations(operations))
        if any(each.is_lost for each in operations):
            lost = next(each for each in operations if each.is_lost)
            rest = [each for each in operations if each is not lost]
            expected = expected or any(explains(each) for each in permutations(rest))
        assert holds(*operations) == expected, operations
        known[expected] += 1
    assert min(known.values()) > 300


def some_history(chance: Random) -> list[Operation]:
    """Five reads and writes of three values. At most one write is not answered."""
    operations = []
    for at in range(5):
        asked = chance.randrange(0, 40) * 10 + at
        answered: float = asked + chance.randrange(1, 20) * 10 + 5
        kind = chance.choice(("read", "write"))
        if kind == "write" and chance.random() < 0.2 and not any(o.is_lost for o in operations):
            answered = NEVER
        operations.append(Operation(asked, answered, (kind, chance.randrange(3))))
    return operations


def explains(order: tuple[Operation, ...]) -> bool:
    """Whether this order agrees with the times of the operations, and each operation is
    possible."""
    for at, each in enumerate(order):
        if any(later.answered < each.asked for later in order[at + 1 :]):
            return False
    state: int | None = 0
    for each in order:
        state = None if state is None else step(state, each.what)
    return state is not None
