"""In CI no test may be skipped: with CI=true, a skipped test fails. Used by every conftest.py."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


def skips_are_failures(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With CI=true, report a skipped test as failed: a test that did not run has shown nothing."""
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI=true forbids: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Check the report of a test's setup, call or teardown."""
    report = yield
    skips_are_failures(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Check the report of a module's collection."""
    report = yield
    skips_are_failures(report)
    return report
