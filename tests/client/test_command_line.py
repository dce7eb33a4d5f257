"""The parsers of all commands: how they treat numbers, flags that only other programs have, and
flags that stand between file names."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module

import pytest

from ottla.broker import main as server
from ottla.client.command_line import Parser, decimal
from ottla.client.other_words import WORDS, meant, ours
from ottla.spark_interop.pipelines import command as pipelines
from ottla.tools.cli.forgotten_flags import NEEDS_FLAG, with_flag
from ottla.tools.cli.grammar import parser_of
from ottla.tools.commands import table
from ottla.tools.log_command import ACTIONS


def leaves(parser: argparse.ArgumentParser) -> Iterator[Parser]:
    """Yields the parser itself if it has no sub-commands, and otherwise the parsers of its
    sub-commands, at any depth."""
    assert isinstance(parser, Parser)
    below = parser.commands()
    for one in below:
        yield from leaves(one)
    if not below:
        yield parser


def all_parsers() -> Iterator[Parser]:
    """Yields the parsers of all commands."""
    for command in table.read("ottla").values():
        yield from leaves(parser_of(command))
    yield from leaves(pipelines.parser())
    yield from leaves(server.parser())
    for name, (module, _) in ACTIONS.items():
        parser = Parser(prog=f"ottla log {name}")
        import_module(module).add_arguments(parser)
        yield parser


PARSERS = list(all_parsers())


def test_all_commands_are_here() -> None:
    assert len(PARSERS) > 70
    assert {"ottla topic list", "ottla pipeline run", "ottla server start", "ottla log dump"} < {
        parser.prog for parser in PARSERS}


def test_each_word_of_others_leads_to_a_flag_that_a_command_takes() -> None:
    unused = {(word, text) for word, texts in WORDS.items() for text in texts}
    for word in WORDS:
        for parser in PARSERS:
            found = ours(word, parser.flags).removeprefix("; similar: ")
            if word in parser.flags or not found:
                continue
            unused -= {(word, found)}
            name, _, value = found.partition(" ")
            action = parser.flags[name]
            assert not value or action.nargs is None, (parser.prog, found)
            assert not value or not action.choices or value in action.choices, (parser.prog, found)
    assert not unused, "no command answers these words so"


def test_each_forgotten_flag_is_a_flag_of_its_command() -> None:
    flags = {parser.prog: parser.flags for parser in PARSERS}
    assert not [one for one, flag in NEEDS_FLAG.items() if flag not in flags[f"ottla {one}"]]


def test_a_flag_is_suggested_only_for_a_value_that_its_type_takes() -> None:
    def odd(text: str) -> int:
        raise TypeError(text)

    taken = "; write it with its flag: --partitions six"
    for kind, expected in ((int, ""), (odd, ""), (str, taken)):
        parser = Parser()
        parser.add_argument("--partitions", type=kind)
        assert with_flag("topic grow", "six", parser.flags) == expected, kind


def test_every_number_has_a_type_with_a_sentence_of_ours() -> None:
    for parser in PARSERS:
        for flag, action in parser.flags.items():
            assert action.type not in (int, float), (parser.prog, flag)


@pytest.mark.parametrize("text", ["many", "nan", "inf", ""])
def test_a_number_is_finite(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"{text!r}: expected a number"):
        decimal(text)
    assert decimal("0.5") == 0.5


@pytest.mark.parametrize(("line", "files"), [
    ("a --all b", ["a", "b"]), ("--all a b", ["a", "b"]), ("a b --all c --name x d", [*"abcd"]),
    ("a --all b -- --c", ["a", "b", "--c"]), ("a --all -", ["a", "-"]),
])
def test_flags_may_stand_between_files(line: str, files: list[str]) -> None:
    for many in "*+":
        parser = Parser(prog="p", allow_abbrev=False)
        parser.add_argument("files", nargs=many)
        parser.add_argument("--all", action="store_true")
        parser.add_argument("--name")
        chosen = parser.parse_args(line.split())
        assert chosen.files == files and chosen.all


def test_words_that_are_too_many_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for nargs, line in ((None, "a --all b"), ("?", "a --all b"), ("*", "a --all b --nothing")):
        parser = Parser(prog="p", allow_abbrev=False)
        parser.add_argument("file", nargs=nargs)
        parser.add_argument("--all", action="store_true")
        with pytest.raises(SystemExit):
            parser.parse_args(line.split())
        assert "p: unrecognized arguments: b" in capsys.readouterr().err


def test_a_mistyped_flag_of_kafkas_is_answered_like_the_flag() -> None:
    assert meant("--form-beginning") == "--from-beginning"
    assert meant("--max-mesages") == "--max-messages"
    assert meant("--zzz") == ""
