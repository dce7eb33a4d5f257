"""What to type once the broker or the cluster serves, for `ottla server start --first-steps`, `make
run` and `ottla cluster start`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from shlex import quote

from ottla.wire.environment import in_environment

USUAL = "localhost:9092"


def first_steps(address: str) -> str:
    """The commands of a first session in another terminal."""
    lines = []
    if shutil.which("ottla", path=path_of_another_terminal()) is None:
        lines.append((f". {in_environment('activate')}", "puts ottla on the PATH"))
    if address != USUAL:
        lines.append((f"export OTTLA_BOOTSTRAP_SERVERS={address}", ""))
    lines += [
        ("ottla topic create greetings --if-not-exists", ""),
        ("echo hello | ottla produce greetings", ""),
        ("ottla consume greetings --exit", "all records; without --exit it waits for more"),
    ]
    width = max(len(command) for command, _ in lines)
    shown = [f"    {command:<{width}}  {'# ' * bool(why)}{why}".rstrip() for command, why in lines]
    return "\n".join(
        ["", "Next, in a second terminal in the same directory:", "", *shown, "",
         "Ctrl-C here stops the broker; it keeps the records. More: docs/quick_start.md"]
    )


def program() -> str:
    """How a user calls `ottla` in another terminal in the same directory."""
    if shutil.which("ottla", path=path_of_another_terminal()) is not None:
        return "ottla"
    return quote(str(in_environment("ottla")))


def path_of_another_terminal() -> str:
    """The PATH without the `bin` directory of the active virtual environment."""
    found = os.environ.get("PATH", os.defpath).split(os.pathsep)
    activated = os.environ.get("VIRTUAL_ENV")
    own = Path(activated) / "bin" if activated else None
    return os.pathsep.join(place for place in found if Path(place) != own)
