"""A search process ends if its browser or its console goes away. Otherwise it serves the next
search."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.addresses import show_address
from ottla.client.errors import ClientError
from ottla.console import reads, streams
from ottla.console.requests import BadRequest
from ottla.console.search import CLIENT, TELL_SECONDS, Budget, Reader, Spent, Wanted
from ottla.console.search_process import SearchProcesses, messages
from tests.console.search_tasks import nothing_to_search, task_at

CONSOLE = """
import sys, threading
from ottla.console.search_process import SearchProcesses
from tests.console.search_tasks import task_at
SearchProcesses().run(task_at(sys.argv[1]), threading.Event())
"""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Yields the socket of a broker that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


def test_a_search_whose_browser_has_gone_ends(silent: socket.socket) -> None:
    stop, task = threading.Event(), task_at(show_address(silent.getsockname()))
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(SearchProcesses().run, task, stop)
        connection, _ = silent.accept()
        with connection:
            stop.set()
            with pytest.raises(ClientError, match="its process ended with exit status -9"):
                running.result(60)


def test_a_search_whose_console_was_killed_ends_without_a_word(silent: socket.socket) -> None:
    address = show_address(silent.getsockname())
    with subprocess.Popen(
        [sys.executable, "-c", CONSOLE, address], stderr=subprocess.PIPE
    ) as console:
        connection, _ = silent.accept()
        with connection:
            console.kill()
            connection.settimeout(60)
            list(iter(lambda: connection.recv(4096), b""))     # until the search process has ended
        assert console.stderr is not None and console.stderr.read() == b""


def test_a_process_says_what_it_has_read_before_its_result() -> None:
    """Several messages may arrive in one read."""
    says = """
from ottla.console.search_process import say
for said in ({"records": 1}, {"records": 2, "text": "x" * 3_000_000}, ("", {"rows": []})):
    say(said)
