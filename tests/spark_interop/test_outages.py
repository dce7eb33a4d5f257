"""If no broker can be reached, a pipeline that has begun waits for the brokers, and says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ottla.spark_interop import cluster as clusters
from ottla.spark_interop.cluster import PATIENCE_SECONDS, Cluster
from ottla.spark_interop.errors import NoBroker
from ottla.spark_interop.pipelines import (
    archive,
    command,
    dead_letter,
    latest,
    mirror,
    preflight,
    quality,
    query_run,
    replay,
    slice,
    steps,
    transactional,
    windows,
)
from ottla.testing import Broker

LATE = "_TIMED_OUT"  # the error of a broker that went away before it answered
TIMED_OUT = KafkaException(KafkaError(getattr(KafkaError, LATE)))
SPARK: Any = None
PIPELINES: dict[str, Callable[[Cluster], object]] = {
    "archive t": lambda at: archive.archive(SPARK, at, "t", "p"),
    "latest t": lambda at: latest.latest(SPARK, at, "t", "p"),
    "windows t": lambda at: windows.windows(
        SPARK, at, "t", "p", window="1 day", aggregates={"n": "count(*)"}, format="raw"),
    "dead letters of t": lambda at: dead_letter.dead_letter(SPARK, at, "t", "g", "d", "c"),
    "mirror t": lambda at: mirror.mirror(SPARK, at, "t", at, "c", to="u"),
    "replay t": lambda at: replay.replay(SPARK, "p", at, "t"),
    "slice t": lambda at: slice.slice_topic(SPARK, at, "t"),
    "quality of t": lambda at: quality.quality_report(SPARK, at, "t"),
    "verify": lambda at: archive.verify(SPARK, "p", at),
}


class Back(Exception):
    """Raised by a substitute for `reach` where brokers would answer again; the test ends there."""


class Clock:
    """Replaces the time of the module `cluster`; a sleep only moves this clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        fake = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(clusters, "time", fake)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outages are noticed and reported at once."""
    for name in ("AWAY_SECONDS", "LOOK_SECONDS", "TICK_SECONDS"):
        monkeypatch.setattr(query_run, name, 0.0)
    monkeypatch.setattr(query_run, "POLL_SECONDS", 0.001)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """A semaphore that is released for each printed line about an outage."""
    printed, say = threading.Semaphore(0), query_run.Progress.say

    def count(progress: query_run.Progress, text: str) -> None:
        say(progress, text)
        printed.release()

    monkeypatch.setattr(query_run.Progress, "say", count)
    yield printed


def test_a_question_of_a_running_pipeline_is_repeated_for_two_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, errors = Clock(monkeypatch), [TIMED_OUT] * 3

    def ask(_: object) -> str:
        clock.now += clusters.ANSWER_SECONDS
        if errors:
            raise errors.pop()
        return "answer"

    def reach(_: Cluster) -> None:
        if clock.now < 40:
            raise NoBroker("no broker answers")

    monkeypatch.setattr(Cluster, "admin", lambda _: None)
    monkeypatch.setattr(Cluster, "reach", reach)
    with pytest.raises(NoBroker, match="within 15 s"):
        Cluster("h:1").asked(ask)
    assert clock.now == 15, "a pipeline that has not begun does not wait"
    patient = Cluster("h:1").patient()
    assert patient.asked(ask) == "answer" and not errors
    errors += [TIMED_OUT] * 99
    clock.now = 100.0
    with pytest.raises(NoBroker, match=f"within {PATIENCE_SECONDS} s"):
        patient.asked(ask)
    assert 220 < clock.now < 240


def test_a_running_pipeline_waits_for_brokers_that_refuse_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as broker:
        at = Cluster(broker.bootstrap_servers)
        assert Cluster.begun(at).patience_seconds == PATIENCE_SECONDS
        broker.kill()
        with pytest.raises(NoBroker):
            Cluster.begun(at)
        restart = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: broker.start())
        monkeypatch.setattr(clusters, "time", restart)
        assert Cluster.reached(at.patient()) == at


def test_an_outage_after_the_checks_of_a_command_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(command, "_session", lambda _: None)
    monkeypatch.setattr(command, "spark_version", lambda: "4.2.0")      # pyspark is not needed
    monkeypatch.setattr(preflight, "check_values", lambda *_: None)
    monkeypatch.setattr(preflight, "check", lambda *_: None)
    monkeypatch.setattr(steps.Step, "run", lambda _, __, options: given.append(options) or {})
    words = "--topic t --source h:1 --destination h:2 --checkpoint c", "--path p"
    assert command.main(["pipeline", "mirror", *words[0].split()]) == 0
    assert command.main(["pipeline", "verify", *words[1].split()]) == 0
    patience = [{name: one.patience_seconds for name, one in options.items()
                 if isinstance(one, Cluster)} for options in given]  # fmt: skip
    assert patience == [dict.fromkeys(("source", "destination"), PATIENCE_SECONDS), {}]


@pytest.mark.parametrize("what", PIPELINES)
def test_an_outage_before_the_first_batch_is_told_and_waited_for(
    what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], at_once: None,
    said: threading.Semaphore,
) -> None:  # fmt: skip
    """Pipelines that run no query report the outage and wait, too."""
    told = threading.Event()

    def reach(_: Cluster) -> None:
        if told.is_set() and threading.current_thread() is threading.main_thread():
            raise Back
        raise NoBroker("no broker answers")

    def wait(_: float) -> None:
        assert said.acquire(timeout=30)
        told.set()

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=wait)
    monkeypatch.setattr(clusters, "time", clock)
    monkeypatch.setattr(Cluster, "reach", reach)
    monkeypatch.setattr(archive.Table, "open", lambda *_: None)
    monkeypatch.setattr(archive, "Files", lambda *_: None)
    with pytest.raises(Back):
        PIPELINES[what](Cluster("h:1").patient())
    assert capsys.readouterr().err == f"{what}: {query_run.AWAY}\n"


@pytest.mark.parametrize("beside_query", [False, True])
def test_a_thread_tells_of_an_outage_and_of_its_end(
    capsys: pytest.CaptureFixture[str], at_once: None, said: threading.Semaphore,
    beside_query: bool,
) -> None:  # fmt: skip
    away = threading.Event()

    def reach() -> None:
        if away.is_set():
            raise NoBroker("no broker answers")

    shown = query_run.Progress("t")
    shown.querying = beside_query
    with query_run.looking(shown, reach, beside_query=beside_query):
        away.set()
        assert said.acquire(timeout=30)
        away.clear()
        assert said.acquire(timeout=30)
        away.set()
        assert said.acquire(timeout=30)     # the end of the block prints BACK
    lines = [f"t: {line}" for line in (query_run.AWAY, query_run.BACK)]
    assert capsys.readouterr().err.splitlines() == lines * 2


def test_a_query_ends_the_outage_that_was_told_before_it_began(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(query_run, "LOOK_SECONDS", 0.0)
    shown = query_run.Progress("t")
    shown.outage.since, shown.outage.told = 1.0, True
    looks: list[int] = []
    query: Any = SimpleNamespace(
        isActive=True, _jsq=SimpleNamespace(recentProgress=lambda: []), exception=lambda: None)

    def wait(_: float) -> None:
        query.isActive = len(looks) < 2

    query.awaitTermination = wait
    query_run.run(query, shown, reach=lambda: looks.append(1))
    assert capsys.readouterr().err == f"t: {query_run.BACK}\n"


def test_only_one_thread_looks_for_outages_while_a_query_runs() -> None:
    shown, querying = query_run.Progress("t", False), list[bool]()

    def start() -> Any:
        querying.append(shown.querying)
        return SimpleNamespace(
            isActive=False, _jsq=SimpleNamespace(recentProgress=lambda: []), exception=lambda: None)

    writer: Any = SimpleNamespace(option=lambda *_: writer)
    writer.trigger = lambda **_: SimpleNamespace(start=start)
    files: Any = SimpleNamespace(at=lambda name: name, list=lambda _: [])
    query_run.drain(writer, files, "c", None, shown)
    assert querying == [True] and not shown.querying


def test_a_mirror_tells_of_its_destination_too_while_it_writes(
    capsys: pytest.CaptureFixture[str], at_once: None, said: threading.Semaphore
) -> None:
    there, here = Cluster("127.0.0.1:1"), Cluster("127.0.0.1:2")
    shown = query_run.Progress("mirror t")
    shown.querying = True
    with pytest.raises(Back), mirror.telling_of(there, here, shown):
        assert said.acquire(timeout=30)
        raise Back
    with mirror.telling_of(here, here, shown):
        pass
    assert capsys.readouterr().err == f"mirror t: {query_run.AWAY}\n"


def test_the_batch_that_closes_all_windows_is_watched_as_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(query_run, "drain", lambda *_, **more: given.append(more))
    monkeypatch.setattr(windows, "_close_all", lambda _: True)
    monkeypatch.setattr(windows, "known_watermark", lambda _: None)
    origin = transactional.Origin(Cluster("h:1"), "t", "id")
    target: Any = SimpleNamespace(origin=origin, files=None)
    windows.run_queries(None, target, None, query_run.Progress("t", False), {}, True)
    watched = {"watch": origin.check, "reach": origin.cluster.reach}
    assert given == [watched, watched]


def test_a_replay_shows_its_records_on_a_terminal_even_if_a_count_fails(
    capsys: pytest.CaptureFixture[str], at_once: None
) -> None:
    answers, counted = [0, 7, None, 9], threading.Event()

    def records() -> int:
        if not answers:
            counted.set()
            raise NoBroker("no broker answers")
        answer = answers.pop(0)
        if answer is None:
            raise NoBroker("no broker answers")
        return answer

    shown = query_run.Progress("replay t", True)
    with query_run.counting(shown, records):
        assert counted.wait(30)
    shown.update(8)
    shown.done()
    lines = capsys.readouterr().err.split("\r\x1b[K")[1:]
    assert lines[0] == "replay t: 0 s"      # because "0 records" would say nothing
    assert [line.partition(",")[0] for line in lines[1:]] == [
        f"replay t: {n} records" for n in (7, 9, 8)]
    assert "(estimated)" in lines[1] and lines[-1].endswith("\n")
