"""kafka-server-start: `ottla server start`, in the background with -daemon."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.sources import Sources
from ottla.tools.kafka_names.grammar import Options, UsageError


def pid_folder() -> Path:
    """The folder with a file for each broker that this tool started. The broker's process id is the
    file's name."""
    base = os.environ.get("XDG_RUNTIME_DIR") or Path.home() / ".cache"     # both are per user
    return Path(base) / "ottla-kafka-server"


def run(options: Options) -> int:
    """Start a broker; with -daemon return at once."""
    from ottla.broker.main import main

    if len(options.positional) != 1:
        raise UsageError(
            "USAGE: kafka-server-start [-daemon] server.properties [--override property=value]*"
        )
    if options.has("daemon") and detach():
        return 0
    folder = pid_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    arguments = ["server", "start", options.positional[0]]
    for override in options.all("override"):
        arguments += ["--override", override]
    note = folder / str(os.getpid())
    with note.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)        # unlike the file, the lock ends with this process
        held.write(node_id(options.positional[0], options.all("override")))
        held.flush()
        try:
            return min(main(arguments), 1)      # Kafka's tool, too, returns 1 after any failure
        finally:
            note.unlink(missing_ok=True)


def node_id(path: str, overrides: list[str]) -> str:
    """The node id in a property file or its overrides; "" if the file cannot be read, which the
    broker will report."""
    try:
        properties = Sources(Path(path), overrides).read()
    except (SettingsError, OSError):
        return ""
    return properties.get("node.id", properties.get("broker.id", "0"))


def is_running(note: Path) -> bool:
    """Whether the broker that wrote this file still runs. If it does not, its process id may now
    belong to another process."""
    with note.open() as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def detach() -> bool:
    """Continues in a new process. Returns False in the new process, and True in the old one, which
    must end."""
    if os.fork():
        return True
    os.setsid()
    folder = Path(os.environ.get("LOG_DIR", "."))
    folder.mkdir(parents=True, exist_ok=True)
    out = os.open(folder / "kafkaServer.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return False
