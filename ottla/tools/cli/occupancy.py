"""Reports a port that another process already uses.

`make run` runs this module as a program. Its arguments are the Makefile's variables for ports,
because the user has to change these variables.
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
    """Prints which of the variables NAME=PORT to change. All other errors are reported by the
    broker itself, also if another broker already uses its directory."""
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
