"""A query with a checkpoint first runs a batch that an earlier run left open. It ends when it has
to, and says why."""

from __future__ import annotations

import json
import logging
import re
import signal
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark_interop.errors import DataLost, NoBroker, PipelineError
from ottla.spark_interop.pipelines import archive, command, preflight, query_reports, query_run


class Query:
    """A streaming query that has ended, or that runs; a user may interrupt it."""

    def __init__(self, runs: bool, interrupted: bool = False) -> None:
        self.isActive, self.interrupted, self.stopped = runs, interrupted, False
        self.has([])

    def has(self, reports: list[Any]) -> None:
        """Set the query's reports of progress."""
        self._jsq = SimpleNamespace(recentProgress=lambda: reports)

    def awaitTermination(self, _: float) -> None:
        if self.interrupted:
            raise KeyboardInterrupt

    def stop(self) -> None:
        self.stopped = True

    def exception(self) -> None:
        return None


def report(number: int, rows: int, ran: bool = True) -> Any:
    """Spark's report of a batch or, without `ran`, of a trigger that found nothing. The report of
    a trigger that found nothing has the number of the next batch."""
    took = {"latestOffset": 3} | ({"addBatch": 7} if ran else {})
    told = {"batchId": number, "numInputRows": rows, "durationMs": took}
    return SimpleNamespace(batchId=lambda: number, json=lambda: json.dumps(told))


class Reporting(Query):
    """A query that shows one more of its reports each time that it is awaited, and then ends. With
    `at_once` it shows all reports from the start."""

    def __init__(self, *reports: Any, at_once: bool = False) -> None:
        super().__init__(runs=True)
        self.left, self.told = list(reports), list[Any]()
        self.has(self.told)
        if at_once:
            self.awaitTermination(0)
            self.told += self.left
            self.left.clear()

    def awaitTermination(self, _: float) -> None:
        self.told += self.left[:1]
        del self.left[:1]
        self.isActive = bool(self.left)


def triggers(
    begun: int,
    ended: int,
    every: str | None = None,
    interrupted: bool = False,
    stopped: bool = False,
) -> list[Any]:
    """The triggers of the queries that `drain` starts on a checkpoint with these batches."""
    started: list[dict[str, Any]] = []
    names = {"c/offsets": {f"c/offsets/{n}": 1 for n in range(begun)},
             "c/commits": {f"c/commits/{n}": 1 for n in range(ended)}}  # fmt: skip
    files: Any = SimpleNamespace(at=lambda name: name, list=lambda name: names[name])
    writer: Any = SimpleNamespace(option=lambda *_: writer)

    def trigger(**given: Any) -> Any:
        started.append(given)
        return SimpleNamespace(start=start)

    def start() -> Query:
        if not stopped:
            names["c/commits"] = names["c/offsets"]
        return Query(interrupted, interrupted)

    writer.trigger = trigger
    query_run.drain(writer, files, "c", every, query_run.Progress("t", False))
    return started


def test_a_batch_that_a_killed_run_had_begun_comes_first() -> None:
    assert triggers(3, 3) == [{"availableNow": True}]
    assert triggers(3, 2) == [{"once": True}, {"availableNow": True}]
    assert triggers(1, 0) == [{"once": True}, {"availableNow": True}]
    assert triggers(0, 0) == [{"availableNow": True}]
    assert triggers(3, 3, every="1 second") == [{"processingTime": "1 second"}]
    assert triggers(3, 2, every="1 second") == [{"once": True}, {"processingTime": "1 second"}]


def test_a_batch_that_spark_committed_before_its_report_failed_ends_no_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer: Any = SimpleNamespace(option=lambda *_: writer)
    writer.trigger = lambda **_: SimpleNamespace(start=lambda: None)
    files: Any = SimpleNamespace(at=lambda name: name)
    failed = f"terminated with exception: {query_run.REPORT_FAILED}"
    for said, is_open, ends in ((failed, False, False), (failed, True, True), ("x", False, True)):
        states, ran = iter([True, is_open, False]), list[dict[str, Any]]()

        def run(*_: Any, said: str = said, ran: list[dict[str, Any]] = ran, **__: Any) -> int:
            ran.append({})
            if len(ran) == 1:
                raise PipelineError(said)
            return 5

        monkeypatch.setattr(query_run, "has_open_batch", lambda *_, states=states: next(states))
        monkeypatch.setattr(query_run, "run", run)
        told: list[dict[str, Any]] = []
        monkeypatch.setattr(query_run, "unreported", lambda _: {"numInputRows": 7})
        given = writer, files, "c", None, query_run.Progress("t", False), told.append
        if ends:
            with pytest.raises(PipelineError):
                query_run.drain(*given)
        else:
            assert query_run.drain(*given) == 12     # 7 of the unreported batch, and 5
        assert told == ([] if ends else [{"numInputRows": 7}])


