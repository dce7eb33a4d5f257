"""The table of all commands, in text files beside this one. They are read when a command runs.

    == kafka-topics   ottla.tools.kafka_names.topics
    Create, list, describe, alter and delete topics.
    actions list describe create alter delete
    --create                   create a topic
    --config NAME=VALUE *      a setting of the new topic; may be repeated
    --state [STATES]           a flag whose value may be left out
    $ kafka-topics --bootstrap-server localhost:9092 --create --topic orders

A line with `==` begins a command: its words, then the module that runs it. After a colon, the line
may name a function of the module; without one, the function is `run`. The lines below it are:

    text               what the command does
    --flag VALUE       a flag; its help follows after two spaces
    TOPIC              a positional argument; `TOPIC +` takes one or more values, `TOPIC ?` at most
                       one, `TOPIC *` any number
    $ example          a command line that a test runs
    cluster            the command connects to brokers
    prints             the command has `--output`
    changes            the command has `--dry-run`
    destroys           the command has `--dry-run`, and asks for confirmation
    unconnected        common flags that take a value are removed from the command; those without
                       a value, such as --help, remain
    actions A B …      the command needs exactly one of these flags

Flags above the first command are common to all commands of the file. The words from `cluster` to
`unconnected` are called marks. A line that begins with two spaces continues the line above it.

The table defines `ottla`'s commands, Kafka's tools, the shell completion and `docs/commands.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
MARKS = {"cluster", "prints", "changes", "destroys", "unconnected"}


@dataclass
class Flag:
    """One flag, whose names begin with dashes, or one positional argument, with a single name."""

    names: list[str]
    metavar: str = ""
    """The name of the flag's value; empty for a switch."""
    help: str = ""
    many: str = ""
    """How many values there may be: `*` any number (a flag is repeated for each), `+` at least one,
    `?` at most one, "" exactly one."""
    optional: bool = False
    """Whether the value is optional."""
    choices: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The long name without its dashes."""
        return self.names[0].lstrip("-")

    @property
    def positional(self) -> bool:
        return not self.names[0].startswith("-")


@dataclass
class Command:
    """One command as described in the table."""

    words: str
    target: str
    about: str = ""
    flags: list[Flag] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    examples: list[str] = field(default_factory=list)

    def flag(self, name: str) -> Flag | None:
        """The flag of this long or short name, given without dashes."""
        for flag in self.flags:
            if any(known.lstrip("-") == name for known in flag.names):
                return flag
        return None


def read(name: str) -> dict[str, Command]:
    """The commands of one file of the table, by their words, in the order of the file."""
    commands: dict[str, Command] = {}
    current: Command | None = None
    shared: list[str] = []
    for line in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            words, _, target = line[3:].rpartition("  ")
            current = commands[words.strip()] = Command(words.strip(), target.strip())
            for common in shared if words.strip() != "" else []:
                current.flags.append(parse_flag(common))
        elif line.startswith("#") or not line.strip():
            continue
        elif current is None:
            shared.append(line)  # flags before the first command belong to all commands
        else:
            add_line(current, line)
    return commands


def add_line(command: Command, line: str) -> None:
    """Reads one line of a command's section."""
    first = line.split()[0]
    if line.startswith("  "):
        command.flags[-1].help += " " + line.strip()
    elif MARKS.issuperset(line.split()):
        command.marks.update(line.split())
        if "unconnected" in line:
            command.flags = [flag for flag in command.flags if not flag.metavar]
    elif first == "actions":
        command.actions = line.split()[1:]
    elif first == "$":
        command.examples.append(line[2:].strip())
    elif first.startswith("-") or (first.isupper() and len(first) > 1):
        command.flags.append(parse_flag(line))
    else:
        command.about = (command.about + " " + line.strip()).strip()


def parse_flag(line: str) -> Flag:
    """Parses the line of a flag: its names, then the name or the choices of its value, then `*`,
    `+` or `?`. The help follows after two spaces."""
    spec, _, explained = line.strip().partition("  ")
    flag = Flag([], help=explained.strip())
    for word in spec.split():
        if word.startswith("-"):
            flag.names.append(word)
        elif word in ("*", "+", "?"):
            flag.many = word
        elif word.startswith("["):
            flag.metavar, flag.optional = word.strip("[]"), True
        elif word.startswith("{"):
            flag.choices = word.strip("{}").split(",")
            flag.metavar = "{" + ",".join(flag.choices) + "}"
        elif flag.names:
            flag.metavar = word
        else:
            flag.names.append(word)
    return flag
