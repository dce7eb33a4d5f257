"""What clients send stays within one line of the log, and within a length."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path

import pytest

from ottla.broker.log_output import (
    MESSAGE_SIZE_MAX,
    JsonLines,
    Output,
    TextLines,
    start_logging,
)
from ottla.wire.messages import SaslHandshakeRequest
from tests.broker.running import WireClient
from tests.broker.security.logging_in import SaslBroker
from tests.conftest import log_as_before

FORGED = "X\n2026-01-01 00:00:00,000 INFO ottla.audit: User:root from 127.0.0.1: all is well"


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("ottla.test", logging.INFO, __file__, 1, "%s", (message,), None)
    made.__dict__.update(extra)
    return made


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=["text", "json"])
def test_a_client_cannot_write_a_line_of_its_own(
    tmp_path: Path, formatter: logging.Formatter, caplog: pytest.LogCaptureFixture
) -> None:
    """This needs no login: the broker logs the name of the mechanism that the client requests."""
    with SaslBroker(tmp_path) as broker, WireClient(broker.inside) as client:
        assert client.call(SaslHandshakeRequest(mechanism=FORGED), 1).error_code
    [forged] = [each for each in caplog.records if "all is well" in each.getMessage()]
    written = formatter.format(forged)
    assert "\n" not in written and "X\\n2026" in written


@pytest.mark.parametrize(
    "text", ["\r", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202e", "\ud800", "\0"], ids=ascii
)
def test_what_moves_a_terminals_cursor_is_escaped(text: str) -> None:
    written = TextLines().format(record(f"a{text}b"))
    assert text not in written and "a\\" in written


def test_a_message_has_a_bounded_length_in_both_forms() -> None:
    long = record("x" * 100_000, fields={"what": "y" * 100_000})
    assert len(TextLines().format(long)) < MESSAGE_SIZE_MAX + 200
    shown = json.loads(JsonLines().format(long))
    assert shown["message"].endswith(f"({100_000 - MESSAGE_SIZE_MAX} more characters)")
    assert len(shown["what"]) < MESSAGE_SIZE_MAX + 100


def test_a_log_that_a_test_begins_ends_with_the_test() -> None:
    """Otherwise, the log would write the lines of later tests' brokers among pytest's dots."""
    with log_as_before():
        start_logging("warning", "text")
    assert not [each for each in logging.root.handlers if isinstance(each, Output)]
    assert logging.getLogger("ottla.server").hasHandlers(), "else Python writes warnings itself"


def test_a_block_of_our_own_and_other_languages_stay_as_they_are() -> None:
    assert TextLines().format(record("one\ntwo", block=True)).endswith("one\ntwo")
    assert TextLines().format(record("größer, 大きい → ✓")).endswith("größer, 大きい → ✓")


def test_lines_that_a_full_disk_refused_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, room, write = tmp_path / "log", 10, os.write
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)

    def limited(at: int, data: bytes) -> int:
        nonlocal room
        if at != fd:
            return write(at, data)
        if not room:
            raise OSError(errno.ENOSPC, "no space left on device")
        size = min(room, len(data))
        room -= size
        return write(at, data[:size])

    monkeypatch.setattr(os, "write", limited)
    output = Output(fd)
    try:
        for name in ("first", "second", "third", "fourth"):
            output.emit(record(name))
            output.flush()
        room = 1000
        output.emit(record("fifth"))
        output.flush()
    finally:
        monkeypatch.undo()
        os.close(fd)
    assert path.read_text().splitlines() == [
        "first", "seco", "fifth",
        "ottla: 3 lines of the log were dropped, because the output did not accept them",
    ]
