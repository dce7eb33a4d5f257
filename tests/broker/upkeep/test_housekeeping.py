"""The schedule of periodic work follows the settings: at extreme values, and when they change on
the running broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.upkeep.checkpoint_writer import Checkpoints
from ottla.broker.upkeep.compactor import LogCleaner
from ottla.broker.upkeep.housekeeping import PAUSE_SECONDS_MIN
from tests.broker.running import RunningBroker, pass_time


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> list[None]:
    """A list that grows with each call of the method, which then does nothing."""
    calls: list[None] = []

    async def call(*_: object) -> None:
        calls.append(None)

    monkeypatch.setattr(owner, method, call)
    return calls


def test_an_interval_of_0_between_checkpoints_leaves_time_for_other_work(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = counted(monkeypatch, Checkpoints, "write")
    with RunningBroker(data, log_flush_offset_checkpoint_interval_ms=0) as broker:
        began = broker.loop_clock.monotonic()
        for _ in range(200):
            broker.call(lambda: None)
        most = (broker.loop_clock.monotonic() - began) / PAUSE_SECONDS_MIN
        assert len(written) <= most + 2
        before = len(written)
        pass_time(broker, PAUSE_SECONDS_MIN)
        assert len(written) > before


def test_a_shorter_back_off_of_the_cleaner_applies_soon(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = counted(monkeypatch, LogCleaner, "clean_due")
    with RunningBroker(data, log_cleaner_backoff_ms=86_400_000) as broker:
        for _ in range(5):
            pass_time(broker, 1.5)
        assert not rounds
        broker.config.log_cleaner_backoff_ms = 1000
        pass_time(broker, 1.5)
        assert len(rounds) == 1
