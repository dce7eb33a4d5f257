"""A search's process ends with its search, with its browser and with its console."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.client.addresses import show_address
from ottla.client.errors import ClientError
from ottla.console.search import CLIENT, Reader
from ottla.console.search_process import run
from tests.console.search_tasks import task_at

CONSOLE = """
import sys, threading
from ottla.console.search_process import run
from tests.console.search_tasks import task_at
run(task_at(sys.argv[1]), threading.Event())
"""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A broker that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


def test_a_search_whose_browser_has_gone_ends(silent: socket.socket) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run, task_at(show_address(silent.getsockname())), stop)
        connection, _ = silent.accept()
        with connection:
            stop.set()
            with pytest.raises(ClientError, match="the search ended with status -9"):
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
            list(iter(lambda: connection.recv(4096), b""))     # until its process has ended
        assert console.stderr is not None and console.stderr.read() == b""


def test_the_code_of_a_search_is_imported_at_low_priority() -> None:
    """What a process imports before it gives way competes with the clients of the broker."""
    names = subprocess.run(
        [sys.executable, "-c", "import sys, ottla.console.search_process; print(*sys.modules)"],
        stdout=subprocess.PIPE, check=True).stdout.decode().split()
    assert not {"ottla.console.search", "ottla.wire.messages", "confluent_kafka"} & {*names}


def test_a_fetch_of_a_search_leaves_the_broker_time_for_other_clients() -> None:
    """To send 1 MB takes the loop of a broker 0.4 ms; a turn of the loop sends up to 4 MiB."""
    assert CLIENT["fetch.message.max.bytes"] < CLIENT["fetch.max.bytes"] <= 1 << 20


@pytest.mark.parametrize("name", ["message.max.bytes", "max.request.size"])
def test_a_search_takes_the_properties_of_a_producer_of_large_records(name: str) -> None:
    Reader({name: "10485760"}, "127.0.0.1:1", committed=True).consumer.close()
