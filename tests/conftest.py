"""Options that several folders of tests share."""

from __future__ import annotations

import logging
from collections.abc import Iterator
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


def log_levels() -> dict[logging.Logger, int]:
    loggers = [each for each in logging.root.manager.loggerDict.values()
               if isinstance(each, logging.Logger) and each.name.startswith("ottla")]
    return {each: each.level for each in (logging.root, *loggers)}


@pytest.fixture(autouse=True)
def log_levels_as_before() -> Iterator[None]:
    """A test that sets a log level, or starts a command that does, sets it for itself alone."""
    before = log_levels()
    yield
    for logger, level in log_levels().items():
        if level != before.get(logger, logging.NOTSET):
            logger.setLevel(before.get(logger, logging.NOTSET))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", help="write what happens into the scenario files"
    )
