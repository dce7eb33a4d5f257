"""Reports a port that another process already uses.

Before `make run` starts a broker, it runs this module as a program:

    python -m ottla.tools.cli.occupancy PORT=9092 HTTP_PORT=9308 CONSOLE_PORT=9309

The names are variables of the Makefile. So the message about a used port can suggest a command that
works, such as `make run PORT=9192`.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path

from ottla.broker.listening_sockets import listen
from ottla.broker.lock_holder import holder_of

PORT_MAX = 65535
STEP = 100
"""The distance from a used port to the suggested one."""


def is_taken(host: str, port: int) -> bool:
    """Whether another process listens on a port."""
    try:
        for sock in listen("", host, port, 1, -1):
            sock.close()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    except OverflowError:               # no port has that number
        return False
    return False


def main(given: list[str]) -> int:
    """If another program listens on some of the ports, prints free ports for these variables, and
    returns 1. Reports nothing if a broker already uses the directory `data`: the new broker itself
    reports this and all other errors."""
    if holder_of(Path("data")):
        return 0
    ports = {name: int(port) for name, _, port in (each.partition("=") for each in given)
             if port.isdecimal() and int(port) <= PORT_MAX}  # fmt: skip
    taken = {name: port for name, port in ports.items() if is_taken("localhost", port)}
    if not taken:
        return 0
    others = {name: next((each for each in range(port + STEP, PORT_MAX, STEP)
                          if not is_taken("localhost", each)), 0)
              for name, port in taken.items()}  # fmt: skip
    print(f"make: another program listens on {_listed(taken, ', ')}; take other ports:"
          f" make run {_listed(others, ' ')}", file=sys.stderr)  # fmt: skip
    return 1


def _listed(ports: dict[str, int], between: str) -> str:
    return between.join(f"{name}={port}" for name, port in ports.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
