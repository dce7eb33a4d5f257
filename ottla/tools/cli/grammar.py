"""`ottla NOUN VERB …`: an argparse parser generated from the table, and one-line errors.

Exit status: 0 done, 1 refused or failed, 2 a wrong command line, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.client.addresses import DEFAULT_ADDRESS, VARIABLE
from ottla.client.command_line import INT16_MOST, INT32_MOST, Parser, count, limited, whole
from ottla.client.interrupts import interruptible, status_of
from ottla.tools.cli.units import duration_ms, size_bytes
from ottla.tools.commands import table
from ottla.tools.printable import printable
from ottla.tools.standard_output import discard_output
from ottla.tools.usage import WrongUsage, check_topic_name
from ottla.wire.environment import pip_install

if TYPE_CHECKING:
    from ottla.tools.commands.table import Command, Flag

DEBUG = "OTTLA_DEBUG"


def main(arguments: list[str]) -> int:
    """Run the command named by the first words."""
    commands = table.read("ottla")
    noun = arguments[0]
    words = " ".join(arguments[:2])
    if noun in commands:
        return run(commands[noun], arguments[1:])
    if words in commands:
        return run(commands[words], arguments[2:])
    return show_verbs(noun, commands, arguments[1:])


LONGEST_MS = 36_500 * 86_400_000
"""The longest time that a flag accepts: 100 years. For much longer waits, Python raises
OverflowError."""


def with_unit(
    read: Callable[[str], float], shown: Callable[[float], float], most: int, most_text: str
) -> Value:
    """The argparse type of a time or a size."""

    def value(text: str) -> float:
        try:
            found = read(text)
        except WrongUsage as wrong:
            raise argparse.ArgumentTypeError(str(wrong)) from None
        if found > most:
            raise argparse.ArgumentTypeError(f"{text!r} is too much: expected {most_text} or less")
        return shown(found)

    return value


def nonempty(text: str) -> str:
    """The argparse type of a text. An empty text may come from a variable that a script did not
    set. If a command ignored the empty value, it might do more than was meant."""
    if not text:
        raise argparse.ArgumentTypeError("'' is empty: give a value, or leave it out")
    return text


MAY_BE_EMPTY = {"--key", "--prefix", "--delimiter", "--key-delimiter"}
Value = Callable[[str], float]
VALUES: dict[str, Value] = {
    "N": limited(0, INT32_MOST),
    "BROKER": limited(0, INT32_MOST),
    "COUNT": limited(1, INT32_MOST),
    "REPLICAS": limited(1, INT16_MOST),
    "NUMBER": whole,
    "RECORDS": count,
    "PORT": limited(0, 65_535),
    "SECONDS": with_unit(
        lambda text: duration_ms(text, "s"), lambda ms: ms / 1000, LONGEST_MS, "36500d"),
    "MS": with_unit(duration_ms, int, LONGEST_MS, "36500d"),
    "SIZE": with_unit(size_bytes, int, INT32_MOST, f"{INT32_MOST} bytes"),
}
"""The argparse types of values, by the values' names in the table."""


def topic_name(text: str) -> str:
    """The argparse type of a topic's name."""
    try:
        check_topic_name(nonempty(text))
    except WrongUsage as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None
    return text


ARGUMENTS: dict[str, Callable[[str], object]] = {**VALUES, "TOPIC": topic_name}
"""The argparse types of arguments without a flag."""


LAST_COUNTS = {"--bootstrap-server", "--command-config", "--timeout", "--output"}
"""Of these flags, the last one counts: a shell's alias may contain them."""