def test_a_query_ends_where_its_topic_was_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise PipelineError("made again")

    shown = query_run.Progress("t", False)
    with pytest.raises(PipelineError, match=r"^made again$"):
        query_run.run(Query(runs=False), shown, watch=gone)     # at the end
    running = Query(runs=True)
    monkeypatch.setattr(query_run, "WATCH_SECONDS", 0.0)
    with pytest.raises(PipelineError, match=r"^made again$"):
        query_run.run(running, shown, watch=gone)               # while it waits for records
    assert running.stopped


def test_only_a_query_that_runs_for_ever_has_its_end_in_an_interrupt() -> None:
    assert triggers(3, 2, every="1 second", interrupted=True) == [{"once": True}]
    with pytest.raises(KeyboardInterrupt):
        triggers(3, 3, interrupted=True)
    query = Query(runs=True, interrupted=True)
    with pytest.raises(KeyboardInterrupt):
        query_run.run(query, query_run.Progress("t", False))
    assert query.stopped


def test_an_interrupt_counts_the_reported_batches_and_says_that_one_more_may_be_stored(
    capsys: pytest.CaptureFixture[str]
) -> None:
    class Late(Query):
        def stop(self) -> None:
            self.has([report(0, 5)])            # the report comes while the query stops

    class Broken(Query):
        def stop(self) -> None:
            self._jsq = None                    # the JVM ends, too

    class Unreachable(Query):
        def stop(self) -> None:
            raise RuntimeError("the JVM has ended")

    for kind, records in ((Late, 5), (Query, 0), (Broken, 0), (Unreachable, 0)):
        with pytest.raises(KeyboardInterrupt):
            query_run.run(kind(True, True), query_run.Progress("t", True))
        last = capsys.readouterr().err.rpartition("\x1b[K")[2]
        assert last.startswith(f"t: {records} records, ") and last.endswith(f"{query_run.CUT}\n")


def test_an_interrupt_in_the_middle_of_a_batch_is_an_end_too() -> None:
    """Spark reports an error for a query that is stopped inside a batch."""
    query: Any = Query(runs=True, interrupted=True)
    query.exception = lambda: RuntimeError("the batch was stopped")
    shown = query_run.Progress("t", False)
    assert query_run.run(query, shown, for_ever=True) == 0
    assert shown.interrupted


def test_a_call_of_the_jvm_that_fails_after_an_interrupt_is_made_again(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_run, "AGAIN_SECONDS", 0.0)
    for name in ("isActive", "stop", "recentProgress"):

        class Flaky(Query):
            """After the interrupt, the first two calls of one method fail."""

            left = 0

            def __init__(self) -> None:
                super().__init__(True, True)
                self._jsq = SimpleNamespace(recentProgress=lambda: self.may_fail(
                    "recentProgress", [report(0, 5)] if self.stopped else []))

            def awaitTermination(self, _: float) -> None:
                self.left = 2
                raise KeyboardInterrupt

            def may_fail(self, called: str, result: Any) -> Any:
                if called == name and self.left:        # noqa: B023
                    self.left -= 1
                    raise ConnectionError("Answer from Java side is empty")
                return result

            @property
            def isActive(self) -> bool:                 # type: ignore[override]
                return bool(self.may_fail("isActive", True))

            @isActive.setter
            def isActive(self, _: bool) -> None:
                pass

            def stop(self) -> None:
                self.may_fail("stop", None)
                self.stopped = True

        shown, query = query_run.Progress("t", False), Flaky()
        assert query_run.run(query, shown, for_ever=True) == 5
        assert shown.interrupted and query.stopped and not query.left


