"""The command line finds its commands, and a broker's start does not import the tools."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from ottla.tools.command import COMMANDS, main
from ottla.tools.json_form import java_double, kafka_name, text_of


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
