"""A broker that was paused reads its members' heartbeats before it expires their sessions."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ottla.broker.coordination.coordinator_parts import CoordinatorParts
from ottla.broker.coordination.log_coordinator import LogCoordinator


class Loop:
    """Keeps the last timer that was set, for the test to call."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.callback: Callable[[], None] | None = None

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        self.delay, self.callback = delay, callback
        return SimpleNamespace(cancel=lambda: None)


def coordinator_at(seconds: list[float], fired: list[float]) -> tuple[LogCoordinator[Any], Loop]:
    clock, loop = SimpleNamespace(monotonic=lambda: seconds[0]), Loop()
    unused: Any = None
    parts = CoordinatorParts(0, clock, unused, unused, unused, unused)  # type: ignore[arg-type]
    made: LogCoordinator[Any] = LogCoordinator(
        parts, loop, "topic", lambda record: (b"", None)  # type: ignore[arg-type]
    )
    made.runtime = SimpleNamespace(fire=lambda: fired.append(seconds[0]))  # type: ignore
    return made, loop


def test_timers_fire_when_they_are_due() -> None:
    seconds, fired = [100.0], []
    coordinator, loop = coordinator_at(seconds, fired)
    coordinator.wake(110_000)
    assert 10.0 <= loop.delay < 10.1
    seconds[0] = 110.1
    assert loop.callback is not None
    loop.callback()
    assert fired == [110.1]


def test_after_a_standstill_the_members_are_heard_first() -> None:
    seconds, fired = [100.0], []
    coordinator, loop = coordinator_at(seconds, fired)
    coordinator.wake(110_000)
    seconds[0] = 150.0
    assert loop.callback is not None
    loop.callback()
    assert fired == [] and loop.delay == 1.0
    seconds[0] = 159.0  # late again, but the delay is granted only once
    loop.callback()
    assert fired == [159.0]
