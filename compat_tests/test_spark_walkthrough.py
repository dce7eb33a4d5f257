"""The walk-through of docs/spark_walkthrough.md runs, and its own comparisons with pandas
succeed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.requirements import COMPAT_DIR, java
from compat_tests.spark_session import SHORT_RUN

DIRECTORY = Path(__file__).parent.parent / "examples" / "flights"


@pytest.mark.long
def test_the_walk_through_gives_what_pandas_gives(tmp_path: Path) -> None:
    java()
    env = os.environ | {
        "FLIGHTS_DIR": str(COMPAT_DIR / "flights"), "OTTLA_SPARK_JARS": str(COMPAT_DIR / "ivy"),
        "MPLBACKEND": "agg", "TMPDIR": str(tmp_path),
    } | SHORT_RUN
    ran = subprocess.run(
        [sys.executable, DIRECTORY / "walkthrough.py"],
        env=env, cwd=tmp_path, capture_output=True, text=True, timeout=840, check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert "archived 336,776 records" in ran.stdout
    assert "'written': 336776" in ran.stdout
