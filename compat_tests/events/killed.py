"""Runs a pipeline and ends the driver, its JVM and its workers by kill -9 at one point of a commit.

`python -m compat_tests.events.killed JSON`, as a process group of its own; `happenings.killed`
starts it. The classes below take the place of the pipeline's own, also in Spark's Python workers.
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
    """The address of a broker of another process."""

    pid = 0

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def start(self) -> None:
        """It runs."""

    def stop(self) -> None:
        """Its own process does."""

    kill = stop


def end_here(point: str) -> None:
    """kill -9 for driver and JVM, and for Spark's workers, if this is the point."""
    if os.environ.get(POINT) == point:
        os.killpg(int(os.environ[GROUP]), signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)


class KilledTable(Table):
    """A table whose writer ends at a point of a batch."""

    def adopt(self, *given: Any, **more: Any) -> Any:
        end_here("files written")
        moved = super().adopt(*given, **more)
        end_here("files moved")
        return moved

    def commit(self, *given: Any, **more: Any) -> None:
        super().commit(*given, **more)
        end_here("committed")


class KilledLane(transactional.Lane):
    """A lane whose process ends at a point of a transaction."""

    def _send(self, *record: Any, **more: Any) -> None:
        if record[0] == progress.TOPIC:
            end_here("rows sent")       # the lane has just seen that all of them are there
        super()._send(*record, **more)
        if record[0] == progress.TOPIC and os.environ.get(POINT) == "progress sent":
            self._producer.flush(60)
            end_here("progress sent")

    def _commit(self) -> None:
        super()._commit()
        end_here("committed")


def main() -> None:
    """The command: {"bootstrap", "pipeline", "place", "topic", "number", "more"}."""
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
    # Workers import the classes by the name of this module.
    from compat_tests.events import killed

    killed.main()
