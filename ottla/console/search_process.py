"""A search in a process of its own, with the lowest priority.

A thread of the console would compete with the console's pages for the interpreter, and with clients
on the broker's machine for the processor. The process gets its task pickled on standard input, and
writes its result pickled on standard output. It ends if the console has ended. It imports the code
of a search only after it has lowered its priority.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.console.search import Wanted

STOP_SECONDS = 0.2
"""A search ends this soon after its browser has closed the connection."""
NICENESS = 19


@dataclass(frozen=True)
class Task:
    """A search, with everything that its process needs."""

    wanted: Wanted
    bounds: dict[int, tuple[int, int]]
    begins: dict[int, int]
    bootstrap: str
    properties: dict[str, str]
    console: int = field(default_factory=os.getpid)
    """The process id of the console."""
    schemas: str | None = None
    """The directory or registry of the schemas; the process gets `wanted` without them."""


def run(task: Task, stop: threading.Event) -> dict[str, Any]:
    """The result of a search in its own process, which is killed after `stop`. Raises
    ClientError."""
    schemas = task.wanted.schemas
    source = schemas.source if schemas is not None else None
    alone = replace(task, wanted=replace(task.wanted, schemas=None), schemas=source)
    with subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,         # Ctrl-C reaches only the console
    ) as process:
        sent: bytes | None = pickle.dumps(alone)
        while True:
            try:
                written, _ = process.communicate(sent, STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                sent = None
                if stop.is_set():
                    process.kill()
    if process.returncode:
        raise ClientError(f"the search ended with status {process.returncode}")
    failed, result = pickle.loads(written)
    if failed:
        raise ClientError(failed)
    return dict(result)


class ConsoleEnded(threading.Event):
    """Whether the process that started this one has ended."""

    def __init__(self, console: int) -> None:
        super().__init__()
        self.console = console

    def is_set(self) -> bool:
        return os.getppid() != self.console


def perform(task: Task, stop: threading.Event) -> dict[str, Any]:
    """Search in this process until `stop`. Raises ClientError."""
    from ottla.console.search import Reader, search

    reader = Reader(task.properties, task.bootstrap, task.wanted.committed)
    try:
        return search(task.wanted, task.bounds, task.begins, reader, stop)
    finally:
        reader.close()


def give_way() -> None:
    """Let every other process have the processor first. Linux weighs sessions (autogroups) before
    it looks at the niceness of their processes."""
    os.nice(NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS))


def main() -> int:
    """Runs the task from standard input; returns the exit status."""
    give_way()
    task: Task = pickle.load(sys.stdin.buffer)
    ended = ConsoleEnded(task.console)
    result: tuple[str, dict[str, Any]]
    try:
        if task.schemas is not None:
            from ottla.console.schemas import Schemas

            task = replace(task, wanted=replace(task.wanted, schemas=Schemas(task.schemas)))
        result = "", perform(task, ended)
    except ClientError as failed:
        result = str(failed), {}
    if ended.is_set():
        return 1
    sys.stdout.buffer.write(pickle.dumps(result))
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
