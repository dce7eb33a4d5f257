"""Which worker of xdist runs which tests, and in which order.

A file is one piece of work, so that what its fixtures start is started once. All files with the
Spark session are one piece: there is one session, and code that its JVM has compiled serves them
all. xdist 3.8 does the same with its marks, but not with pytest 9.2, whose names of tests it cannot
extend.
"""

from __future__ import annotations

from collections import Counter

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SPARK = "spark"
WITH_THE_SESSION = {"test_flights_clients", "test_secured_payloads", "test_signed_tokens"}
"""Files beside test_spark… that use the session, or the topics that are filled for it."""
ALONE = {
    "test_spark_between_runs", "test_spark_fixtures", "test_spark_kills", "test_spark_walkthrough",
}
"""Files whose Spark is another process, or nearly all of it; and one that takes so long that a
second session costs less than to have all others wait for it."""
LONGEST = (
    SPARK, "test_spark_kills", "test_spark_between_runs", "test_packages", "test_tool_names",
    "test_spark_walkthrough",
    "test_tool_troubles", "test_spark_fixtures", "test_cluster", "test_chaos", "test_connect",
    "test_documents", "test_debezium", "test_old_clients", "test_streams", "test_quotas",
    "test_transactions", "test_security", "test_tool_chaos", "test_first_broker",
    "test_console_cluster",
)  # fmt: skip
"""What takes more than a minute, in the order in which it begins: no worker is left with one of
them while the others have nothing to do any more."""


def piece_of(nodeid: str) -> str:
    """The piece of work that a test belongs to."""
    name = nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")
    shared = name in WITH_THE_SESSION or (name.startswith("test_spark") and name not in ALONE)
    return SPARK if shared else name


def turn_of(nodeid: str) -> int:
    """The position of a test's piece among the pieces: the longest first."""
    piece = piece_of(nodeid)
    return LONGEST.index(piece) if piece in LONGEST else len(LONGEST)


class PieceTimes:
    """Prints how long pieces took and how long each worker was busy: whether LONGEST is right."""

    def __init__(self) -> None:
        self.pieces = Counter[str]()
        self.workers = Counter[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.pieces[piece_of(report.nodeid)] += report.duration
        self.workers[getattr(report, "worker_id", "")] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("seconds of pieces and workers")
        for counted in (self.pieces.most_common(30), sorted(self.workers.items())):
            terminalreporter.write_line(", ".join(f"{name} {took:.0f}" for name, took in counted))


class FilesOnWorkers(LoadScopeScheduling):
    """xdist's own scheduler, with pieces as `piece_of` says."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False       # xdist's is by the number of tests
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)
