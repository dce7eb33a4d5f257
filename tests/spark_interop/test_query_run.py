"""A query with a checkpoint runs an open batch first, ends when it is told to, and says why."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark_interop.errors import DataLost, PipelineError
from ottla.spark_interop.pipelines import archive, command, preflight, query_run


class Query:
    """A streaming query that has ended, or that runs; a user may interrupt it."""

    def __init__(self, runs: bool, interrupted: bool = False) -> None:
        self.isActive, self.interrupted, self.stopped = runs, interrupted, False
        self._jsq = SimpleNamespace(recentProgress=list)

    def awaitTermination(self, _: float) -> None:
        if self.interrupted:
            raise KeyboardInterrupt

    def stop(self) -> None:
        self.stopped = True

    def exception(self) -> None:
        return None


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
            assert query_run.drain(*given) == 12     # nothing that the batch read is left out
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


def test_an_interrupt_in_the_middle_of_a_batch_is_an_end_too() -> None:
    """Spark reports an error for a query that is stopped inside a batch."""
    query: Any = Query(runs=True, interrupted=True)
    query.exception = lambda: RuntimeError("the batch was stopped")
    shown = query_run.Progress("t", False)
    assert query_run.run(query, shown, for_ever=True) == 0
    assert shown.interrupted


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
    done = SimpleNamespace(
        batchId=lambda: 0, json=lambda: '{"batchId": 0, "numInputRows": 5}')

    class Late(Query):
        def stop(self) -> None:
            self._jsq = SimpleNamespace(recentProgress=lambda: [done])

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
        with query_run.clock("verify", wanted=True):
            assert not terminal or ticked.wait(30)
        assert ("verify: 0 s" in capsys.readouterr().err) is terminal


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
    once = str(query_run.explained(lost))           # `slice` and so on: they have no such option
    assert [("allow_gaps (--allow-gaps)" in text, "`verify` then shows the gap" in text)
            for text in (*said, once)] == [(True, False), (True, True), (False, False)]  # fmt: skip
    assert "Run the same command again" in once


class OfTheJvm(RuntimeError):
    """An error as pyspark has it."""

    def __init__(self, text: str, stack: str) -> None:
        super().__init__(text)
        self._stackTrace = stack


def test_the_cause_of_an_error_of_the_jvm_is_in_its_stack() -> None:
    error = OfTheJvm("[STREAM_FAILED] Query terminated: Exception thrown in awaitResult:", JVM)
    assert str(query_run.explained(error)) == "TopicAuthorizationException: Not authorized: [t]"


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
    monkeypatch.setattr(preflight, "check", lambda *_: None)
    before = signal.getsignal(number)
    status = command.main(["pipeline", "check-history", "--path", "x"])
    assert status == 128 + number
    assert signal.getsignal(number) is before
    told = capsys.readouterr()
    assert told.err == "ottla pipeline: interrupted; run the same command again\n"
    assert not told.out


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
