"""Options that several folders of tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.no_skips import pytest_make_collect_report as pytest_make_collect_report
from tests.no_skips import pytest_runtest_makereport as pytest_runtest_makereport

# Asserts of helpers, too, say what they compared, and hold with `python -O`.
FOLDERS = (each for each in Path(__file__).parent.iterdir() if each.is_dir())
pytest.register_assert_rewrite(*(f"tests.{each.name}" for each in FOLDERS))

# The duration of an example depends on the machine, not on what is tested.
settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", help="write what happens into the scenario files"
    )
