"""A benchmark that is ended leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_sigterm_ends_a_benchmark_and_its_brokers() -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fairness", "--seconds", "60", "--only", "topics_1000"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    try:
        # The broker, then the probe beside it.
        started = until(lambda: (found := children_of(running.pid))[1:] and found, "it measures",
                        between=0.1)  # fmt: skip
        running.terminate()
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
    # After the traceback, the probe may have written that its broker is gone.
    assert running.returncode == -signal.SIGINT and "\nKeyboardInterrupt\n" in said, said
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "they have ended",
          between=0.1)  # fmt: skip
