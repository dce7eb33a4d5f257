"""Keeps the processes of `ottla cluster start` running: reports and restarts processes that end,
and reports those that do not answer.

A process that was stopped cleanly is restarted at once, so `ottla cluster restart-broker` only has
to stop a broker. A process that has crashed is restarted after a second. This delay doubles with
each further crash within a minute of a restart. `ottla cluster stop-broker` creates a file beside
the broker's directory, and the broker is restarted once this file is removed.
"""

from __future__ import annotations

import math
import os
import selectors
import shlex
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ottla.broker.lock_holder import holder_of
from ottla.broker.log_output import moment
from ottla.client.errors import ClientError
from ottla.tools.cli.output import done
from ottla.tools.cli.server import READY, STOP_SECONDS, end
from ottla.tools.cli.silence import Silence

DIRECTORY = "data-cluster"
"""The directory of `make cluster`."""
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
STEADY_SECONDS = 60.0
"""If a process ran for this long before it crashed, the delay begins with FIRST_SECONDS again."""
POLL_SECONDS = 0.05
HELD_SECONDS = 0.5
"""The interval between two checks whether the file of a stopped broker still exists."""


class Kept(Protocol):
    """A process that is kept running."""

    log: Path
    process: subprocess.Popen[bytes] | None

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def question(self) -> tuple[tuple[str, int], bytes] | None:
        """An address of the process, and a request that it answers; None if it gets no requests."""

    @property
    def held(self) -> bool:
        """Whether the process must stay stopped."""

    @property
    def restart(self) -> str:
        """The command that starts the held process again."""

    def start(self) -> None:
        """Start the process."""


class Restarts:
    """Determines when a process is restarted."""

    def __init__(self) -> None:
        self.began = 0.0
        self.delay = FIRST_SECONDS
        self.due: float | None = None

    def started(self, now: float) -> None:
        """The process has just been started."""
        self.began, self.due = now, None

    def ended(self, now: float, status: int) -> float:
        """The process has ended. Returns the seconds until its restart."""
        if now - self.began >= STEADY_SECONDS:
            self.delay = FIRST_SECONDS
        wait = 0.0 if status == 0 else self.delay
        if status:
            self.delay = min(2 * self.delay, LONGEST_SECONDS)
        self.due = now + wait
        return wait


