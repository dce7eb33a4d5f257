"""The command line `ottla COMMAND …`: each command is a module, imported when it is asked for.

`ottla server start` must not pay for the others, so nothing is imported here but what it needs.
"""

from __future__ import annotations

import sys
from importlib import import_module

COMMANDS = {
    "server": ("ottla.broker.main", "run a broker"),
    "log": ("ottla.tools.log_command", "print, check and adopt log directories"),
}
USAGE = "usage: ottla [--version] COMMAND …"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    command = given[0] if given else ""
    if command in COMMANDS:
        status: int = import_module(COMMANDS[command][0]).main(given)
        return status
    if command == "--version":
        from ottla import __version__

        print(__version__)
        return 0
    print(USAGE)
    for name, (_, what) in COMMANDS.items():
        print(f"  {name:<8} {what}; see `ottla {name} --help`")
    if command in ("", "-h", "--help"):
        return 0 if command else 2
    print(f"ottla: {command!r} is no command", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
