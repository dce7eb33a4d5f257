"""Answers wait for the append that their records are in, and each is given once."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ottla.groups.open_appends import OpenAppend, OpenAppends
from ottla.groups.result import Result
from ottla.wire.errors import ProtocolError

ERROR = ProtocolError("why")


class Turns:
    """Open appends, and the answers that have been given."""

    def __init__(self) -> None:
        self.appends, self.told = OpenAppends(), list[tuple[str, Any]]()

    def turn(self, tick_ms: int, *names: str) -> Result:
        result = Result(0, tick_ms)
        for name in names:
            result.reply(partial(self.answer, name), "done")
        return result

    def answer(self, name: str, reply: Any) -> None:
        self.told.append((name, reply))

    def append(self, tick_ms: int, *names: str) -> OpenAppend:
        append = self.appends.begin(self.turn(tick_ms, *names))
        self.appends.made()
        return append


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_appends_end_in_their_order(turns: Turns) -> None:
    assert not turns.appends
    first, second = turns.append(1, "a"), turns.append(2, "b")
    assert turns.appends
    assert turns.appends.end(first) and turns.appends
    assert turns.appends.end(second) and not turns.appends
    assert turns.appends.end(second) is False, "it is answered already"
    assert turns.told == [], "the runtime gives these answers"


def test_an_append_that_the_log_refuses_answers_its_own_clients(turns: Turns) -> None:
    turns.append(1, "a")
    turns.appends.begin(turns.turn(2, "b", "c"))
    turns.appends.refuse(ERROR)
    turns.appends.made()
    assert turns.told == [("b", ERROR), ("c", ERROR)] and turns.appends
    turns.appends.answer_all(ERROR)
    assert turns.told[2:] == [("a", ERROR)] and not turns.appends
    turns.appends.refuse(ERROR)
    assert len(turns.told) == 3


def test_what_follows_waits_until_an_append_is_made(turns: Turns) -> None:
    seen: list[str] = []
    turns.appends.after_this(lambda: seen.append("at once"))
    turns.appends.begin(turns.turn(1))
    for name in ("first", "second"):
        turns.appends.after_this(partial(seen.append, name))
    assert seen == ["at once"]
    turns.appends.made()
    assert seen == ["at once", "first", "second"]
    turns.appends.made()
    turns.appends.after_this(lambda: seen.append("later"))
    assert seen == ["at once", "first", "second", "later"]


def test_the_longest_wait_is_that_of_the_first_append_with_an_answer(turns: Turns) -> None:
    assert turns.appends.waiting_since_ms() is None
    first = turns.append(5)
    assert turns.appends.waiting_since_ms() is None, "nobody waits for it"
    turns.append(7, "b")
    assert turns.appends.waiting_since_ms() == 7
    turns.append(6, "c")
    assert turns.appends.waiting_since_ms() == 6
    turns.appends.end(first)


def test_who_asks_without_a_record_waits_for_the_last_append(turns: Turns) -> None:
    append = turns.append(5)
    turns.appends.wait_for_last(turns.turn(9, "b"))
    assert turns.appends.waiting_since_ms() == 9, "the wait has just begun"
    turns.appends.wait_for_last(turns.turn(12, "c"))
    assert turns.appends.waiting_since_ms() == 9 and len(append.replies) == 2


def test_clients_are_answered_once_they_have_waited_for_too_long(turns: Turns) -> None:
    first, second = turns.append(5, "a"), turns.append(8, "b")
    turns.appends.answer_late(4, ERROR)
    assert turns.told == []
    turns.appends.answer_late(5, ERROR)
    assert turns.told == [("a", ERROR)]
    turns.appends.answer_late(7, ERROR)
    assert turns.told == [("a", ERROR)], "each once"
    turns.appends.answer_late(8, ERROR)
    assert turns.told == [("a", ERROR), ("b", ERROR)]
    assert turns.appends.end(first) and turns.appends.end(second), "the appends stay open"
