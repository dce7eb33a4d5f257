"""Runs a pipeline, and kills driver, JVM and workers with kill -9 at one point of a commit.

`happenings.py` starts `python -m compat_tests.events.killed JSON` in a process group of its own.
The classes below replace the pipeline's own, also in Spark's Python workers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from compat_tests.events.scenes import Scene
from compat_tests.spark_session import local_session
from ottla.spark_interop.pipelines import progress, transactional
from ottla.spark_interop.pipelines.table import Table

POINT, GROUP = "OTTLA_KILLED_AT", "OTTLA_KILLED_GROUP"
FILES = ("files written", "files moved", "committed")
ROWS = ("rows sent", "progress sent", "committed")


class Brokered:
    """A broker that another process runs: only its address is known here."""

    pid = 0

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def start(self) -> None:
        """Do nothing: the broker runs already."""

    def stop(self) -> None:
        """Do nothing: the process that started the broker stops it."""

    kill = stop


def end_here(point: str) -> None:
    """If this is the chosen point, kill driver, JVM and Spark's workers with kill -9."""
    if os.environ.get(POINT) == point:
        os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)


class KilledTable(Table):
    """A table whose writer is killed at the chosen point of a batch."""

    def adopt(self, *given: Any, **more: Any) -> Any:
        end_here("files written")
        moved = super().adopt(*given, **more)
        end_here("files moved")
        return moved

    def commit(self, *given: Any, **more: Any) -> None:
        super().commit(*given, **more)
        end_here("committed")


class KilledLane(transactional.Lane):
    """A lane whose process is killed at the chosen point of a transaction."""

    def _send(self, *record: Any, **more: Any) -> None:
        if record[0] == progress.TOPIC:
            end_here("rows sent")       # the lane has just checked that all rows were delivered
        super()._send(*record, **more)
        if record[0] == progress.TOPIC and os.environ.get(POINT) == "progress sent":
            self._producer.flush(60)
            end_here("progress sent")

    def _commit(self) -> None:
        super()._commit()
        end_here("committed")


def main() -> None:
    """The command. Its argument is a JSON object, which `happenings.in_another_process` makes."""
    import importlib

    given = json.loads(sys.argv[1])
    os.environ[GROUP] = str(os.getpgid(0))
    for name in ("archive", "latest", "windows"):
        module = importlib.import_module(f"ottla.spark_interop.pipelines.{name}")
        module.Table = KilledTable  # type: ignore[attr-defined]
    transactional.Lane = KilledLane  # type: ignore[misc]
    scene = Scene(local_session(), Brokered(given["bootstrap"]), given["pipeline"],
                  Path(given["place"]), given["topic"], number=given["number"])  # fmt: skip
    print(json.dumps(scene.run(**given["more"])), flush=True)


if __name__ == "__main__":
    # Spark's Python workers import the classes from this module's real name, not from `__main__`.
    from compat_tests.events import killed

    killed.main()
