"""Runs the web console beside a broker, if `ottla.console.listener` is set.

The console is a process of its own and an ordinary client. It ends when its standard input is
closed, so it cannot outlive the broker. If it ends by itself it is started again, unless its exit
status (1 or 2) means that it would fail again.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.log_output import say
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.properties import parse_properties

if TYPE_CHECKING:
    from ottla.broker.settings.config import BrokerConfig
    from ottla.log.storage.log_directory import LogDirectory

log = logging.getLogger("ottla.console")

AGAIN_SECONDS = 5.0
STOP_SECONDS = 4.0
CONFIG = "ottla.console.config"
READY = "ottla console of "
"""The beginning of the line with the console's address. All other lines of the console are log
lines or errors."""
LOGGED = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) ([\w.]+): (.*)")
"""A line of the console's log."""


class ConsoleProcess:
    """Keeps `ottla console` running until it is stopped."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self.stopping = threading.Event()
        self.process: subprocess.Popen[str] | None = None
        self.thread = threading.Thread(target=self._keep, name="ottla-console", daemon=True)
        self.thread.start()

    def _keep(self) -> None:
        while not self.stopping.is_set():
            try:
                self.process = subprocess.Popen(
                    self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True, errors="backslashreplace",
                )  # fmt: skip
            except OSError as error:
                log.warning("the console does not start: %s", error)
                return
            assert self.process.stdin is not None and self.process.stdout is not None
            if self.stopping.is_set():      # stop() may have run before the process existed
                self.process.stdin.close()
            for line in self.process.stdout:
                tell(line.rstrip("\n"))
            status = self.process.wait()
            if self.stopping.is_set():
                return
            if status in (1, 2):            # the console has logged why, and would fail again
                log.warning("the console has ended with exit status %d; its log lines above say"
                            " why. It is not started again", status)
                return
            log.warning("the console has ended with exit status %d; it is started again", status)
            self.stopping.wait(AGAIN_SECONDS)

    def stop(self) -> None:
        """End the console. If it still runs after STOP_SECONDS, kill it."""
        self.stopping.set()
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            try:
                self.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.thread.join(STOP_SECONDS)


def tell(line: str) -> None:
    """Log a line of the console's output in the format of the broker's own lines."""
    if line.startswith(READY):
        say(line)
    elif (logged := LOGGED.fullmatch(line)) is not None:
        level, name, text = logged.groups()
        logging.getLogger(name).log(logging.getLevelNamesMapping()[level], "%s", text)
    else:
        log.warning("%s", line.removeprefix("ottla console: "))


def console_protocol(config: BrokerConfig) -> str | None:
    """The security protocol with which the console connects to the broker; None if
    `ottla.console.listener` is not set. Raises SettingsError: call this before the broker starts.
    """
    if not config.ottla_console_listener:
        return None
    path = config.ottla_console_config
    properties = properties_of(path) if path else {}
    return properties.get("security.protocol", "PLAINTEXT").strip().upper()


def start_console(
    config: BrokerConfig, protocol: str | None, listeners: Mapping[str, str],
    directories: Iterable[LogDirectory],
) -> ConsoleProcess | None:
    """Start the console. `protocol` is the result of `console_protocol`. `listeners` has the
    address of the first listener of each security protocol. The history is in the first of the
    log directories that works. Returns None if `protocol` is None, or if no listener has it."""
    if protocol is None:
        return None
    command = [sys.executable, "-m", "ottla", "console", "--with-parent",
               "--listen", config.ottla_console_listener]
    if config.ottla_console_config:
        command += ["--command-config", config.ottla_console_config]
    address = listeners.get(protocol)
    if address is None:
        log.warning(
            "the console does not start: no listener has the protocol %s; set %s to a file of "
            "client settings with the security.protocol of one of the listeners", protocol, CONFIG)
        return None
    if config.ottla_console_allow_changes:
        command.append("--allow-changes")
    home = next(each.path for each in directories if each.offline is None)
    history = Path(home).absolute() / "console.sqlite"
    return ConsoleProcess([*command, "--history", str(history), "--bootstrap-server", address])


def properties_of(path: str) -> dict[str, str]:
    """The client properties of `ottla.console.config`. Raises SettingsError."""
    try:
        return parse_properties(Path(path).read_bytes())
    except OSError as error:
        raise SettingsError(CONFIG, f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(CONFIG, f"cannot read {path}: {error}") from error
