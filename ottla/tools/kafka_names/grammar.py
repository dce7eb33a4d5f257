"""The grammar of Kafka's tools: long flags, values after a space or an equals sign, no
abbreviations.

Most of Kafka's tools read their flags with joptsimple, some with argparse4j, which has
sub-commands. Scripts depend on the names of flags, and on exit status 1 for wrong flags. In both
respects, the two libraries behave alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.client.command_line import DIGITS_MOST, INT16_MOST, INT32_MOST, INT64_MOST
from ottla.client.similar_names import similar

if TYPE_CHECKING:
    from ottla.tools.commands.table import Command, Flag


NUMBERS = {"N", "MS"}
"""Names of values that are numbers."""
INTEGERS = {
    "partition", "partitions", "replication-factor", "max-messages",
    "partition-size-limit-per-response", "coordinator-epoch", "broker-id", "id", "controller-id",
    "fetch-size", "record-size", "record-key-size", "record-header-size",
    "record-header-key-size", "num-headers", "transaction-duration-ms",
}
"""Flags whose numbers have 32 bits. --producer-epoch has 16 bits, all other flags have 64 bits."""
LAST_COUNTS = {
    "kafka-cluster", "kafka-features", "kafka-metadata-quorum", "kafka-mirror-maker",
    "kafka-producer-perf-test", "kafka-storage", "kafka-transactions",
    "kafka-verifiable-consumer", "kafka-verifiable-producer",
}
"""Tools for which the last value of a repeated flag counts, as in Kafka's tools with argparse4j."""
MOST = dict.fromkeys(INTEGERS, INT32_MOST) | {"producer-epoch": INT16_MOST}


def java_integer(text: str, most: int = INT64_MOST) -> int:
    """Parses a number from -`most` - 1 to `most`. Raises ValueError for any other text."""
    number = int(text) if len(text) <= DIGITS_MOST else most + 1
    if not -most - 1 <= number <= most:
        raise ValueError(f"{text} is not between {-most - 1} and {most}")
    return number


class UsageError(Exception):
    """A command line that the tool does not accept; the text is one line for stderr."""


class Options:
    """The contents of a command line."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.values: dict[str, list[str]] = {}
        self.positional: list[str] = []
        self.action = ""
        """The sub-command, for tools that have sub-commands."""
        self.ignored: list[str] = []
        """Words that follow a flag with an optional number, but are not numbers."""
        self.arguments: list[str] = []
        """The whole command line, with its flags in the given order."""
        self.properties: dict[str, str] | None = None
        """The properties in the client's property files; None until the files are read."""

    def has(self, name: str) -> bool:
        """Whether the flag was given."""
        return name in self.values

    def one(self, name: str, default: str = "") -> str:
        """The value of a flag. Raises UsageError if the flag was repeated: if one value counted,
        `kafka-topics --delete --topic a --topic b` would delete only b, and not report that."""
        values = self.values.get(name)
        if values and len(values) > 1 and self.command.words not in LAST_COUNTS:
            raise UsageError(
                f"Found multiple arguments for option {name}, but you asked for only one")
        return values[-1] if values else default

    def all(self, name: str) -> list[str]:
        """All values of a flag."""
        return self.values.get(name, [])

    def number(self, name: str, default: int) -> int:
        """The value of a flag as an integer. Raises UsageError if the value is not an integer, or
        has more bits than the flag's type in Java."""
        if not self.all(name):
            return default
        text = self.one(name)
        try:
            return java_integer(text, MOST.get(name, INT64_MOST))
        except ValueError:
            raise UsageError(f"Cannot parse argument '{text}' of option {name}") from None

    def check_numbers(self) -> None:
        """Raises UsageError for an invalid number, even if the tool does not use it."""
        for flag in self.command.flags:
            if flag.metavar in NUMBERS:
                self.number(flag.name, 0)

    def only_with(self, allowed: str, *names: str) -> None:
        """Raises UsageError if a flag of `names` was given, but no action of `allowed`."""
        for name in names:
            if self.has(name) and not any(self.has(one) for one in allowed.split()):
                [action] = [one for one in self.command.actions if self.has(one)] or [allowed]
                raise UsageError(f'Option "[{name}]" can\'t be used with option "[{action}]"')

    def excludes(self, name: str, *others: str) -> None:
        """Raises UsageError if the flag `name` was given together with one of the others."""
        for other in others:
            if self.has(name) and self.has(other):
                raise UsageError(f'Option "[{name}]" can\'t be used with option "[{other}]"')

    def only_flags(self, hint: str = "") -> None:
        """Raises UsageError for words that belong to no flag, as Kafka's tools with argparse4j do.
        Those with joptsimple ignore such words, and most of ours do so too. But kafka-dump-log and
        kafka-server-stop refuse them: there, a word without its flag would do harm."""
        if self.positional:
            words = " ".join(self.positional)
            raise UsageError(f"unrecognized arguments: {words}{hint and '; '}{hint}")

    def needs(self, *names: str) -> None:
        """Raises UsageError unless all of these flags were given."""
        for name in names:
            if not self.has(name):
                raise UsageError(f'Missing required argument "[{name}]"')


def parse(command: Command, arguments: Sequence[str]) -> Options:
    """Read a command line; raises UsageError."""
    options = Options(command)
    options.arguments = list(arguments)
    remaining = list(arguments)
    while remaining:
        word = remaining.pop(0)
        if not word.startswith("-") or word == "-" or _is_number(word):
            options.positional.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        flag = command.flag(name)
        if flag is None:
            known = [one.lstrip("-") for each in command.flags for one in each.names]
            raise UsageError(f"{name} is not a recognized option{similar(name, known)}")
        values = options.values.setdefault(flag.name, [])
        if not flag.metavar:
            if equals:
                raise UsageError(f"Option {name} does not take a value")
        else:
            values.extend([value] if equals else _values(flag, remaining, options.ignored))
    return options


def _values(flag: Flag, left: list[str], ignored: list[str]) -> list[str]:
    if flag.optional and (not left or left[0].startswith("--")):
        return []
    if flag.optional and flag.metavar in NUMBERS and not _is_number(left[0]):
        ignored.append(left.pop(0))         # joptsimple does not take this word for the value
        return []
    if not left:
        raise UsageError(f"Option {flag.name} requires an argument")
    if flag.many != "+":
        return [left.pop(0)]
    taken = []  # argparse4j's nargs="+"
    while left and not left[0].startswith("-"):
        taken.append(left.pop(0))
    if not taken:
        raise UsageError(f"Option {flag.name} requires an argument")
    return taken


def _is_number(word: str) -> bool:
    return word.lstrip("-").isdecimal() and word.count("-") == 1


def sub_command(options: Options, known: Sequence[str]) -> str:
    """The sub-command that was given. Raises UsageError if the sub-command is missing or
    unknown, or another word follows it."""
    if not options.positional:
        raise UsageError("too few arguments: one of " + ", ".join(known) + " is needed")
    name = options.positional.pop(0)
    if name not in known:
        near = similar(name, known) or f" (choose from {', '.join(known)})"
        raise UsageError(f"invalid choice: '{name}'{near}")
    options.action = name
    options.only_flags()
    return name
