"""Commands whose effect cannot be undone must be confirmed. On a terminal, every command that the
command table marks as `destroys` asks for the name of what will be lost. Without a terminal, such a
command refuses to run unless it has --yes."""

from __future__ import annotations

import os
import pty
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.tools.commands.table import read
from tests.tools.cli.member_directory import member_directory
from tests.tools.cli.ottla_command import Done, Ottla
from tests.tools.forks import Forks
from tests.tools.kafka_names.stage import Stage

COMMANDS = read("ottla")
MARKED = [words for words, command in COMMANDS.items() if "destroys" in command.marks]
OFFLINE = {"cluster create"}
"""It needs a stopped broker and ZooKeeper; test_cluster_create.py tests its confirmation."""
LINES = {
    **{words: COMMANDS[words].examples[0].removeprefix("ottla ").replace(" --yes", "")
       for words in MARKED if words not in OFFLINE},
    "topic trim": "topic trim orders --partition 0 --before end",
    "elect": "elect orders --unclean",      # only an unclean election loses records
}  # fmt: skip
SHOWN_FIRST = {"group reset"}
"""It asks no question: without --yes, it only shows what it would do, on a terminal too."""
GIVEN_BACK = {"quota delete", "config reset", "reassign cancel"}
"""Their effect can be undone by another command, so they ask no question. They have --dry-run."""


@pytest.fixture(scope="module")
def stage(ottla: Ottla) -> Iterator[Stage]:
    made = Stage(ottla.address)
    yield made
    made.close()


@pytest.fixture
def prepared(ottla: Ottla, stage: Stage, folder: Path) -> None:
    """Creates everything that the lines of LINES remove."""
    member_directory(folder / "data")
    if "orders" not in ottla.ok("topic list -o name").split():
        ottla.ok("topic create orders --partitions 3")
    ottla.ok("produce orders --partition 0", b"a\nb\n")
    ottla.ok("consume orders -G billing -n 2 -o beginning")
    if "Ongoing" not in ottla.ok("transaction list -o jsonl"):
        stage.act(["transaction", "payments", "orders"])
    ottla.ok("acl add User:alice read topic/orders")
    ottla.ok("user set alice --password-file secret.txt")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secret.txt").write_text("secret\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state(ottla: Ottla) -> list[str]:
    lines = ("topic list -o name", "topic offsets orders -o json", "group list -o name",
             "transaction list -o json", "acl list -o json", "user list -o json")
    return [*(ottla(line).out for line in lines), *sorted(os.listdir("data"))]  # fmt: skip


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks()
    yield made
    made.close()


@pytest.fixture
def on_terminal(forks: Forks, folder: Path, ottla: Ottla) -> Iterator[object]:
    """Yields a function that runs a line with a terminal as standard input, and types an answer."""
    master, slave = pty.openpty()

    def run(line: str, answer: str) -> Done:
        os.write(master, answer.encode() + b"\n")
        forks.start(shlex.split(line), folder, ottla.address, stdin_path=os.ttyname(slave))
        return forks.wait()

    yield run
    os.close(master)
    os.close(slave)


@pytest.mark.parametrize("words", sorted(LINES))
def test_it_asks_on_a_terminal_for_the_name(
    words: str, ottla: Ottla, prepared: None, on_terminal: object
) -> None:
    assert callable(on_terminal)
    before = state(ottla)
    for wrong in ("", "y", "yes"):
        done = on_terminal(LINES[words], wrong)
        assert done.status == 1 and done.err.endswith("nothing was changed\n"), done
        assert state(ottla) == before
    asked = re.search(r"cannot be undone\. Type (\S+) to proceed: ", done.err)
    assert asked, done
    done = on_terminal(LINES[words], asked[1])
    assert done.status == 0, done
    assert words == "elect" or state(ottla) != before


@pytest.mark.parametrize("words", sorted(LINES))
def test_it_refuses_without_yes_where_nobody_can_be_asked(
    words: str, ottla: Ottla, prepared: None
) -> None:
    before = state(ottla)
    for typed in (b"", b"yes\n", b"orders\n"):
        done = ottla(LINES[words], typed)
        assert done.status == 1 and "cannot be undone: confirm with --yes" in done.err, done
        assert len(done.err.splitlines()) == 1 and state(ottla) == before


@pytest.mark.parametrize("flag", ["--yes", "-y"])
@pytest.mark.parametrize("words", sorted(LINES))
def test_it_asks_nothing_with_yes(words: str, flag: str, ottla: Ottla, prepared: None) -> None:
    before = state(ottla)
    done = ottla(f"{LINES[words]} {flag}")
    assert done.status == 0 and "Type " not in done.err, done
    assert words == "elect" or state(ottla) != before


def test_the_table_marks_every_command_that_destroys() -> None:
    named = re.compile(
        r"\b(delete|trim|abort|reset|cancel|purge|drop|remove|truncate|accept-backup)\b"
    )
    assert {words for words in COMMANDS if named.search(words)} == (
        ({*MARKED} - OFFLINE) | SHOWN_FIRST | GIVEN_BACK
    )
    assert "elect" not in MARKED and "--unclean" in {
        name for flag in COMMANDS["elect"].flags for name in flag.names
    }
