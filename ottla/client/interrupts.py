"""SIGINT and SIGTERM while a command runs: both end it cleanly, and decide its exit status."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A signal has ended the command."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number


def status_of(ended: KeyboardInterrupt) -> int:
    """The exit status after a signal: 130 for SIGINT, 143 for SIGTERM."""
    return ended.status if isinstance(ended, Interrupted) else 130


class Interrupts:
    """Records the first signal, so that work can end between two of its steps. A second signal
    raises Interrupted at once."""

    def __init__(self) -> None:
        self.number = 0

    def check(self) -> None:
        """Raises Interrupted if a signal has arrived."""
        if self.number:
            raise Interrupted(self.number)

    def note(self, number: int, _: FrameType | None) -> None:
        """Handles a signal: records the first, raises Interrupted for the second."""
        self.check()
        self.number = number


def interrupt(number: int, _: FrameType | None) -> None:
    """A handler that raises Interrupted at once."""
    raise Interrupted(number)


@contextlib.contextmanager
def handled(handler: object) -> Iterator[None]:
    """Installs a handler for both signals and restores the former handlers at the end. Outside the
    main thread, does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, handler) for number in ENDING}  # type: ignore[arg-type]
    try:
        yield
    finally:
        for number, one in former.items():
            signal.signal(number, one)


def interruptible() -> contextlib.AbstractContextManager[None]:
    """Runs a command. A signal raises Interrupted, so that files and connections are closed."""
    return handled(interrupt)


@contextlib.contextmanager
def noted() -> Iterator[Interrupts]:
    """Runs work that itself checks whether a signal has arrived."""
    found = Interrupts()
    with handled(found.note):
        yield found
