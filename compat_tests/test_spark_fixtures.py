"""The fixtures of `ottla.spark_interop.testing` work in a separate project, as a user has it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.requirements import COMPAT_DIR, java
from compat_tests.spark_session import SHORT_RUN

CONFTEST = 'pytest_plugins = ["ottla.spark_interop.testing"]\n'
TESTS = '''
from pathlib import Path

import pytest
from ottla.spark_interop import stream_topic, write_topic
from ottla.spark_interop.testing import assert_frames_equal, run_available_now


@pytest.mark.parametrize("number", [1, 2])
def test_my_job(ottla_spark, ottla_broker, ottla_checkpoint, tmp_path, number):
    topic = ottla_broker.create_topic(f"orders-{number}")
    print("checkpoint", ottla_checkpoint)
    assert list(ottla_checkpoint.iterdir()) == []
    rows = ottla_spark.createDataFrame([(number, "a"), (2, "b")], "n INT, s STRING")
    at = ottla_broker.bootstrap_servers
    write_topic(rows, at, topic, format="json")
    stream = stream_topic(ottla_spark, at, topic, format="json", schema="n INT, s STRING")
    out = str(tmp_path / "out")
    run_available_now(stream.select("n", "s").writeStream.format("parquet"), ottla_checkpoint, out)
    assert_frames_equal(ottla_spark.read.parquet(out), [(number, "a"), (2, "b")])


def test_a_wrong_result_is_shown(ottla_spark):
    assert_frames_equal(ottla_spark.range(2), [(0,), (7,)])
'''


@pytest.mark.long
def test_a_project_of_its_own_uses_the_fixtures_twice(tmp_path: Path) -> None:
    java()
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_jobs.py").write_text(TESTS)
    environment = os.environ | SHORT_RUN | {"OTTLA_SPARK_JARS": str(COMPAT_DIR / "ivy")}
    environment.pop("CI", None)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "--rootdir", tmp_path, tmp_path]
    seen = []
    for _ in range(2):              # the second run finds and deletes what the first left
        run = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert "2 passed" in run.stdout and "1 failed" in run.stdout, run.stdout + run.stderr
        assert "missing 1 row of ['id']: [(7,)]; 1 unexpected row: [(1,)]" in run.stdout
        seen.append(re.findall(r"checkpoint (\S+)", run.stdout))
    assert seen[0] == seen[1] and len(set(seen[0])) == 2
