"""Timers fire once each, in the order of their deadlines, unless they are moved or cancelled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.groups.result import TimerKey
from ottla.groups.timers import Timers

A, B, C = (TimerKey("session", "g", name) for name in "abc")


def test_a_timer_fires_at_its_time_and_once() -> None:
    timers = Timers()
    timers.set(B, 20)
    timers.set(A, 10)
    assert len(timers) == 2 and timers.next_ms() == 10
    assert timers.take_due(9) is None
    assert timers.take_due(10) == A
    assert timers.take_due(19) is None and timers.next_ms() == 20
    assert timers.take_due(99) == B
    assert timers.take_due(99) is None and timers.next_ms() is None and len(timers) == 0


def test_a_timer_that_is_moved_fires_at_its_new_time_alone() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.set(B, 15)
    timers.set(A, 20)
    assert len(timers) == 2 and timers.next_ms() == 15
    timers.set(B, 5)
    assert [timers.take_due(99) for _ in range(3)] == [B, A, None]


def test_a_timer_that_is_cancelled_does_not_fire() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.set(B, 20)
    timers.set(A, None)
    timers.set(C, None)
    assert len(timers) == 1 and timers.next_ms() == 20
    assert timers.take_due(10) is None
    timers.set(A, 30)
    assert [timers.take_due(99) for _ in range(3)] == [B, A, None]


def test_a_timer_that_is_set_to_the_same_time_again_is_kept_once() -> None:
    timers = Timers()
    for _ in range(1000):
        timers.set(A, 10)
    assert len(timers.heap) == 1


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 50)), max_size=300))
def test_timers_that_are_moved_again_and_again_take_bounded_room(
    moves: list[tuple[int, int | None]],
) -> None:
    timers, expected = Timers(), dict[TimerKey, int]()
    for number, at_ms in moves:
        key = TimerKey("session", "g", str(number))
        timers.set(key, at_ms)
        if at_ms is None:
            expected.pop(key, None)
        else:
            expected[key] = at_ms
        assert len(timers) == len(expected)
        assert len(timers.heap) <= 64 + 2 * len(expected)
    fired = []
    while (key_due := timers.take_due(50)) is not None:
        fired.append((expected.pop(key_due), key_due))
    assert not expected and [at for at, _ in fired] == sorted(at for at, _ in fired)


def test_as_many_stale_entries_are_kept_as_pay_for_a_clearing() -> None:
    """Removing the stale entries goes over all timers, so it must be rare."""
    timers = Timers()
    timers.set(B, 0)
    for at_ms in range(67):
        timers.set(A, at_ms)
    assert len(timers.heap) == 68
    timers.set(A, 100)
    assert len(timers.heap) == 2
    assert [timers.take_due(100) for _ in range(3)] == [B, A, None]