class Once(argparse.Action):
    """Stores the value of a flag that may be given once only. A second value would replace the
    first one silently, so that the command would do less than was asked."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{self.option_strings[0]} is given twice")
        setattr(namespace, self.dest, values)


def show_verbs(noun: str, commands: dict[str, Command], given: list[str]) -> int:
    """Prints the commands of a noun. Returns the exit status."""
    verbs = {one.words: one.about for one in commands.values() if one.words.startswith(f"{noun} ")}
    if noun == "server":
        verbs = {"server start": "Run a broker until SIGTERM or SIGINT."} | verbs
    wants_help = given in (["-h"], ["--help"])
    out = sys.stdout if wants_help or not given else sys.stderr
    if given and not wants_help:
        from ottla.client.similar_names import similar

        known = [words.partition(" ")[2] for words in verbs]
        print(
            f"ottla {noun}: {given[0]!r} is not a command{similar(given[0], known)};"
            f" known commands: {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    print(f"usage: ottla {noun} COMMAND …", file=out)
    for words, about in verbs.items():
        print(f"  {words:<22} {about}", file=out)
    return 0 if wants_help else 2


def parser_of(command: Command) -> argparse.ArgumentParser:
    """The parser of a command."""
    examples = "".join(f"\n  {example}" for example in command.examples)
    parser = Parser(
        prog=f"ottla {command.words}",
        description=command.about,
        epilog=f"example:{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for flag in [*command.flags, *common_flags(command)]:
        add(parser, flag)

    def explain(word: str, chosen: argparse.Namespace) -> str:
        from ottla.tools.cli.forgotten_flags import with_flag

        return with_flag(command.words, word, parser.flags, getattr(chosen, "topic", "TOPIC"))

    parser.explain_extra = explain
    return parser


def common_flags(command: Command) -> list[Flag]:
    """The flags that a command has because of its marks in the table, such as `cluster`."""
    found = []
    if "cluster" in command.marks:
        found += [
            table.parse_flag(
                "--bootstrap-server --bootstrap -b HOST:PORT  the brokers; "
                f"${VARIABLE} or {DEFAULT_ADDRESS} if left out"
            ),
            table.parse_flag("--command-config FILE  a property file with settings of the client"),
            table.parse_flag("--timeout SECONDS  how long to try if no broker can be reached"
                             " (default: 5, or 2 if every address refuses connections), and how"
                             " long a broker may take to answer (default: 30, at least 1)"),
        ]
    if "prints" in command.marks:
        found.append(table.parse_flag("--output -o {table,wide,json,jsonl,name}  the format"))
    if command.marks & {"changes", "destroys"}:
        found.append(table.parse_flag("--dry-run  only say what would be done"))
    if "destroys" in command.marks:
        found.append(table.parse_flag("--yes -y  do not ask"))
    return found


def add(parser: argparse.ArgumentParser, flag: Flag) -> None:
    """Add one flag or argument."""
    settings: dict[str, object] = {"help": flag.help.replace("%", "%%")}
    if flag.choices:
        settings["choices"] = flag.choices
    if flag.positional:
        if flag.many:
            settings["nargs"] = flag.many
        if not flag.choices:
            settings["type"] = ARGUMENTS.get(flag.names[0], nonempty)
        choices = f"{{{','.join(flag.choices)}}}" if flag.choices else ""
        settings["metavar"] = choices or flag.names[0]
        parser.add_argument(flag.names[0].lower(), **settings)  # type: ignore[arg-type]
        return
    if not flag.metavar:
        settings["action"] = "store_true"
    else:
        if not flag.choices:
            settings["metavar"] = flag.metavar
        if flag.names[0] not in MAY_BE_EMPTY and not flag.choices:
            settings["type"] = VALUES.get(flag.metavar, nonempty)
        settings["action"] = "store" if flag.names[0] in LAST_COUNTS else Once
        if flag.many:
            settings["action"] = "append"
            settings["default"] = []
    settings["dest"] = flag.name.replace("-", "_").replace(".", "_")
    if settings["dest"] == "from":
        settings["dest"] = "source"
    if flag.choices and all(one.islower() for one in flag.choices):
        settings["type"] = str.lower
    parser.add_argument(*flag.names, **settings)  # type: ignore[arg-type]


def run(command: Command, arguments: list[str]) -> int:
    """Parse the arguments and run the command. Every error is one line on stderr."""
    options = parser_of(command).parse_args(negative_values(command, arguments))
    module, _, function = command.target.partition(":")
    from ottla.client.addresses import BadAddress
    from ottla.client.errors import ClientError
    from ottla.wire.errors import NumberOutOfRange

    name = f"ottla {command.words}"
    try:
        with interruptible():
            status = getattr(import_module(module), function)(options)
            sys.stdout.flush()
            return int(status or 0)
    except BrokenPipeError:
        # The reader of the output has closed the pipe.
        discard_output()
        return 1
    except (WrongUsage, BadAddress) as wrong:
        print(f"{name}: {one_line(wrong)}; see {name} --help", file=sys.stderr)
        return 2
    except (ClientError, OSError) as failed:
        from ottla.tools.cli.next_steps import with_next_step

        sys.stdout.flush()
        said = with_next_step(
            one_line(failed), failed, address_flags(command), command.words)
        print(f"{name}: {said}", file=sys.stderr)
        return 1
    except NumberOutOfRange as wrong:
        print(f"{name}: {wrong.sentence}; see {name} --help", file=sys.stderr)
        return 2
    except ModuleNotFoundError as missing:
        print(f"{name}: {not_installed(missing)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as ended:
        return status_of(ended)
    except Exception as bug:
        if os.environ.get(DEBUG):
            raise
        print(f"{name}: {unexpected(bug)}", file=sys.stderr)
        return 1


def address_flags(command: Command) -> str:
    """The flags that name the brokers of a command, "" if it has none."""
    if "cluster" in command.marks:
        return "-b"
    return "--from and --to" if command.flag("from") else ""


PACKAGES = {"jwt": "PyJWT", "confluent_kafka": "confluent-kafka"}
"""Packages whose names differ from their modules' names, by module."""


def not_installed(missing: ModuleNotFoundError) -> str:
    """One line about a package that this environment lacks."""
    name = (missing.name or "").partition(".")[0]
    package = PACKAGES.get(name, name)
    return f"{package} is not installed in this environment: {pip_install(package)}"


def one_line(failed: Exception) -> str:
    """An error's text without control characters, since it may quote a broker's text."""
    from ottla.client.errors import reason_of

    return printable(" ".join(reason_of(failed).split()))


def unexpected(bug: Exception) -> str:
    """One line about an unexpected error."""
    what = one_line(bug)
    return f"unexpected {type(bug).__name__}: {what} ({DEBUG}=1 shows where)"


def negative_values(command: Command, arguments: list[str]) -> list[str]:
    """Rewrites `--offset -5` to `--offset=-5`: argparse would treat the value as a flag."""
    found: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        flag = command.flag(word.lstrip("-")) if word.startswith("-") else None
        if (
            flag is not None
            and flag.metavar
            and left
            and left[0][:1] == "-"
            and left[0][1:2].isdecimal()
        ):
            word = f"{flag.names[0]}={left.pop(0)}"
        found.append(word)
    return found