def test_an_interrupt_while_a_query_starts_is_an_end_if_it_would_run_for_ever() -> None:
    def start() -> None:
        raise KeyboardInterrupt

    writer: Any = SimpleNamespace(option=lambda *_: writer)
    writer.trigger = lambda **_: SimpleNamespace(start=start)
    files: Any = SimpleNamespace(at=lambda name: name, list=lambda _: [])
    shown = query_run.Progress("t", False)
    assert query_run.drain(writer, files, "c", "1 second", shown) == 0 and shown.interrupted
    with pytest.raises(KeyboardInterrupt):
        query_run.drain(writer, files, "c", None, query_run.Progress("t", False))


def test_an_interrupt_hides_no_failure_and_no_rows_of_a_query_that_had_ended() -> None:
    class Failing(Query):
        def awaitTermination(self, _: float) -> None:
            self.isActive = False
            raise KeyboardInterrupt

    query: Any = Failing(runs=True)
    query.exception = lambda: RuntimeError("the file system is full")
    with pytest.raises(PipelineError, match="the file system is full"):
        query_run.run(query, query_run.Progress("t", False), for_ever=True)
    done = report(0, 5)

    class Late(Query):
        def stop(self) -> None:
            self.has([done])

    late = Late(runs=True, interrupted=True)
    assert query_run.run(late, query_run.Progress("t", False), for_ever=True) == 5


def test_the_time_of_a_long_step_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(query_run, "TICK_SECONDS", 0.0)
    ticked = threading.Event()

    def say(line: str, **given: Any) -> None:
        print(line, **given)
        ticked.set()

    monkeypatch.setattr(query_run, "print", say, raising=False)
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with query_run.clock(query_run.Progress("verify")):
            assert not terminal or ticked.wait(30)
        told = capsys.readouterr().err
        assert ("verify: 0 s" in told) is terminal and told.endswith("\r\x1b[K" if terminal else "")


def test_a_query_that_another_one_stopped_in_a_batch_has_not_ended() -> None:
    with pytest.raises(PipelineError, match=r"stopped in the middle of a batch; run the same"):
        triggers(3, 2, stopped=True)


WORKER = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 12, in run
    return apply(row)
           ^^^^^^^^^^
