"""What do many, slow and short connections cost, and how do they affect other clients?

The loads run one after the other, in several rounds. The probe of `fairness`, which produces a
small record every 3 ms, runs alone just before each load, and then beside it. For each load, the
ratio of the probe's 99th percentile beside the load to the one before it may be at most 1.5, in the
median of the rounds. The broker's memory must stay within the limits of its settings. Data are on
tmpfs.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import selectors
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import machine, report
from benchmarks.fairness import NOW_MS, create_topics, percentile, prefer, probe, produce
from benchmarks.load import MEMORY
from benchmarks.many_partitions import open_files
from benchmarks.raw_client import RawClient, frame
from compat_tests.brokers import OttlaBroker
from ottla.tools.zookeeper.local import free_port
from ottla.wire.messages import ApiVersionsRequest, FetchRequest, ProduceRequest
from ottla.wire.records import Record, build_batch

Load = Callable[[int], contextlib.AbstractContextManager[None]]
TOPIC = "bench"
IDLE, BUSY, READERS, WRITERS = 3000, 1000, 100, 500


def connect(port: int, count: int) -> list[RawClient]:
    """Connections that have sent ApiVersions."""
    clients = [RawClient(port) for _ in range(count)]
    for client in clients:
        client.ask(ApiVersionsRequest(), 0)
    return clients


@contextlib.contextmanager
def idle(port: int) -> Iterator[None]:
    """Hold idle connections for the block."""
    clients = connect(port, IDLE)
    yield
    for client in clients:
        client.close()


@contextlib.contextmanager
def in_background(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run `work` until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def busy(port: int) -> Iterator[None]:
    """Connections that each send a small produce request about twice a second."""
    clients = connect(port, BUSY)
    made = ProduceRequest.TopicData
    batch = build_batch([Record(timestamp=NOW_MS, value=bytes(100))])
    data = made(name=TOPIC, partition_data=[made.PartitionData(index=0, records=batch)])
    request = frame(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[data]), 9)

    def work(stop: threading.Event) -> None:
        with selectors.DefaultSelector() as ready:
            for client in clients:
                ready.register(client.socket, selectors.EVENT_READ)
            while not stop.is_set():
                for number, client in enumerate(clients):
                    client.socket.sendall(request)
                    if number % 2 == 1:  # so that requests do not come in bursts
                        time.sleep(0.001)
                        for key, _ in ready.select(0):
                            key.fileobj.recv(1 << 16)  # type: ignore[union-attr]

    with in_background(work):
        yield
    for client in clients:
        client.close()


@contextlib.contextmanager
def storm(port: int) -> Iterator[None]:
    """Open one connection after the other, and close each as soon as it is open."""

    def work(stop: threading.Event) -> None:
        while not stop.is_set():
            socket.create_connection(("127.0.0.1", port)).close()
            time.sleep(0.001)  # nearly a thousand a second

    with in_background(work):
        yield


@contextlib.contextmanager
def slow_readers(port: int) -> Iterator[None]:
    """Clients that each send ten fetches of 50 MB and do not read the replies."""
    clients = connect(port, READERS)
    made = FetchRequest.Topic
    wanted = made.Partition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, session_id=0,
        session_epoch=-1, topics=[made(topic="large", partitions=[wanted])],
        forgotten_topics_data=[], rack_id="",
    )
    for client in clients:
        client.socket.sendall(frame(request, 11) * 10)
    yield
    for client in clients:
        client.close()


@contextlib.contextmanager
def slow_writers(port: int) -> Iterator[None]:
    """Clients that announce frames of 50 MB and send them at 10 KB/s each."""
    clients = connect(port, WRITERS)
    for client in clients:
        client.socket.sendall((50 << 20).to_bytes(4, "big") + b"\0\0\0\x09\0\0\0\1")

    def work(stop: threading.Event) -> None:
        while not stop.is_set():
            for number, client in enumerate(clients):
                client.socket.sendall(bytes(1000))
                if number % 25 == 24:  # all 500 in 0.1 s, but not at the same instant
                    time.sleep(0.005)

    with in_background(work):
        yield
    for client in clients:
        client.close()


LOADS: dict[str, Load] = {
    f"{IDLE:,} idle connections": idle,
    f"{BUSY:,} busy connections, 2,000 produces/s": busy,
    "1,000 connections a second, opened and closed": storm,
    f"{READERS} clients that ask for 500 MB and do not read": slow_readers,
    f"{WRITERS} clients that send 50 MB frames at 10 KB/s": slow_writers,
}


class Round(NamedTuple):
    """The result of one round of a load; the times are the probe's 99th percentiles, in ms."""

    alone: float
    beside: float
    median: float
    cores: float
    """CPU seconds that the broker used per second, including the cost of the probe's requests."""
    mib: float
    descriptors: int


def measure(rounds: int, seconds: float) -> dict[str, list[Round]]:
    """The results of all rounds, by load."""
    found: dict[str, list[Round]] = {name: [] for name in LOADS}
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        broker = OttlaBroker(Path(directory), port=free_port())
        broker.start()
        prefer(broker.pid)
        try:
            client = RawClient(broker.port)
            create_topics(client, [TOPIC, "large"], 1)
            batch = build_batch([Record(timestamp=NOW_MS, value=bytes(900_000))])
            for _ in range(60):
                produce(client, "large", batch)
            for _ in range(rounds):
                for name, load in LOADS.items():
                    found[name].append(one_round(broker, load, seconds))
                    print(name, found[name][-1], flush=True)
        finally:
            broker.stop()
    return found


def one_round(broker: OttlaBroker, load: Load, seconds: float) -> Round:
    """Run the probe alone, then beside the load; returns the figures of both."""
    with probe(broker.port) as alone:
        time.sleep(seconds)
    with load(broker.port), probe(broker.port) as beside:
        before = machine.cpu_seconds(broker.pid)
        time.sleep(seconds)
        cores = (machine.cpu_seconds(broker.pid) - before) / seconds
        memory, files = machine.resident_mb(broker.pid), open_files(broker.pid)
    time.sleep(0.5)  # wait for the load's after-effects
    quantiles = percentile(alone, 0.99), percentile(beside, 0.99), percentile(beside, 0.5)
    return Round(*quantiles, cores, memory, files)


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=4)
    given = arguments.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = measure(given.rounds, given.seconds)
    rows = [
        [
            name,
            report.spread([each.median for each in results], 2),
            report.spread([each.beside for each in results], 2),
            report.spread([each.alone for each in results], 2),
            f"{median(each.beside / each.alone for each in results):.1f} ×",
            f"{median(each.cores for each in results):.2f}",
            f"{max(each.mib for each in results):.0f}",
            str(max(each.descriptors for each in results)),
        ]
        for name, results in found.items()
    ]
    text = report.table(
        ["load", "another client's p50, ms", "its p99, ms", "its p99 without the load, ms",
         "ratio of the p99s", "broker's CPU, cores", "broker's memory, MiB",
         "broker's descriptors"],
        rows,
    )  # fmt: skip
    measured = {name: [each._asdict() for each in results] for name, results in found.items()}
    report.write("What do other clients notice of many connections?", "connections", text, measured)


if __name__ == "__main__":
    main()
