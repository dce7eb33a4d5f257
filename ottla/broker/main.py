"""The command line: `ottla server start [server.properties] [--override key=value]…`."""

from __future__ import annotations

import argparse
import gc
import logging
import sys


def parser() -> argparse.ArgumentParser:
    """The commands and their flags; what a command needs is imported when it runs."""
    root = argparse.ArgumentParser(
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
        "--log-level", default="info", choices=["debug", "info", "warning", "error"]
    )
    return root


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    root = parser()
    chosen = root.parse_args(arguments)
    if chosen.version:
        from ottla import __version__

        print(__version__)
        return 0
    if chosen.command != "server":
        root.print_help()
        return 2
    logging.basicConfig(
        level=chosen.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    gc.disable()                # nothing that a start makes is garbage; server.py enables it
    from ottla.broker.server import run

    return run(chosen.properties, chosen.override)


if __name__ == "__main__":
    sys.exit(main())