class Upkeep:
    """Watches processes, restarts those that end, and reports those that do not answer."""

    def __init__(
        self, kept: list[Kept], say: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self.say, self.clock = say, clock
        self.restarts = {one.name: (one, Restarts()) for one in kept}
        self.held: list[Kept] = []
        self.selector = selectors.DefaultSelector()
        self.silences = {one.name: Silence(one, self.selector, say) for one in kept}
        for one in kept:
            self._watch(one)

    def _watch(self, one: Kept) -> None:
        assert one.process is not None
        self.restarts[one.name][1].started(self.clock())
        self.silences[one.name].started(self.clock())
        self.selector.register(os.pidfd_open(one.process.pid), selectors.EVENT_READ, one)

    def run(self) -> None:
        """Run until an exception, such as Ctrl-C."""
        try:
            while True:
                self.turn()
        finally:
            for each in self.silences.values():
                each.ended()
            for key in list(self.selector.get_map().values()):
                os.close(key.fd)
            self.selector.close()

    def turn(self) -> None:
        """Wait for an event, and handle it: an end, an answer, a due restart or a due question."""
        dues = [each.due for _, each in self.restarts.values() if each.due is not None]
        if self.held:
            dues.append(self.clock() + HELD_SECONDS)
        dues += [each.due for each in self.silences.values() if each.due < math.inf]
        timeout = max(min(dues) - self.clock(), 0.0) if dues else None
        for key, _ in self.selector.select(timeout):
            if isinstance(key.data, Silence):
                key.data.arrived(self.clock())
                continue
            self.selector.unregister(key.fd)
            os.close(key.fd)
            self._ended(key.data)
        for one in [each for each in self.held if not each.held]:
            self.held.remove(one)
            self.restarts[one.name][1].due = self.clock()
        for one, restarts in self.restarts.values():
            if restarts.due is not None and restarts.due <= self.clock():
                self._start(one, restarts)
        for each in self.silences.values():
            each.turn(self.clock())

    def _ended(self, one: Kept) -> None:
        assert one.process is not None
        status = one.process.wait()
        self.silences[one.name].ended()
        if one.held:
            self.held.append(one)
            self.say(f"{one.name} was stopped; `{one.restart}` starts it again")
            return
        wait = self.restarts[one.name][1].ended(self.clock(), status)
        how = "was stopped" if status == 0 else f"has ended with status {status}, see {one.log}"
        self.say(f"{one.name} {how}; it starts again{f' in {wait:g} s' if wait else ''}")

    def _start(self, one: Kept, restarts: Restarts) -> None:
        try:
            one.start()
        except Exception as failed:
            wait = restarts.ended(self.clock(), 1)
            self.say(f"{one.name} did not start (next attempt in {wait:g} s): {failed}")
        else:
            self._watch(one)
            self.say(f"{one.name} was started again")


def say(text: str) -> None:
    """Prints a line of the log of `ottla cluster start`."""
    print(f"{moment(time.time())} {text}", file=sys.stderr, flush=True)


def mark_of(directory: Path, broker: int) -> Path:
    """The file that keeps a broker stopped, in the directory of `ottla cluster start`."""
    return directory / f"broker-{broker}.stopped"


def restart_command(directory: Path, broker: int) -> str:
    """The command that starts a stopped broker. It works from any directory."""
    where = shlex.quote(str(directory.absolute()))
    return f"ottla cluster restart-broker {broker} --dir {where}"


def stop_broker(options: Namespace) -> None:
    """`ottla cluster stop-broker`: stop one broker cleanly; it stays stopped."""
    directory = Path(options.dir or DIRECTORY)
    if mark_of(directory, options.broker).exists() and not holder_of(
        directory / f"broker-{options.broker}"
    ):
        raise ClientError(
            f"broker {options.broker} has already been stopped; "
            f"`{restart_command(directory, options.broker)}` starts it again"
        )
    pid = process_of(directory, options.broker)
    if not options.dry_run:
        mark_of(directory, options.broker).touch()
        end(pid, STOP_SECONDS)
    done(options, f"stopped broker {options.broker}")


def restart_broker(options: Namespace) -> None:
    """`ottla cluster restart-broker`: stop one broker cleanly, unless it is stopped already; `ottla
    cluster start` restarts the broker. Returns once the broker serves requests."""
    directory = Path(options.dir or DIRECTORY)
    mark, log = mark_of(directory, options.broker), directory / f"broker-{options.broker}.log"
    pid = 0 if mark.exists() else process_of(directory, options.broker)
    if not holder_of(directory):
        raise ClientError(
            f"`ottla cluster start` is not running for {directory}, so it cannot start broker"
            f" {options.broker} again"
        )
    if options.dry_run:
        done(options, f"restarted broker {options.broker}")
        return
    before = log.stat().st_size
    mark.unlink(missing_ok=True)
    if pid:
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while READY not in log.read_bytes()[before:].decode(errors="replace"):
        if time.monotonic() > deadline:
            raise ClientError(
                f"broker {options.broker} did not restart within {STOP_SECONDS:g} s."
                f" Is `ottla cluster start` running? See {log}"
            )
        time.sleep(POLL_SECONDS)
    done(options, f"restarted broker {options.broker}")


def process_of(directory: Path, broker: int) -> int:
    """The process id of a broker. Raises ClientError if the broker is not running."""
    home = directory / f"broker-{broker}"
    pid = holder_of(home)
    if not pid:
        there = sorted(path.name.removeprefix("broker-") for path in directory.glob("broker-*/"))
        if str(broker) in there and holder_of(directory):
            raise ClientError(
                f"broker {broker} in {directory} is not running: it has just ended and is about to"
                " start again, or `ottla cluster start` was given a lower number of brokers."
                f" In that case, start the cluster again with --brokers {broker}"
            )
        if str(broker) in there:
            raise ClientError(
                f"broker {broker} in {directory} is not running: is `ottla cluster start` running"
                " there? For a cluster in another directory, use --dir"
            )
        if not there:
            raise ClientError(
                f"{directory} is not the directory of a cluster: give the directory that `ottla"
                " cluster start` was given: --dir DIR")
        raise ClientError(f"{directory} has no broker {broker}; it has the brokers"
                          f" {', '.join(there)}")
    return pid
