"""The command line `ottla COMMAND …`: each command is a module, which is imported when the command
is used.

`ottla server start` must not load the other commands, so this module imports only what all of them
need. A module named in COMMANDS has `main(arguments)`, which gets the whole command line and
returns the exit status. `cli/grammar.py` runs the commands of the table (`commands/ottla.txt`).
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

TABLE = "ottla.tools.cli.grammar"
COMMANDS = {
    "server": (TABLE, "run, stop or show a broker; run a temporary broker for development"),
    "topic": (TABLE, "create, list, describe, browse, grow, trim and delete topics"),
    "produce": (TABLE, "send records"),
    "consume": (TABLE, "print records"),
    "group": (TABLE, "list, describe, reset and delete consumer groups"),
    "config": (TABLE, "show and change settings"),
    "cluster": (TABLE, "run a local cluster; check a cluster; show brokers, log directories, APIs"),
    "reassign": (TABLE, "move partitions between brokers"),
    "elect": (TABLE, "elect leaders"),
    "feature": (TABLE, "show and change levels of features"),
    "transaction": (TABLE, "show transactions, end them"),
    "quota": (TABLE, "show and change quotas"),
    "acl": (TABLE, "show and change ACLs"),
    "user": (TABLE, "show and change SCRAM credentials"),
    "mirror": (TABLE, "copy topics and groups from one cluster to another"),
    "perf": (TABLE, "measure producing and consuming"),
    "kcat": ("ottla.tools.kcat.main", "kcat's one-letter options"),
    "log": ("ottla.tools.log_command", "print, check and adopt log directories"),
    "console": (TABLE, "web pages about a cluster"),
    "completion": (TABLE, "print a script that lets a shell complete commands"),
    "install-kafka-scripts": (TABLE, "write scripts with the names of Apache Kafka's tools"),
    "pipeline": ("ottla.spark_interop.pipelines.command", "archive, replay, mirror … with Spark"),
}
USAGE = "usage: ottla [--version] COMMAND …"


def main(arguments: list[str] | None = None) -> int:
    """Runs one command. Returns the exit status, or 1 if the reader of its output has exited."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            return run(given)
        finally:
            if sys.stdout is not None:      # also after --help, where argparse exits
                sys.stdout.flush()
    except BrokenPipeError:
        from ottla.tools.standard_output import discard_output

        discard_output()
        return 1
    except OSError as failed:               # such as output to a full disk
        if given[:2] == ["server", "start"]:
            raise
        from ottla.client.errors import reason_of
        from ottla.tools.standard_output import discard_output

        print(f"ottla: {reason_of(failed)}", file=sys.stderr)
        discard_output()
        return 1
    except KeyboardInterrupt as ended:      # also while a command is imported
        from ottla.client.interrupts import status_of

        return status_of(ended)


def run(given: list[str]) -> int:
    """Find the command and run it."""
    command = given[0] if given else ""
    if given[:2] == ["server", "start"]:
        # Block SIGHUP first, as it may arrive at any time. service.py unblocks it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        words, typed = with_numbers(given)
        return int(import_module("ottla.broker.main").main(words, typed))
    if sys.stdin is None:                       # closed, as by `<&-`: for commands, it is empty
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if given[:2] != ["topic", "browse"]:        # browse escapes text itself
        from ottla.tools.printable import guard_terminal

        guard_terminal()
    if command in COMMANDS:
        status: int = import_module(COMMANDS[command][0]).main(given)
        return status
    if command.startswith("kafka-"):
        from ottla.tools.kafka_names.main import main as run_tool

        return run_tool(command.removesuffix(".sh"), given[1:])
    if command == "--version":
        from ottla import __version__

        print(__version__)
        return 0
    if command not in ("", "-h", "--help"):
        from ottla.client.similar_names import similar

        near = similar(command, COMMANDS)
        print(f"ottla: {command!r} is not a command{near}; see ottla --help", file=sys.stderr)
        return 2
    print(USAGE)
    for name, (_, what) in COMMANDS.items():
        print(f"  {name:<21} {what}")
    print(
        "`ottla COMMAND --help` explains a command. Kafka's own tool names work too: ottla"
        " kafka-topics …"
    )
    return 0 if command else 2


def with_numbers(given: list[str]) -> tuple[list[str], dict[str, str]]:
    """In the overrides of `server start`, replaces values that have units by plain numbers.
    Returns the words of the command line, and the overrides as they were typed."""
    if not any(word.startswith("--override") for word in given):
        return given, {}
    from ottla.tools.cli.units import overrides_without_units
    from ottla.tools.usage import WrongUsage

    try:
        return overrides_without_units(given)
    except WrongUsage as wrong:
        print(f"ottla server start: --override {wrong}; see ottla server start --help",
              file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    sys.exit(main())
