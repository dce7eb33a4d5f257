"""Decides which worker of xdist runs which tests, and in which order.

Each file is one piece of work, so that its fixtures start everything only once. All files that use
the Spark session are one piece together: they share the session, and the code that its JVM has
compiled. xdist 3.8 could group tests by marks, but it does so by extending the tests' names, which
does not work with pytest 9.2.
"""

from __future__ import annotations

from collections import Counter

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SPARK = "spark"
WITH_THE_SESSION = {"test_flights_clients", "test_secured_payloads", "test_signed_tokens"}
"""Files not named test_spark… that use the session, or the topics that are filled for it."""
ALONE = {
    "test_spark_between_runs", "test_spark_fixtures", "test_spark_kills", "test_spark_walkthrough",
}
"""Spark files that are pieces of their own. Most of them run Spark mainly in other processes. One
takes so long that a second session costs less than letting all other files wait for it."""
LONGEST = (
    SPARK, "test_spark_kills", "test_spark_between_runs", "test_packages", "test_tool_names",
    "test_spark_walkthrough",
    "test_tool_troubles", "test_spark_fixtures", "test_cluster", "test_chaos", "test_connect",
    "test_documents", "test_debezium", "test_old_clients", "test_streams", "test_quotas",
    "test_transactions", "test_security", "test_tool_chaos", "test_first_broker",
    "test_console_cluster",
)  # fmt: skip
"""Pieces that take more than a minute, in the order in which they start. They start first, so that
no worker still runs a long piece when the others have nothing left to do."""


def piece_of(nodeid: str) -> str:
    """The piece of work that a test belongs to."""
    name = nodeid.partition("::")[0].rpartition("/")[2].removesuffix(".py")
    shared = name in WITH_THE_SESSION or (name.startswith("test_spark") and name not in ALONE)
    return SPARK if shared else name


def turn_of(nodeid: str) -> int:
    """The position of a test's piece in the order of start."""
    piece = piece_of(nodeid)
    return LONGEST.index(piece) if piece in LONGEST else len(LONGEST)


class PieceTimes:
    """Prints the time of each piece and of each worker, which shows whether LONGEST is right."""

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
    """xdist's own scheduler, which distributes the pieces that `piece_of` returns."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        config.option.loadscopereorder = False       # xdist would order by the number of tests
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)
