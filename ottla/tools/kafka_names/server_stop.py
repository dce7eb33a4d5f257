"""kafka-server-stop: sends SIGTERM to the brokers that kafka-server-start started for this user."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from ottla.tools.kafka_names.main import Failed
from ottla.tools.kafka_names.server import is_running, pid_folder

if TYPE_CHECKING:
    from ottla.tools.kafka_names.grammar import Options


def run(options: Options) -> int:
    """Stops the brokers. Raises Failed if no broker runs. Raises UsageError for a word that is not
    a flag: if such words were ignored, `kafka-server-stop 2` would stop all brokers."""
    options.only_flags("--node-id ID stops only the broker with this node.id")
    stopped, wanted = 0, options.one("node-id")
    folder = pid_folder()
    for note in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            if wanted and note.read_text() != wanted:
                continue
            if is_running(note):
                os.kill(int(note.name), signal.SIGTERM)
                stopped += 1
            else:
                note.unlink(missing_ok=True)
        except (ProcessLookupError, FileNotFoundError):     # the broker is ending now
            pass
    if not stopped:
        raise Failed("No kafka server to stop", "No kafka server to stop")
    return 0
