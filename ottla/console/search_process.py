"""Searches in processes of their own, with the lowest priority.

A thread of the console would compete with the console's pages for the interpreter, and with clients
on the broker's machine for the processor. A process gets its tasks pickled on standard input. To
standard output, it writes how far it has read, and the results. Each of these messages is pickled
and has its length in front. The process ends if the console has ended. It imports the code of a
search only after it has lowered its priority. The start of a process disturbs other clients. So a
process stays for some time after its search, and takes the next search.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError

if TYPE_CHECKING:
    from ottla.console.search import Tell, Wanted

STOP_SECONDS = 0.2
"""A search ends within this time after its `stop` is set."""
NICENESS = 19
IDLE_SECONDS = 60.0
"""A process without a search ends after this time."""
IDLE_MAX = 2
"""At most this many processes wait for a search."""
LENGTH = 8
"""Bytes of the length before a message."""
Process = subprocess.Popen[bytes]


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
    """The directory or registry from which the process loads the schemas: `wanted.schemas` is not
    sent to it."""


class SearchProcesses:
    """The processes of one console. Safe for use by threads."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self.idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._idle: list[tuple[Process, threading.Timer]] = []
        self._closed = False

    def run(
        self, task: Task, stop: threading.Event, tell: Tell = lambda _: None
    ) -> dict[str, Any]:
        """The result of a search; its process is killed once `stop` is set. Raises ClientError."""
        process = self._taken()
        try:
            failed, result = answer(process, task, stop, tell)
        except BaseException:
            process.kill()
            finish(process)
            raise
        self._keep(process)
        if failed:
            raise ClientError(failed)
        return result

    def _taken(self) -> Process:
        """A process without a task: the waiting process that was used last, or a new one."""
        with self._lock:
            while self._idle:
                process, timer = self._idle.pop()
                timer.cancel()
                if process.poll() is None:
                    return process
                finish(process)             # somebody has killed it
        return subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,         # Ctrl-C reaches only the console
        )

    def _keep(self, process: Process) -> None:
        """Lets the process wait for a task; ends it after `close`, or if IDLE_MAX others wait."""
        with self._lock:
            if keep := not self._closed and len(self._idle) < IDLE_MAX:
                timer = threading.Timer(self.idle_seconds, self._expire, [process])
                timer.daemon = True
                timer.start()
                self._idle.append((process, timer))
        if not keep:
            finish(process)

    def _expire(self, process: Process) -> None:
        """Ends the process, if it still waits."""
        with self._lock:
            waits = [one for one in self._idle if one[0] is process]
            self._idle = [one for one in self._idle if one[0] is not process]
        if waits:
            finish(process)

    def close(self) -> None:
        """Ends the processes that wait. A process that still searches ends after its search."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for process, timer in idle:
            timer.cancel()
            finish(process)


def answer(
    process: Process, task: Task, stop: threading.Event, tell: Tell
) -> tuple[str, dict[str, Any]]:
    """The process's answer to the task: why the task failed, or the result. Once `stop` is set,
    kills the process. Raises ClientError if the process has ended."""
    schemas = task.wanted.schemas
    source = schemas.source if schemas is not None else None
    alone = replace(task, wanted=replace(task.wanted, schemas=None), schemas=source)
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(pickle.dumps(alone))
        process.stdin.flush()
        for said in messages(process, stop):
            if isinstance(said, tuple):
                failed, result = said
                return failed, dict(result)
            tell(said)
    except BrokenPipeError:
        pass
    raise ClientError(f"the search failed: its process ended with exit status {process.wait()}")


def messages(process: Process, stop: threading.Event) -> Iterator[Any]:
    """What the process says, until it ends; it is killed once `stop` is set."""
    assert process.stdout is not None
    said, data = select.poll(), bytearray()
    said.register(process.stdout)
    while True:
        while not said.poll(STOP_SECONDS * 1000):
            if stop.is_set():
                process.kill()
        if not (news := os.read(process.stdout.fileno(), 1 << 20)):
            return
        data += news
        while (end := LENGTH + int.from_bytes(data[:LENGTH])) <= len(data):
            yield pickle.loads(data[LENGTH:end])
            del data[:end]


def say(said: Any) -> None:
    """Writes a message to the console."""
    data = pickle.dumps(said)
    sys.stdout.buffer.write(len(data).to_bytes(LENGTH) + data)
    sys.stdout.flush()


def finish(process: Process) -> None:
    """Ends a process without a task, and waits until it has ended."""
    with contextlib.suppress(BrokenPipeError), process:
        pass                        # its standard input ends, and so does the process


class ConsoleEnded(threading.Event):
    """Whether the process that started this one has ended."""

    def __init__(self, console: int) -> None:
        super().__init__()
        self.console = console

    def is_set(self) -> bool:
        return os.getppid() != self.console


def perform(
    task: Task, stop: threading.Event, tell: Tell = lambda _: None
) -> dict[str, Any]:
    """Search in this process until `stop`. Raises ClientError."""
    from ottla.console.search import Reader, search

    reader = Reader(task.properties, task.bootstrap, task.wanted.committed)
    try:
        return search(task.wanted, task.bounds, task.begins, reader, stop, tell)
    finally:
        reader.close()


def give_way() -> None:
    """Lets every other process have the processor first. With Linux's autogroups, the niceness of a
    process counts only within its session, so the session gets a niceness too. A process that
    wakes up may still wait a moment until a search yields the processor. Therefore all searches of
    a machine share one processor, and the other processors stay free."""
    os.nice(NICENESS)
    with contextlib.suppress(OSError):          # only Linux has this file
        Path("/proc/self/autogroup").write_text(str(NICENESS))
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def attempt(task: Task, ended: ConsoleEnded) -> tuple[str, dict[str, Any]]:
    """Why the task failed, or its result."""
    try:
        if task.schemas is not None:
            from ottla.console.schemas import Schemas

            task = replace(task, wanted=replace(task.wanted, schemas=Schemas(task.schemas)))
        return "", perform(task, ended, say)
    except ClientError as failed:
        return str(failed), {}


def main() -> int:
    """Runs the tasks from standard input until the input ends; returns the exit status."""
    give_way()
    with contextlib.suppress(EOFError):
        while True:
            task: Task = pickle.load(sys.stdin.buffer)
            ended = ConsoleEnded(task.console)
            result = attempt(task, ended)
            if ended.is_set():
                return 1
            say(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
