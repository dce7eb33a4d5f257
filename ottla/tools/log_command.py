"""`ottla log ACTION …`: the flags of each action. The module of an action is imported only if
the command line names the action."""

from __future__ import annotations

import sys
from argparse import Namespace
from importlib import import_module

from ottla.client.command_line import Parser
from ottla.client.interrupts import interruptible

ACTIONS = {
    "verify": ("ottla.tools.verify", "check whether log directories are sound"),
    "import": ("ottla.tools.import_logs", "adopt log directories that Apache Kafka wrote"),
    "dump": ("ottla.tools.dump", "print segments, indexes, snapshots and checkpoints"),
}


def main(arguments: list[str], *, as_kafka: bool = False) -> int:
    """Run one action; `arguments` begin with "log". Returns the exit status; with `as_kafka`, the
    status that Kafka's tool would have."""
    if len(arguments) == 1:
        print("usage: ottla log COMMAND …")
        for name, (_, what) in ACTIONS.items():
            print(f"  {f'log {name}':<22} {what[0].upper()}{what[1:]}.")
        return 2
    root = Parser(prog="ottla log", description="Log directories, offline.")
    actions = root.add_subparsers(dest="action", metavar="ACTION", required=True)
    given = arguments[1] if len(arguments) > 1 else ""
    for name, (module, what) in ACTIONS.items():
        action = actions.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
        if name == given:
            import_module(module).add_arguments(action)
    options = root.parse_args(arguments[1:], Namespace(as_kafka=as_kafka))
    with interruptible():
        status: int = import_module(ACTIONS[options.action][0]).run(options)
        sys.stdout.flush()
    return status
