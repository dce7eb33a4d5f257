"""The command line finds its commands, and a broker's start does not import the tools."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.tools.command import COMMANDS, main
from ottla.tools.json_form import java_double, kafka_name, text_of
from tests.tools.kafka_directory import write_kafka
from tests.tools.logs import write_log


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {name} " in printed for name in COMMANDS)
    assert main([]) == 2
    assert main(["nonsense"]) == 2


def test_the_start_of_a_broker_imports_no_tool() -> None:
    script = (
        "import sys; from ottla.tools.command import main; main(['server', 'start', '/none']);"
        "print([m for m in sys.modules if m.startswith('ottla.tools.')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "['ottla.tools.command']\n", done.stderr


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"), (1000.0, "1000.0"), (1e7, "1.0E7"), (12345678.5, "1.23456785E7"),
        (0.001, "0.001"), (0.00012, "1.2E-4"), (-1e300, "-1.0E300"), (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)  # fmt: skip
def test_doubles_look_as_java_prints_them(value: float, text: str) -> None:
    assert java_double(value) == text


def test_json_looks_as_kafka_prints_it() -> None:
    value = {"a": None, "b": [True, 1, "é\n\x1b\\u00ab"], "c": {}}
    assert text_of(value) == '{"a":null,"b":[true,1,"é\\n\\u001B\\\\u00ab"],"c":{}}'
    assert kafka_name("transaction_start_timestamp_ms") == "transactionStartTimestampMs"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_log_tools_in_order(
    number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.tools.verify.run", lambda _: signal.raise_signal(number))
    assert main(["log", "verify", "."]) == status


def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.tools.command.import_module", interrupted)
    assert main(["topic", "list"]) == 130


@pytest.mark.parametrize("line", [
    "--version", "--help", "topic --help", "kcat --help", "kafka-topics --help",
    "log dump --files {}/t-0/00000000000000000000.log",
])  # fmt: skip
def test_output_to_a_full_disk_is_one_line_on_stderr(line: str, tmp_path: Path) -> None:
    write_log(tmp_path)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ottla.tools.command", *line.format(tmp_path).split()],
            stdout=full, stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "ottla: no space left on device\n" or (
        "log dump" in line and done.stderr.endswith("ottla: no space left on device\n"))


@pytest.mark.parametrize("line", ["log verify {}", "log import {} --data-dir {}/ours"])
def test_log_tools_whose_reader_has_gone_end_without_a_word(line: str, tmp_path: Path) -> None:
    write_kafka(tmp_path / "kafka")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-u", "-m", "ottla.tools.command",
         *line.format(tmp_path / "kafka", tmp_path).split()],
        stdout=writer, stderr=subprocess.PIPE, text=True)  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
