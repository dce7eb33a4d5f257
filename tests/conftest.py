"""Hooks, fixtures and options for all tests."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from ottla.broker.log_output import Output
from tests.no_skips import pytest_make_collect_report as pytest_make_collect_report
from tests.no_skips import pytest_runtest_makereport as pytest_runtest_makereport

# pytest rewrites the asserts of helper modules, too: they show what they have compared, and run
# even with `python -O`.
FOLDERS = (each for each in Path(__file__).parent.iterdir() if each.is_dir())
pytest.register_assert_rewrite(*(f"tests.{each.name}" for each in FOLDERS))

# There is no deadline, because the duration of an example depends on the machine, not on what is
# tested. The phase `explain` is left out: it traces every line, so the failure of a state machine
# would end as a time-out.
settings.register_profile(
    "ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow],
    phases=[phase for phase in Phase if phase is not Phase.explain])
settings.load_profile("ottla")


# Between the phases of a test, pytest has no log handler. Without this handler, Python would then
# write a broker's warnings to the terminal.
logging.getLogger("ottla").addHandler(logging.NullHandler())


LONGEST = (
    "tools/cli/test_elections.py", "simulation/cluster/test_cluster_seeds.py",
    "broker/test_answers.py", "broker/security/test_access_matrix.py", "simulation/test_seeds.py",
    "simulation/test_holds.py", "broker/crashes/test_delivery_semantics.py",
    "broker/cluster/test_restored_backups.py", "tools/test_troubles.py",
    "tools/kafka_names/test_golden.py", "tools/cli/test_confirmation.py",
    "spark_interop/test_lanes.py", "broker/cluster/test_zookeeper_contents.py", "test_tidy.py",
)
"""The files whose tests take longest. They run first, so that at the end no worker is still busy
with one of them while the others have nothing to do. (`make test` has xdist keep this order.)"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several workers, the files that take longest begin first."""
    if hasattr(config, "workerinput"):
        turns = {Path(__file__).parent / name: at for at, name in enumerate(LONGEST)}
        items.sort(key=lambda item: turns.get(item.path, len(LONGEST)))


def log_levels() -> dict[logging.Logger, int]:
    loggers = [each for each in logging.root.manager.loggerDict.values()
               if isinstance(each, logging.Logger) and each.name.startswith("ottla")]
    return {each: each.level for each in (logging.root, *loggers)}


@contextlib.contextmanager
def log_as_before() -> Iterator[None]:
    """Restore the log levels that are set within this block, and close the logs that are opened in
    it (as `ottla server start` does). Otherwise the log lines of the brokers of later tests would
    be written to the terminal."""
    before = log_levels()
    yield
    for handler in [each for each in logging.root.handlers if isinstance(each, Output)]:
        handler.flush()
        logging.root.removeHandler(handler)
    for logger, level in log_levels().items():
        if level != before.get(logger, logging.NOTSET):
            logger.setLevel(before.get(logger, logging.NOTSET))


@pytest.fixture(autouse=True)
def log_of_a_test_alone() -> Iterator[None]:
    """Restore log levels and close logs after each test."""
    with log_as_before():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", help="write what happens into the scenario files"
    )
