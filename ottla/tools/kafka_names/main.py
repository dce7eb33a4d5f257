"""Runs Kafka's tools under their own names: finds the tool, reads its flags, calls its module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module

from ottla.client.interrupts import interruptible, status_of
from ottla.client.similar_names import similar
from ottla.tools.commands import table
from ottla.tools.kafka_names.grammar import UsageError, parse
from ottla.tools.printable import printable
from ottla.tools.standard_output import discard_output

KAFKA_VERSION = "4.4.0"
"""The version of Apache Kafka whose tools Ottla's tools imitate."""

NOT_YET = {
    "kafka-share-groups": "share groups are not served by Ottla yet",
    "kafka-console-share-consumer": "share groups are not served by Ottla yet",
    "kafka-share-consumer-perf-test": "share groups are not served by Ottla yet",
    "kafka-verifiable-share-consumer": "share groups are not served by Ottla yet",
    "kafka-streams-groups": "streams groups are not served by Ottla yet",
    "kafka-jmx": "Ottla does not run in a JVM, so it has no JMX",
    "kafka-metadata-shell":
        "to print Ottla's metadata log, use ottla log dump --print-data-log FILE",
    "kafka-replica-verification": "to check stored logs, use ottla log verify DIRECTORY",
}


ENDS_WITH_0 = {
    "kafka-console-consumer": {"unreachable", "refused"},
    "kafka-console-producer": {"unreachable"},
    "kafka-consumer-perf-test": {"unreachable", "unknown"},
    "kafka-delete-records": {"unreachable"},
    "kafka-verifiable-consumer": {"refused"},
    "kafka-verifiable-producer": {"unreachable"},
}
"""Failures after which Apache Kafka's tools exit with 0. Ottla's tools do so too, after a line on
stderr (compat_tests/test_tool_troubles.py). `kind_of` says what each word means."""
HELP_ENDS_WITH_0 = {"kafka-features", "kafka-metadata-quorum", "kafka-storage"}
NO_ARGUMENTS_END_WITH_0 = {
    "kafka-producer-perf-test", "kafka-verifiable-consumer", "kafka-verifiable-producer",
}


class Failed(Exception):
    """A tool could not do what was requested.

    `shown` is what Apache Kafka's tool prints to stdout in this case, if anything. The exception's
    own text is one line for stderr: `message`, followed by `near`. Without `near`, the `known`
    names that resemble the name in `mistyped` follow instead.
    """

    def __init__(
        self, message: str, shown: str = "", status: int = 1, *,
        mistyped: str = "", known: Iterable[str] = (), near: str = "",
    ) -> None:
        self.near = near or (similar(mistyped, known) if mistyped else "")
        super().__init__(followed_by(message, self.near))
        self.shown, self.status = shown, status


def followed_by(sentence: str, near: str) -> str:
    """Kafka's message, followed by the similar names in `near`, if there are any."""
    return sentence.rstrip(".") + near if near else sentence


def main(name: str, arguments: list[str] | None = None) -> int:
    """Run the tool of this name, without `.sh`; returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if name in NOT_YET:
        complain(name, NOT_YET[name])
        return 1
    tools = table.read("kafka")
    command = tools.get(name)
    if command is None:
        complain(name, f"no such tool{similar(name, tools)}")
        return 1
    if "--version" in given and command.flag("version"):
        print(KAFKA_VERSION)
        return 0
    needs_none = name == "kafka-server-stop"        # no other tool runs without arguments
    if "--help" in given or given == ["-h"] or not (given or needs_none):
        return show_help(name, command, asked=bool(given))
    return guarded(name, command, given)


def guarded(name: str, command: table.Command, given: list[str]) -> int:
    """Runs a tool; any error becomes one line on stderr and an exit status."""
    from ottla.client.errors import ClientError, reason_of
    from ottla.wire.errors import NumberOutOfRange

    try:
        with interruptible():
            options = parse(command, given)
            for word in options.ignored:
                complain(name, f"'{word}' is ignored, since it is not a number")
            status: int = import_module(command.target).run(options)
            return status if flushed() else 0
    except Failed as failed:
        if failed.shown:
            print(failed.shown)
            if not flushed():
                return 0
        if failed.near or not (failed.shown and same_file()):
            complain(name, reason_of(failed))
        return failed.status
    except UsageError as wrong:         # an error in the flags of a tool
        complain(name, with_hint(str(wrong), name))
        return 1
    except (ClientError, OSError) as failed:
        if not flushed() or isinstance(failed, BrokenPipeError):
            return 0
        complain(name, reason_of(failed))
        return int(kind_of(failed) not in ENDS_WITH_0.get(name, ()))
    except NumberOutOfRange as wrong:
        complain(name, with_hint(wrong.sentence, name))
        return 1
    except ModuleNotFoundError as missing:
        from ottla.tools.cli.grammar import not_installed

        complain(name, not_installed(missing))
        return 1
    except KeyboardInterrupt as ended:
        return status_of(ended)
    except Exception as bug:
        from ottla.tools.cli.grammar import DEBUG, unexpected

        if os.environ.get(DEBUG):
            raise
        complain(name, unexpected(bug))
        return 1


def with_hint(sentence: str, name: str) -> str:
    """A message about the flags of a tool, with a pointer to the tool's help."""
    return f"{sentence}{' See' if sentence.endswith('.') else '; see'} {name} --help"


def flushed() -> bool:
    """Writes the buffered output. Returns False if its reader has closed the pipe. Java's tools
    ignore a closed pipe, so the caller returns 0."""
    if sys.stdout is None:              # was closed when the tool started
        return True
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        return False
    return True


def kind_of(failed: Exception) -> str:
    """The word by which ENDS_WITH_0 names a failure; "" if ENDS_WITH_0 has no word for it."""
    from ottla.client.errors import Refused, Unreachable
    from ottla.wire.errors import ErrorCode

    if isinstance(failed, Unreachable):
        return "unreachable"
    if isinstance(failed, Refused) and failed.number == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return "unknown"
    login = isinstance(failed, Refused) and failed.number == ErrorCode.SASL_AUTHENTICATION_FAILED
    return "refused" if isinstance(failed, Refused) and not login else ""


def same_file() -> bool:
    """Whether stdout and stderr are the same file, usually a terminal. Then an error is printed
    only once."""
    try:
        out, err = os.fstat(sys.stdout.fileno()), os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)


def complain(name: str, message: str) -> None:
    """Prints one line on stderr."""
    print(f"{name}: {printable(' '.join(message.split()))}", file=sys.stderr)


def show_help(name: str, command: table.Command, *, asked: bool) -> int:
    """Prints the flags of a tool. Most of Kafka's tools exit with 1 after their help."""
    arguments = [flag.names[0] for flag in command.flags if flag.positional]
    lines = [
        command.about,
        "",
        " ".join([f"usage: {name}", *arguments, "[flags]"]),
        "",
    ]
    for flag in command.flags:
        value = f" [{flag.metavar}]" if flag.optional else f" {flag.metavar}" * bool(flag.metavar)
        lines.append(f"  {', '.join(flag.names)}{value}")
        lines.append(f"        {flag.help}")
    lines += ["", "example:", *(f"  {example}" for example in command.examples)]
    print("\n".join(lines), file=sys.stdout if asked else sys.stderr)
    return int(name not in (HELP_ENDS_WITH_0 if asked else NO_ARGUMENTS_END_WITH_0))
