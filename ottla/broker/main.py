"""The command line: `ottla server start [server.properties] [--override key=value]…`."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from ottla.broker.core_dumps import forbid_core_dumps
from ottla.broker.log_output import start_logging
from ottla.broker.settings.environment import log_level
from ottla.broker.settings.level_names import LEVELS, level_of
from ottla.broker.settings.sources import Sources
from ottla.client.command_line import Parser

NOTHING: Mapping[str, str] = MappingProxyType({})


def parser() -> argparse.ArgumentParser:
    """The commands and their flags; the modules of a command are imported when it runs."""
    root = Parser(
        prog="ottla", description="A broker that speaks Kafka's protocol."
    )
    root.add_argument("--version", action="store_true", help="print the version and exit")
    commands = root.add_subparsers(dest="command", metavar="COMMAND")
    server = commands.add_parser("server", help="run a broker")
    actions = server.add_subparsers(dest="action", metavar="ACTION", required=True)
    start = actions.add_parser("start", help="serve until SIGTERM or SIGINT")
    start.add_argument("properties", nargs="?", help="a server.properties file with Kafka's names")
    start.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property that wins over the file; may be repeated",
    )
    start.add_argument(
        "--env", action="store_true",
        help="take KAFKA_… variables too, mapped as in Apache's and Confluent's images",
    )
    start.add_argument(
        "--log-level", type=level_of, choices=LEVELS,
        help="info, unless --env and KAFKA_LOG4J_ROOT_LOGLEVEL say otherwise",
    )
    start.add_argument("--log-format", default="text", choices=["text", "json"])
    start.add_argument(
        "--first-steps", action="store_true", help="once the broker serves, print what to type next"
    )
    return root


def hold_standard_descriptors() -> None:
    """Open /dev/null as each of the descriptors 0, 1 and 2 that is closed.

    Otherwise a segment or a connection would get that descriptor, and log lines would be written
    into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)    # the lowest free number


def main(arguments: list[str] | None = None, typed: Mapping[str, str] = NOTHING) -> int:
    """Run one command; returns the exit status. `typed` has the overrides as they were typed, for
    error messages."""
    root = parser()
    chosen = root.parse_args(arguments)
    if chosen.version:
        from ottla import __version__

        print(__version__)
        return 0
    if chosen.command != "server":
        root.print_help()
        return 2
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    hold_standard_descriptors()
    environment = os.environ if chosen.env else None
    level = chosen.log_level or (log_level(environment) if environment else None) or "info"
    start_logging(level, chosen.log_format)
    if "OTTLA_CORE_DUMPS" not in os.environ:
        forbid_core_dumps()
    gc.disable()                # a start creates no garbage; service.py enables collection again
    from ottla.broker.service import run

    path = Path(chosen.properties) if chosen.properties else None
    sources = Sources(path, chosen.override, environment, typed)
    if not chosen.first_steps:
        return run(sources)
    from ottla.broker.first_steps import first_steps

    return run(sources, first_steps)


if __name__ == "__main__":
    sys.exit(main())