cimpl.KafkaException: KafkaError{code=MSG_SIZE_TOO_LARGE,val=10,str="too large"}
"""
JVM = """An error occurred while calling o79.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed
\tat org.apache.spark.Some.thing(Some.scala:1)
Caused by: org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized: [t]
\t... 20 more
"""


@pytest.mark.parametrize(("text", "said"), [
    (WORKER, 'KafkaException: KafkaError{code=MSG_SIZE_TOO_LARGE,val=10,str="too large"}'),
    (JVM, "TopicAuthorizationException: Not authorized: [t]"),
    (f"x\n{WORKER}\nottla.spark_interop.errors.PipelineError: t was deleted", "t was deleted"),
    (f"x\n{WORKER}\nottla.spark_interop.errors.NoBroker: no broker", "no broker"),
    ("only this\nand that", "only this"),
])  # fmt: skip
def test_a_workers_error_is_one_sentence(text: str, said: str) -> None:
    assert str(query_run.explained(RuntimeError(text))) == said


def test_only_archive_promises_to_show_the_gap_of_records_that_were_deleted_unread() -> None:
    lost = RuntimeError(f"[KAFKA_DATA_LOSS] {query_run.LOST} because they are not available.")
    ended: Any = Query(runs=False)
    ended.exception = lambda: lost
    shown, said = query_run.Progress("t", False), list[str]()
    for more in ({}, {"after_loss": archive.RECORD_GAPS}):
        with pytest.raises(DataLost) as raised:
            query_run.run(ended, shown, **more)
        said.append(str(raised.value))
    once = str(query_run.explained(lost))           # `slice` and others have no such option
    assert [("allow_gaps (--allow-gaps)" in text, "`verify` then shows the gap" in text)
            for text in (*said, once)] == [(True, False), (True, True), (False, False)]  # fmt: skip
    assert "Run the same command again" in once


class OfTheJvm(RuntimeError):
    """An error of the JVM, as pyspark represents it."""

    def __init__(self, text: str, stack: str) -> None:
        super().__init__(text)
        self._stackTrace = stack


def test_the_cause_of_an_error_of_the_jvm_is_in_its_stack() -> None:
    error = OfTheJvm("[STREAM_FAILED] Query terminated: Exception thrown in awaitResult:", JVM)
    assert str(query_run.explained(error)) == "TopicAuthorizationException: Not authorized: [t]"


def test_a_full_disk_may_be_that_of_sparks_temporary_files() -> None:
    """The error named only the file system of the result."""
    said = str(query_run.explained(OfTheJvm(
        "Job aborted", "java.io.IOException: No space left on device\n at blockmgr-1/temp")))
    assert "or that of Spark's temporary files (/tmp, or $SPARK_LOCAL_DIRS)" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_a_commands_status_and_a_sentence_whatever_breaks_by_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def interrupted(*_: Any) -> Iterator[dict[str, Any]]:
        try:
            signal.raise_signal(number)
            yield {}
        except KeyboardInterrupt:
            logging.error("a traceback of py4j")
            raise PipelineError("the JVM does not answer") from None

    monkeypatch.setattr(command, "_run", interrupted)
    monkeypatch.setattr(preflight, "check_values", lambda *_: None)
    monkeypatch.setattr(preflight, "check", lambda *_: None)
    before = signal.getsignal(number)
    status = command.main(["pipeline", "check-history", "--path", "x"])
    assert status == 128 + number
    assert signal.getsignal(number) is before
    told = capsys.readouterr()
    assert told.err == (
        "ottla pipeline check-history: interrupted; run the same command again\n")
    assert not told.out


@pytest.mark.parametrize("step, given, writes", [
    ("replay", {"topic": "t"}, True), ("mirror", {"topic": "t"}, True),
    ("dead-letter", {"to": "a", "dead_letters": "b"}, True), ("windows", {"to": "t"}, True),
    ("windows", {"path": "p"}, False), ("archive", {"topic": "t"}, False),
])
def test_who_is_interrupted_in_a_transaction_says_how_to_read_the_topic(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    step: str, given: dict[str, Any], writes: bool,
) -> None:
    def interrupted(*_: Any) -> Iterator[dict[str, Any]]:
        signal.raise_signal(signal.SIGINT)
        yield {}

    monkeypatch.setattr(command, "_run", interrupted)
    monkeypatch.setattr(preflight, "check_values", lambda *_: None)
    monkeypatch.setattr(preflight, "check", lambda *_: None)
    monkeypatch.setattr(command, "given_to", lambda *_: given)
    words = [word for option in command.BY_NAME[step].options if option.required
             for word in (f"--{option.name.replace('_', '-')}", "a = b")]
    assert command.main(["pipeline", step, *words]) == 130
    assert ("isolation.level=read_committed" in capsys.readouterr().err) is writes


def test_a_long_wait_for_brokers_and_for_spark_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(query_run, "WATCH_SECONDS", 0.0)
    monkeypatch.setattr(query_run, "SILENT_SECONDS", 0.0)
    printed = threading.Semaphore(0)

    def wait() -> None:
        assert printed.acquire(timeout=30)

    class Slow(Query):
        def stop(self) -> None:
            wait()

    def say(line: str, **given: Any) -> None:
        print(line, **given)
        printed.release()

    def away() -> None:
        wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(query_run, "print", say, raising=False)
    query_run.run(Slow(runs=True), query_run.Progress("t"), watch=away, for_ever=True)
    told = capsys.readouterr().err
    assert told.splitlines() == [f"t: {query_run.AWAY}", f"t: {query_run.ENDING}"]


@pytest.mark.parametrize("at_once", [False, True])
def test_a_report_of_an_idle_trigger_hides_no_batch(
    capsys: pytest.CaptureFixture[str], at_once: bool
) -> None:
    query = Reporting(report(2, 0, ran=False), report(2, 5), report(3, 0, ran=False), report(3, 3),
                      report(4, 0), report(5, 0, ran=False), at_once=at_once)  # fmt: skip
    told: list[dict[str, Any]] = []
    assert query_run.run(query, query_run.Progress("t", True), told.append) == 8
    assert [(each["batchId"], each["numInputRows"]) for each in told] == [(2, 5), (3, 3), (4, 0)]
    lines = [re.sub(r", [\d,]+/s", "", line) for line in capsys.readouterr().err.split("\r\x1b[K")]
    assert lines[2:] == [f"t: 0 records {query_run.IDLE}", "t: 5 records (batch 2)",
                         "t: 8 records (batch 3)", "t: 8 records (batch 4)\n"]  # fmt: skip


def test_reports_that_were_read_are_not_fetched_again() -> None:
    fetched: list[int] = []

    class Reports(list[Any]):
        def __getitem__(self, at: Any) -> Any:
            fetched.append(at)
            return super().__getitem__(at)

    reports = Reports(report(7, 0, ran=False) for _ in range(90))
    query: Any = SimpleNamespace(_jsq=SimpleNamespace(recentProgress=lambda: reports))
    news = query_reports.News(query)
    assert len(news.take()) == 90
    fetched.clear()
    assert news.take() == [] and len(fetched) == 1


def test_the_line_counts_the_batch_that_a_killed_run_had_begun(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = query_run.Progress("t", True)
    query_run.run(Reporting(report(1, 5)), shown)
    assert query_run.run(Reporting(report(2, 0, ran=False)), shown) == 0
    assert capsys.readouterr().err.rpartition("\x1b[K")[2].startswith("t: 5 records, ")


class Outage:
    """Brokers that cannot be reached during the seconds in `away`, and a query that runs for
    `seconds`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *away: range, seconds: float) -> None:
        self.now, self.away, self.looks, self.watched = 0.0, away, 0, list[float]()
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(query_run, "time", clock)
        self.query: Any = Query(runs=True)
        self.query.awaitTermination = self._wait
        self.seconds = seconds

    def _wait(self, seconds: float) -> None:
        self.now += seconds
        self.query.isActive = self.now < self.seconds

    def reach(self) -> None:
        self.looks += 1
        if any(int(self.now) in each for each in self.away):
            raise NoBroker(f"no broker answers at {self.now}")

    def watch(self) -> None:
        self.watched.append(self.now)


