"""The process as its operator sees it: exit statuses, messages, and what a start leaves behind."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.broker.produce_fetch import batch, fetch, produce, produce_request, values
from tests.broker.running import NODE_ID, TIMEOUT_SECONDS, RunningBroker, WireClient
from tests.broker.topics import create

MARKER = ".kafka_cleanshutdown"


def command(data: Path, port: int = 0) -> list[str]:
    return [
        sys.executable, "-m", "ottla.broker.main", "server", "start",
        "--override", f"log.dirs={data}",
        "--override", f"listeners=PLAINTEXT://127.0.0.1:{port}",
        "--override", f"node.id={NODE_ID}",
    ]  # fmt: skip


def refused(data: Path, port: int = 0) -> str:
    """Attempt a start that is refused; returns its stderr output."""
    ended = subprocess.run(
        command(data, port), capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    return ended.stderr


@contextlib.contextmanager
def process(data: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yields a broker process and its port."""
    with subprocess.Popen(
        command(data), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as started:
        try:
            assert started.stdout is not None
            ready = started.stdout.readline()
            yield started, int(ready.partition("127.0.0.1:")[2].partition(",")[0])
        finally:
            started.kill()


def test_sigterm_under_load_ends_cleanly(data: Path) -> None:
    with process(data) as (broker, port), WireClient(("127.0.0.1", port)) as client:
        create(client, "t")
        acknowledged: list[int] = []
        enough = threading.Event()

        def load() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sent = [client.send(produce_request("t", batch(b"v")), 9) for _ in range(5)]
                    for each in sent:
                        answer = client.answer(each).responses[0].partition_responses[0]
                        acknowledged.append(answer.base_offset)
                    enough.set()

        thread = threading.Thread(target=load)
        thread.start()
        assert enough.wait(TIMEOUT_SECONDS)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(TIMEOUT_SECONDS) == 0
        thread.join(TIMEOUT_SECONDS)
    assert (data / MARKER).exists()
    with RunningBroker(data) as again, WireClient(again.address) as client:
        assert fetch(client, "t").high_watermark > max(acknowledged)


def test_a_killed_broker_serves_what_it_acknowledged(data: Path) -> None:
    with process(data) as (broker, port), WireClient(("127.0.0.1", port)) as client:
        create(client, "t")
        assert produce(client, "t", batch(b"v")).error_code == 0
        broker.kill()
        broker.wait(TIMEOUT_SECONDS)
    assert not (data / MARKER).exists()
    with RunningBroker(data) as again, WireClient(again.address) as client:
        assert values(fetch(client, "t")) == [b"v"]


def test_a_data_directory_in_use_is_refused(data: Path) -> None:
    with RunningBroker(data):
        assert str(data) in refused(data)


def test_a_port_in_use_is_refused_and_the_next_start_need_not_recover(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        create(client, "t")
        produce(client, "t", batch(b"v"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in refused(data, port)
    assert (data / MARKER).exists()
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        assert values(fetch(client, "t")) == [b"v"]


def test_a_damaged_meta_properties_is_refused(data: Path) -> None:
    with RunningBroker(data):
        pass
    for content in (b"", b"\xff\xfe\x00", b"version=1\nnode.id=0\n", b"version=1\nnode.id=x\n"):
        (data / "meta.properties").write_bytes(content)
        assert "meta.properties" in refused(data)
