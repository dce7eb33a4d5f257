"""Log lines about operations that are retried again and again."""

from __future__ import annotations

import logging

import pytest

from ottla.broker.notes import AGAIN_SECONDS, KEPT_MAX, Notes
from tests.fakes import FakeClock

log = logging.getLogger("ottla.tests.notes")


def test_a_text_is_repeated_after_a_minute_and_another_one_at_once(
    caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    notes = Notes(clock.monotonic)
    for text in ("refused", "refused", "silent", "refused"):
        notes.tell(log, "broker 1", text)
    notes.tell(log, "broker 2", "refused")
    clock.advance(int(AGAIN_SECONDS * 1000) - 1)
    notes.tell(log, "broker 1", "refused")
    clock.advance(1)
    notes.tell(log, "broker 1", "refused")
    said = [each.getMessage() for each in caplog.records]
    assert said == ["refused", "silent", "refused", "refused", "refused"]


def test_clients_that_make_up_names_do_not_fill_the_memory(
    caplog: pytest.LogCaptureFixture
) -> None:
    notes = Notes(FakeClock().monotonic)
    for number in range(3 * KEPT_MAX):
        notes.tell(log, f"topic {number}", "not created")
    assert len(notes.told) <= KEPT_MAX
