"""The poller serves connections before asyncio sees their events, and asyncio is not starved."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from ottla.broker.network.poller import BrokerLoop
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

    server = Server(BrokerConfig.load(None, [f"log.dirs={tmp_path}"]))
    with pytest.raises(TypeError, match="BrokerLoop"):
        asyncio.run(server.start())
