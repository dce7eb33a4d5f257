"""The poller serves connections before asyncio sees their events, and asyncio is not starved."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from ottla.broker.network.poller import BrokerLoop, MovableTimer
from ottla.wire.messages import ApiVersionsRequest
from tests.broker.running import RunningBroker, WireClient


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path) as running:
        yield running


@contextmanager
def talking(broker: RunningBroker) -> Iterator[None]:
    """A client that always has a request under way."""
    enough = threading.Event()

    def talk() -> None:
        with WireClient(broker.address) as client:
            sent = [client.send(ApiVersionsRequest(), 0) for _ in range(10)]
            while not enough.is_set():
                client.answer(sent.pop(0))
                sent.append(client.send(ApiVersionsRequest(), 0))

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def test_a_timer_is_not_starved_by_a_busy_connection(broker: RunningBroker) -> None:
    async def wait_for_timer() -> str:
        due = broker.loop.create_future()
        broker.loop.call_later(0.02, due.set_result, "due")
        return await due

    with talking(broker):
        assert broker.run(wait_for_timer()) == "due"


def test_a_timer_is_not_rounded_up_to_a_millisecond() -> None:
    loop = BrokerLoop()
    try:
        began = [time.monotonic()]
        for _ in range(50):
            loop.call_later(0.0001, loop.stop)
            loop.run_forever()
            began.append(time.monotonic())
    finally:
        loop.close()
    took = [after - before for before, after in pairwise(began)]
    assert 0.0001 <= min(took) < 0.001


def test_calls_from_threads_are_not_starved_by_a_busy_connection(broker: RunningBroker) -> None:
    with talking(broker):
        assert [broker.call(lambda n: n, n) for n in range(20)] == list(range(20))


def test_new_clients_are_not_starved_by_a_busy_connection(broker: RunningBroker) -> None:
    with talking(broker), WireClient(broker.address) as client:
        assert client.call(ApiVersionsRequest(), 0).error_code == 0


def test_a_descriptor_that_is_used_again_belongs_to_the_new_client(broker: RunningBroker) -> None:
    for _ in range(50):
        with WireClient(broker.address) as client:
            assert client.call(ApiVersionsRequest(), 0).error_code == 0


def test_a_server_says_which_loop_it_needs(tmp_path: Path) -> None:
    from ottla.broker.server import Server
    from ottla.broker.settings.config import BrokerConfig

    async def start() -> None:
        await Server(BrokerConfig.load(None, [f"log.dirs={tmp_path}"])).start()

    with pytest.raises(TypeError, match="BrokerLoop"):
        asyncio.run(start())


@contextmanager
def fresh_loop() -> Iterator[BrokerLoop]:
    loop = BrokerLoop()
    try:
        yield loop
    finally:
        loop.close()


def test_what_is_left_for_later_is_done_before_the_loop_waits() -> None:
    with fresh_loop() as loop:
        loop.call_soon(loop.poller.later, lambda: loop.call_soon(loop.stop))
        loop.call_later(60, loop.stop)
        began = time.monotonic()
        loop.run_forever()
        assert time.monotonic() - began < 30


def test_work_that_leaves_itself_for_later_starves_nothing() -> None:
    happened: list[str] = []

    with fresh_loop() as loop:

        def again() -> None:
            loop.poller.later(again)

        def soon() -> None:
            happened.append("soon")
            loop.call_later(0.001, timer)

        def timer() -> None:
            happened.append("timer")
            thread.start()

        thread = threading.Thread(target=loop.call_soon_threadsafe, args=(loop.stop,))
        again()
        loop.call_soon(soon)
        loop.run_forever()
        thread.join()
    assert happened == ["soon", "timer"]


def test_an_error_in_what_was_left_for_later_is_reported_and_ends_nothing() -> None:
    reported: list[object] = []

    def fail() -> None:
        raise ValueError("a bug")

    with fresh_loop() as loop:
        loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
        loop.poller.later(fail)
        loop.poller.later(lambda: loop.call_soon(loop.stop))
        loop.run_forever()
    assert [str(each) for each in reported] == ["a bug"]


class TimerLoop(BrokerLoop):
    """Keeps the times for which timers are set, and the last timer."""

    def __init__(self) -> None:
        super().__init__()
        self.set_for: list[float] = []
        self.handle: asyncio.TimerHandle | None = None

    def call_at(self, when, callback, *args, context=None):  # type: ignore[no-untyped-def]
        self.set_for.append(when)
        self.handle = super().call_at(when, callback, *args, context=context)
        return self.handle


@contextmanager
def movable_timer() -> Iterator[tuple[TimerLoop, MovableTimer, list[str]]]:
    loop, fired = TimerLoop(), list[str]()
    try:
        yield loop, MovableTimer(loop), fired
    finally:
        loop.close()


def test_a_timer_that_is_moved_back_is_set_again_only_when_it_fires() -> None:
    with movable_timer() as (loop, timer, fired):
        timer.set(1e9, lambda: fired.append("first"))
        timer.set(2e9, lambda: fired.append("second"))
        timer.set(3e9, lambda: fired.append("third"))
        assert loop.set_for == [1e9]
        timer.fire()
        assert (loop.set_for, fired) == ([1e9, 3e9], [])
        timer.fire()
        timer.fire()
        assert (loop.set_for, fired) == ([1e9, 3e9], ["third"])


def test_a_timer_that_is_moved_forward_is_set_at_once() -> None:
    with movable_timer() as (loop, timer, fired):
        timer.set(2e9, lambda: fired.append("late"))
        late = loop.handle
        timer.set(1e9, lambda: fired.append("early"))
        assert late is not None and late.cancelled()
        assert loop.set_for == [2e9, 1e9]
        timer.fire()
        assert fired == ["early"]


def test_a_timer_that_nobody_waits_for_calls_nothing() -> None:
    with movable_timer() as (loop, timer, fired):
        timer.set(1e9, lambda: fired.append("first"))
        timer.clear()
        timer.fire()
        assert fired == []
        timer.set(2e9, lambda: fired.append("second"))
        timer.close()
        assert loop.handle is not None and loop.handle.cancelled()