def test_an_outage_while_a_query_runs_is_told_once_and_its_end_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outage = Outage(monkeypatch, range(12, 23), range(30, 32), range(40, 60), seconds=80)
    query_run.run(outage.query, query_run.Progress("t"), watch=outage.watch, reach=outage.reach)
    assert capsys.readouterr().err.splitlines() == [
        f"t: {query_run.AWAY}", f"t: {query_run.BACK}"] * 2     # the outage of 2 s is not reported
    assert not any(12 <= at < 23 or 40 <= at < 60 for at in outage.watched)
    assert outage.looks < 100   # one every 2 s, in outages every 0.5 s; 160 if always every 0.5 s


def test_the_line_of_an_outage_does_not_break_the_line_that_is_overwritten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outage = Outage(monkeypatch, range(4, 9), seconds=12)
    outage.query.has([report(3, 5)])
    shown = query_run.Progress("t", True)
    query_run.run(outage.query, shown, reach=outage.reach)
    line = "t: 5 records, 5,000/s (batch 3)"
    shown.say("late")       # a summary on standard output may follow
    _, _, told = capsys.readouterr().err.partition(line)
    redrawn = [f"\r\x1b[Kt: {said}\n{line}" for said in (query_run.AWAY, query_run.BACK)]
    assert told == "".join(redrawn) + "\nt: late\n"


def test_a_query_ends_when_no_broker_has_answered_for_two_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outage = Outage(monkeypatch, range(10, 900), seconds=900)
    with pytest.raises(NoBroker, match="no broker answers"):
        query_run.run(outage.query, query_run.Progress("t", False), reach=outage.reach)
    assert 130 < outage.now < 135 and outage.query.stopped


def test_an_address_that_drops_packets_takes_little_of_a_querys_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outage = Outage(monkeypatch, seconds=500)

    def slow() -> None:
        outage.looks += 1
        outage.now += 5     # for the first address; the second address answers

    query_run.run(outage.query, query_run.Progress("t", False), reach=slow)
    assert outage.looks <= 10


def test_brokers_that_accept_a_connection_and_answer_late_are_told_to_be_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(query_run, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(query_run, "WATCH_SECONDS", 0.0)
    shown, printed = query_run.Progress("t"), threading.Event()
    monkeypatch.setattr(shown, "say", lambda text, say=shown.say: (say(text), printed.set()))

    def watch() -> None:
        assert printed.wait(30)

    query_run.Contact(shown, None, watch).look()
    assert capsys.readouterr().err.splitlines() == [f"t: {query_run.AWAY}", f"t: {query_run.BACK}"]
