"""Words and flags that a tool cannot use are refused, and its help does not offer them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.tools.commands import table
from ottla.tools.kafka_names.main import main

UNCONNECTED = [name for name, command in table.read("kafka").items()
               if "unconnected" in command.marks]


def test_five_tools_take_no_address() -> None:
    assert UNCONNECTED == ["kafka-storage", "kafka-dump-log", "kafka-server-start",
                           "kafka-server-stop", "kafka-mirror-maker"]


@pytest.mark.parametrize("name", UNCONNECTED)
def test_a_tool_without_connection_offers_no_flags_for_one(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(name, ["--help"])
    help_text = capsys.readouterr().out
    assert "--version" in help_text and "--bootstrap-server" not in help_text
    for flag in ("--bootstrap-server", "--command-config"):
        assert main(name, [flag, "localhost:9092"]) == 1
        assert f"{flag.lstrip('-')} is not a recognized option" in capsys.readouterr().err


@pytest.mark.parametrize("name", list(table.read("kafka")))
def test_the_usage_line_names_the_words_that_the_tool_takes(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(name, ["--help"])
    usage = next(line for line in capsys.readouterr().out.splitlines() if "usage:" in line)
    words = [flag.name for flag in table.read("kafka")[name].flags if flag.positional]
    assert usage == " ".join([f"usage: {name}", *words, "[flags]"])


def test_kafka_server_stop_with_a_bare_id_stops_no_broker(
    capsys: pytest.CaptureFixture[str]
) -> None:
    assert main("kafka-server-stop", ["2"]) == 1
    assert "unrecognized arguments: 2; --node-id ID stops only" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "reason"), [
    (["other.properties"], "unrecognized arguments: other.properties"),
    (["--include", "a.*"], "--include cannot be used with a property file of MirrorMaker 2"),
    (["--producer.config", "p"], "--producer.config cannot be used with a property file"),
])
def test_kafka_mirror_maker_refuses_what_a_property_file_leaves_no_use_for(
    words: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text("clusters=A,B\n")
    assert main("kafka-mirror-maker", [str(path), *words]) == 1
    assert reason in capsys.readouterr().err


def test_kafka_storage_says_what_to_do_with_a_directory_that_is_already_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented command makes a new random cluster id, so a second run has another id."""
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=1\nlog.dirs={tmp_path / 'data'}\n")
    flags = ["format", "-c", str(properties), "-t"]
    assert main("kafka-storage", [*flags, "4L6g3nShT-eMCtK--X86sw"]) == 0
    for again in ("AAAAAAAAAAAAAAAAAAAAAA", "4L6g3nShT-eMCtK--X86sw"):
        assert main("kafka-storage", [*flags, again]) == 1
        told = capsys.readouterr().err
        assert "already formatted" in told and f"move {tmp_path / 'data'} away first" in told
