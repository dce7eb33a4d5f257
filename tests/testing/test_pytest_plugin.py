"""The pytest plug-in, tested in separate runs of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

FAILING = """
import pytest

def test_that_breaks_everything(ottla_broker, ottla_topic):
    ottla_broker.fail("Metadata", "UNKNOWN_SERVER_ERROR", count=None)
    ottla_broker.fill_disk()
    ottla_broker.kill()
    assert ottla_broker.settings["num.partitions"] == "7"
    assert False, "on purpose"

@pytest.mark.ottla_topic(partitions=3)
def test_that_finds_all_well(ottla_broker, ottla_topic):
    from ottla.wire.messages import MetadataRequest
    topics = ottla_broker.request(MetadataRequest(topics=None)).topics
    assert [(t.name, len(t.partitions)) for t in topics] == [(ottla_topic, 3)]
    assert ottla_topic.startswith("test_that_finds_all_well-")

@pytest.mark.ottla_topic(partitons=3)
def test_that_misspells(ottla_topic):
    pass

@pytest.mark.ottla_topic(3)
def test_that_names_nothing(ottla_topic):
    pass

@pytest.mark.ottla_topic(partitions="three")
def test_that_miscounts(ottla_topic):
    pass

@pytest.mark.ottla_topic(configs="retention.ms=1")
def test_that_gives_a_text(ottla_topic):
    pass

def test_that_needs_no_broker():
    pass

def test_that_asks_for_the_broker_late(request):
    request.getfixturevalue("ottla_broker").kill()

def test_that_finds_it_running(ottla_broker):
    assert ottla_broker.is_running
"""


def run_pytest(*arguments: str, cwd: Path) -> str:
    """What pytest prints."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *arguments], cwd=cwd,
        capture_output=True, text=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    return done.stdout + done.stderr


def test_a_test_leaves_the_next_one_a_broker_that_works(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FAILING)
    (tmp_path / "pytest.ini").write_text("[pytest]\nottla_settings =\n    num.partitions = 7\n")
    printed = run_pytest(cwd=tmp_path)
    assert "FAILED test_it.py::test_that_breaks_everything - AssertionError: on purpose" in printed
    assert "PASSED test_it.py::test_that_finds_all_well" in printed
    assert "PASSED test_it.py::test_that_needs_no_broker" in printed
    assert "PASSED test_it.py::test_that_finds_it_running" in printed
    assert "ERROR test_it.py::test_that_misspells" in printed
    assert ("@pytest.mark.ottla_topic has no option partitons: the marker takes partitions=NUMBER "
            "and configs=MAPPING, such as partitions=3; did you mean partitions?") in printed
    assert ("@pytest.mark.ottla_topic: the argument 3 has no name; the marker takes "
            "partitions=NUMBER") in printed
    marker = "E           pytest.UsageError: @pytest.mark.ottla_topic"   # not in the summary
    assert printed.count(marker) == 4, printed
    assert "ottla_topic: partitions='three': expected a whole number" in printed
    assert "ottla_topic: configs='retention.ms=1': expected a mapping" in printed


def test_the_sample_project_passes() -> None:
    # Some of its 46 similar tests are enough here; the package tests run all of them.
    printed = run_pytest("-k", "not total or total[1]", cwd=ROOT / "examples" / "testing")
    assert " 5 passed" in printed, printed


def test_a_run_that_asks_for_no_broker_imports_none(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    loaded = {name for name in sys.modules if name.startswith('ottla.')}\n"
        "    assert loaded == {'ottla.testing', 'ottla.testing.pytest_plugin'}\n"
    )
    assert "1 passed" in run_pytest(cwd=tmp_path)
