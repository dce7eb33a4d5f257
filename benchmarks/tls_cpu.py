"""How much CPU do TLS and its handshakes cost?

The load is the same for both brokers: a closed loop in Python with the module ssl, over TLS and,
for comparison, without TLS. It produces and fetches with requests and replies of up to a mebibyte,
and opens connections that end after their first reply and do not resume a TLS session. The broker's
key is ECDSA P-256. Segments are on tmpfs, and the brokers take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import load, machine, report
from benchmarks.raw_client import frame
from compat_tests.brokers import KafkaBroker, OttlaBroker
from ottla.tools.zookeeper.local import free_port
from ottla.wire.messages import ApiVersionsRequest
from tests.broker.produce_fetch import batch, fetch_request, produce_request
from tests.broker.security.authority import Authority

BATCHES = {"60 × 1,000 B": 60, "1,000 × 1,000 B": 1000}
DEPTH = 4
Broker = OttlaBroker | KafkaBroker
Places = dict[str, tuple[Broker, int]]
"""For each kind of broker, a broker and the port of its TLS listener."""


@contextlib.contextmanager
def secured() -> Iterator[tuple[Places, ssl.SSLContext]]:
    """Run both brokers with a TLS listener for a block; yields them, and a client's context that
    trusts them."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=load.MEMORY))
    load.build(load.BLASTER)
    authority = Authority(directory)
    settings = (
        *load.SETTINGS, "ssl.keystore.type=PEM", f"ssl.keystore.location={authority.issue('b')}",
        "ssl.client.auth=none", "log.retention.ms=-1",
    )  # fmt: skip
    places: Places = {}
    try:
        for kind, made in (("ottla", OttlaBroker), ("kafka", KafkaBroker)):
            broker, port = made(directory / kind, settings), free_port()
            broker.listen_also({"SSL": port})
            broker.start()
            places[kind] = broker, port
        context = ssl.create_default_context(cafile=str(authority.file))
        context.check_hostname = False
        yield places, context
    finally:
        for broker, _ in places.values():
            broker.stop()
        shutil.rmtree(directory)


def connect(port: int, context: ssl.SSLContext | None) -> socket.socket:
    """Open a connection, over TLS if there is a context."""
    plain = socket.create_connection(("localhost", port), 60)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain if context is None else context.wrap_socket(plain)


def reply(sock: socket.socket, scratch: bytearray) -> int:
    """Read one reply; returns its size."""
    head = b""
    while len(head) < 4:
        head += sock.recv(4 - len(head))
    size = left = int.from_bytes(head, "big")
    view = memoryview(scratch)
    while left:
        left -= sock.recv_into(view[: min(left, len(scratch))])
    return size


def produce(port: int, context: ssl.SSLContext | None, topic: str, records: int, size: int) -> int:
    """Send at least `size` bytes of values; returns how many bytes were sent."""
    request = frame(produce_request(topic, batch(*[bytes(1000)] * records), acks=1), 9)
    count, scratch = size // (1000 * records) + 1, bytearray(1 << 16)
    with connect(port, context) as sock:
        for number in range(count + DEPTH):
            if number < count:
                sock.sendall(request)
            if number >= DEPTH:
                reply(sock, scratch)
    return count * records * 1000


def fetch(port: int, context: ssl.SSLContext | None, topic: str, records: int, size: int) -> int:
    """Fetch from the beginning of the topic again and again, until at least `size` bytes have come;
    returns how many bytes came."""
    asked = {"max_bytes": 1 << 20, "partition_max_bytes": records << 10, "max_wait_ms": 0}
    request, scratch = frame(fetch_request(topic, 0, **asked), 11), bytearray(1 << 18)
    done = 0
    with connect(port, context) as sock:
        for _ in range(DEPTH):
            sock.sendall(request)
        while done < size:
            read = reply(sock, scratch)
            assert read > records * 1000 // 2, "a fetch without records: its topic is empty"
            done += read
            sock.sendall(request)
        for _ in range(DEPTH):
            done += reply(sock, scratch)
    return done


def handshakes(port: int, context: ssl.SSLContext | None, count: int) -> int:
    """Connect, ask for the versions and disconnect, this many times."""
    request, scratch = frame(ApiVersionsRequest(), 0), bytearray(1 << 16)
    for _ in range(count):
        with connect(port, context) as sock:
            sock.sendall(request)
            reply(sock, scratch)
    return count


def cost(pid: int, work: Callable[[], int], unit: float) -> float:
    """CPU seconds of the broker for each `unit` of what `work` counts."""
    before = machine.cpu_seconds(pid)
    done = work()
    return (machine.cpu_seconds(pid) - before) / done * unit


def measure(rounds: int, size: int, connections: int) -> dict[str, report.Figures]:
    """The values of all rounds, by figure and broker."""
    found: dict[str, report.Figures] = {}
    with secured() as (places, context):
        for number in range(-2, rounds):            # two rounds warm Kafka up
            for kind, (broker, port) in places.items():
                with load.topic(broker, f"tls{number + 2}", 1) as topic:
                    figures = loads(broker, port, context, topic, size, connections)
                    for name, figure in figures.items():
                        value = figure()
                        if number >= 0:
                            found.setdefault(name, {}).setdefault(kind, []).append(value)
    return found


def loads(
    broker: Broker, port: int, context: ssl.SSLContext, topic: str, size: int, connections: int
) -> dict[str, Callable[[], float]]:
    """A function for each figure of one broker. Call them in this order: produce before fetch."""
    made: dict[str, Callable[[], float]] = {}
    for where, at, used in (("TLS", port, context), ("plain", broker.port, None)):
        for title, records in BATCHES.items():
            for verb, function in (("produce", produce), ("fetch", fetch)):
                def run(f: Any = function, p: int = at, c: Any = used, r: int = records) -> float:
                    return cost(broker.pid, lambda: f(p, c, topic, r, size), 1e9)

                made[f"{verb} {title}, {where}, a GB"] = run
        def shake(p: int = at, c: Any = used) -> float:
            return cost(broker.pid, lambda: handshakes(p, c, connections), 1000)

        made[f"a thousand connections, {where}"] = shake
    return made


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--megabytes", type=int, default=300, help="of each load")
    arguments.add_argument("--connections", type=int, default=300)
    chosen = arguments.parse_args()
    found = measure(chosen.rounds, chosen.megabytes * 10**6, chosen.connections)
    rows = [
        [name, report.spread(by["ottla"], 3), report.spread(by["kafka"], 3),
         report.ratio(by["ottla"], by["kafka"])]
        for name, by in found.items()
    ]  # fmt: skip
    text = report.table(["CPU-s of the broker", "Ottla", report.PEER, "ratio"], rows)
    report.write("What does TLS cost?", "tls-cpu", text, found)


if __name__ == "__main__":
    main()
