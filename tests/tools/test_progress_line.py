"""Long commands show their progress only on a terminal, and never in their output."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.tools.findings import Report
from ottla.tools.progress_line import ProgressLine, clock, line_of, scaled
from tests.tools.cli.conftest import broker, ottla
from tests.tools.cli.ottla_command import Ottla

__all__ = ["broker", "ottla"]


class Terminal(io.StringIO):
    """A stream whose `isatty` is true."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _on_a_terminal_that_can_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


def test_the_line_says_how_much_how_fast_and_how_long() -> None:
    assert line_of(500, 1000, "records", 2.0) == (
        "  50% [############............] 500 of 1.0 k records, 250/s, 0:02 left"
    ).removeprefix(" ")
    assert line_of(2_500_000, 0, "bytes", 1.0) == "2.5 M bytes, 2.5 M/s"
    assert line_of(0, 10, "records", 0.0).endswith("0 of 10 records, 0/s")
    assert line_of(20, 10, "records", 1.0).startswith("100%")
    assert [scaled(n) for n in (7, 1_234, 5_600_000_000)] == ["7", "1.2 k", "5.6 G"]
    assert [clock(n) for n in (5, 750, 10_800)] == ["0:05", "12:30", "3:00:00"]


def test_it_is_drawn_four_times_a_second_and_taken_away() -> None:
    times = iter([0.0, 0.1, 0.3, 0.4, 1.0])
    stream = Terminal()
    line = ProgressLine(1000, stream=stream, now=lambda: next(times))
    for _ in range(4):
        line.add(100)
    drawn = stream.getvalue().split("\r")[1:]
    assert [text.strip()[:3] for text in drawn] == ["20%", "40%"]
    line.clear()
    assert stream.getvalue().endswith("\r" + " " * len(drawn[-1].rstrip()) + "\r")
    assert "\x1b" not in stream.getvalue()


def test_nothing_is_drawn_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = io.StringIO()
    line = ProgressLine(10, stream=elsewhere)
    line.add(5)
    line.clear()
    assert elsewhere.getvalue() == ""
    monkeypatch.setenv("TERM", "dumb")
    assert not ProgressLine(10, stream=Terminal()).wanted


def test_a_check_of_logs_takes_its_line_away_before_it_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    times = iter([0.0, 0.0, 1.0])
    report = Report(now=lambda: next(times), bytes_due=4000)
    report.moved(1000)
    assert " 25% [######......" in terminal.getvalue()
    report.say("sound")
    assert terminal.getvalue().endswith(" \r")
    assert capsys.readouterr().out == "sound\n"


def shown(words: list[str], address: str, out: Path) -> str:
    """Returns what a command writes to its stderr, which is a terminal; stdout goes to a file."""
    master, slave = pty.openpty()
    script = (
        "import sys; from ottla.tools import progress_line; progress_line.DRAW_SECONDS = 0\n"
        "from ottla.tools.command import main; sys.exit(main())"
    )
    with out.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *words], stdin=subprocess.DEVNULL,
            stdout=file, stderr=slave,
            env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": address, "TERM": "xterm"},
        )  # fmt: skip
    os.close(slave)
    said = b""
    try:
        while data := os.read(master, 65536):
            said += data
    except OSError:
        pass  # Linux: the other end was closed
    os.close(master)
    assert process.wait(30) == 0, said
    return said.decode()


def test_long_commands_show_how_far_they_are(ottla: Ottla, tmp_path: Path) -> None:
    data, out = tmp_path / "data.txt", tmp_path / "out.txt"
    data.write_text("".join(f"{n}\n" for n in range(500)))
    ottla.ok("topic create bars --partitions 2")
    said = shown(["produce", "bars", "--file", str(data)], ottla.address, out)
    assert "100% [" in said and "500 records sent" in said
    for words in (
        ["consume", "bars", "-e"],
        ["consume", "bars", "-n", "500"],
        ["consume", "bars", "-e", "-o", "-500"],
    ):
        assert "100% [" in shown(words, ottla.address, out), words
        assert sorted(map(int, out.read_text().split())) == list(range(500)), words
    for words in (
        ["perf", "produce", "bars", "--records", "1000"],
        ["perf", "consume", "bars", "--records", "1000"],
        ["mirror", "--from", ottla.address, "--to", ottla.address, "--topics", "bars",
         "--prefix", "copy.", "--once"],
    ):  # fmt: skip
        assert "100% [" in shown(words, ottla.address, out), words


def test_into_a_pipe_there_is_no_line(ottla: Ottla) -> None:
    ottla.ok("topic create silent --partitions 1")
    ottla.ok("produce silent", b"1\n2\n")
    assert ottla("consume silent -e").err == ""