"""
    with subprocess.Popen([sys.executable, "-c", says], stdout=subprocess.PIPE) as process:
        first, second, result = messages(process, threading.Event())
    assert (first["records"], second["records"], result) == (1, 2, ("", {"rows": []}))


def test_a_search_tells_from_time_to_time_what_it_has_read() -> None:
    told: list[Any] = []
    spent = Spent(tell=told.append, records=3)
    assert spent.over(Budget()) is None and told == []
    spent.told -= 2 * TELL_SECONDS
    for _ in range(2):
        assert spent.over(Budget()) is None
    assert [one["records"] for one in told] == [3]


def test_a_search_waits_for_the_place_of_the_search_that_it_replaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reads, "LOOK_SECONDS", 0)
    visitor = SimpleNamespace(searches=reads.SEARCHES_MAX, name="ann")

    async def replaced() -> None:
        waiting = asyncio.create_task(reads.take_place(visitor))
        await asyncio.wait({waiting}, timeout=0)
        assert not waiting.done()
        visitor.searches -= 1
        await waiting

    asyncio.run(replaced())
    assert visitor.searches == reads.SEARCHES_MAX
    monkeypatch.setattr(reads, "BUSY_SECONDS", 0)
    with pytest.raises(BadRequest, match="too many searches"):
        asyncio.run(reads.take_place(visitor))


def test_searches_that_begin_at_the_same_time_are_no_more_than_a_user_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search that is still looking up its partitions counts, and one that fails no longer
    does."""
    monkeypatch.setattr(reads, "BUSY_SECONDS", 0)
    looking_up, answered = 0, asyncio.Event()

    async def run(*_: Any) -> None:
        nonlocal looking_up
        looking_up += 1
        await answered.wait()
        raise BadRequest("there is no such topic")

    visitor = SimpleNamespace(searches=0, name="ann", connections=SimpleNamespace(run=run))
    request: Any = SimpleNamespace(visitor=visitor)

    async def story() -> list[Any]:
        searches = [reads.searching(request, Wanted("t")) for _ in range(5)]
        begun = asyncio.gather(*map(anext, searches), return_exceptions=True)
        await asyncio.wait({begun}, timeout=0)
        answered.set()
        return await begun

    said = [str(each) for each in asyncio.run(story())]
    assert said.count("there is no such topic") == looking_up == reads.SEARCHES_MAX
    assert visitor.searches == 0


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_live_view_pauses_after_the_bytes_of_a_second(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """A record may have all its bytes in its key."""
    monkeypatch.setattr(streams, "TAIL_BYTES_MAX", 10)
    paused = list[float]()
    data = {"key": None, "value": None} | {part: b"x" * 11}

    class OneRecord:
        def __init__(self, *_: Any) -> None:
            self.close = lambda: None

        def read(self, topic: str, ranges: Any, stop: Any, *, endless: bool) -> Iterator[Any]:
            stop.wait = paused.append
            yield SimpleNamespace(
                key=lambda: data["key"], value=lambda: data["value"], headers=lambda: None,
                partition=lambda: 0, offset=lambda: 0, timestamp=lambda: (1, 0))

    async def wait(_: float) -> None:
        pass

    monkeypatch.setattr(streams, "Reader", OneRecord)
    service = SimpleNamespace(stopping=False, still_open=lambda _: True, wait=wait)
    request: Any = SimpleNamespace(service=service, visitor=SimpleNamespace(properties={}))

    async def story() -> bytes:
        async with contextlib.aclosing(
            streams.tailed(request, Wanted("t"), {0: (0, 0)}, "unused:1")
        ) as events:
            return await anext(events)

    assert b'"scanned":1' in asyncio.run(story()).replace(b" ", b"")
    assert len(paused) == 1


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """The list of the processes that are started from now on."""
    processes = []

    class Counted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            processes.append(self)

    monkeypatch.setattr(subprocess, "Popen", Counted)
    return processes


def test_searches_one_after_the_other_run_in_one_process(
    started: list[subprocess.Popen[bytes]],
) -> None:
    """The start of a process would disturb the clients of a broker on the same machine."""
    with contextlib.closing(SearchProcesses()) as processes:
        for _ in range(3):
            assert processes.run(nothing_to_search(), threading.Event())["rows"] == []
        assert len(started) == 1
    assert started[0].poll() == 0


def test_a_process_ends_after_a_time_without_a_search(
    started: list[subprocess.Popen[bytes]],
) -> None:
    processes = SearchProcesses(idle_seconds=0.01)
    for count in (1, 2):
        processes.run(nothing_to_search(), threading.Event())
        assert started[count - 1].wait(60) == 0 and len(started) == count


def test_a_search_does_not_take_a_process_that_was_killed(
    started: list[subprocess.Popen[bytes]],
) -> None:
    with contextlib.closing(SearchProcesses()) as processes:
        processes.run(nothing_to_search(), threading.Event())
        started[0].kill()
        started[0].wait(60)
        assert processes.run(nothing_to_search(), threading.Event())["rows"] == []
        assert len(started) == 2


def test_a_process_ends_with_its_search_once_the_console_ends(
    started: list[subprocess.Popen[bytes]],
) -> None:
    processes = SearchProcesses()
    processes.close()
    processes.run(nothing_to_search(), threading.Event())
    assert started[0].poll() == 0


def test_the_code_of_a_search_is_imported_at_low_priority() -> None:
    """What a process imports before it lowers its priority competes with the clients of the
    broker."""
    names = subprocess.run(
        [sys.executable, "-c", "import sys, ottla.console.search_process; print(*sys.modules)"],
        stdout=subprocess.PIPE, check=True).stdout.decode().split()
    assert not {"ottla.console.search", "ottla.wire.messages", "confluent_kafka"} & {*names}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process choose")
def test_a_search_leaves_all_processors_but_one_to_others(
    started: list[subprocess.Popen[bytes]],
) -> None:
    with contextlib.closing(SearchProcesses()) as processes:
        processes.run(nothing_to_search(), threading.Event())
        assert os.getpriority(os.PRIO_PROCESS, started[0].pid) == 19
        assert len(os.sched_getaffinity(started[0].pid)) == 1


def test_a_fetch_of_a_search_leaves_the_broker_time_for_other_clients() -> None:
    """A broker's loop needs 0.4 ms to send 1 MB, and sends up to 4 MiB in one turn. So a search
    fetches at most 256 KiB."""
    assert CLIENT["fetch.message.max.bytes"] <= CLIENT["fetch.max.bytes"] <= 1 << 18


class Arriving:
    """A consumer at which three records have arrived. It notes how many records each call may wait
    for, and how long."""

    def __init__(self) -> None:
        self.left, self.waits = 3, [(0, 0.0)]

    def assign(self, partitions: Any) -> None:
        """Do nothing."""

    def consume(self, count: int, seconds: float) -> list[Any]:
        self.waits.append((count, seconds))
        taken, self.left = min(self.left, count), self.left - min(self.left, count)
        return [Message(3 - self.left - taken + number) for number in range(taken)]


class Message:
    """A record at an offset of partition 0."""

    def __init__(self, offset: int) -> None:
        self.at = offset

    def partition(self) -> int:
        return 0

    def error(self) -> None:
        """There is no error."""

    def offset(self) -> int:
        return self.at


def test_a_search_waits_for_no_more_than_one_record() -> None:
    """At the end of each range, consume(500, 0.2) would wait 0.2 s for further records."""
    reader, reading = object.__new__(Reader), Arriving()
    reader.consumer, reader.failure = reading, None
    found = list(reader.read("t", {0: (0, 3)}, threading.Event()))
    assert [message.offset() for message in found] == [0, 1, 2]
    assert all(count == 1 or seconds == 0 for count, seconds in reading.waits)


def test_small_records_do_not_make_a_search_pause() -> None:
    """If more records than queued.min.messages wait in its queue, librdkafka pauses before the next
    fetch. The limit is so high that the search still has records to read when the pause ends. It
    is not higher, because each queued record takes some 350 bytes besides its own size."""
    pause = CLIENT["fetch.queue.backoff.ms"] / 1000
    assert 100_000 * pause <= CLIENT["queued.min.messages"] <= 50_000


@pytest.mark.parametrize("name", ["message.max.bytes", "max.request.size"])
def test_a_search_takes_the_properties_of_a_producer_of_large_records(name: str) -> None:
    Reader({name: "10485760"}, "127.0.0.1:1", committed=True).consumer.close()
