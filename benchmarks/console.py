"""The console: how soon it is ready, its memory, and what a viewer costs.

    python -m benchmarks.console [--topics 10000] [--viewers 10] [--seconds 30]

It starts a broker, makes topics of ten partitions, starts `ottla console`, and opens streams as
browsers do.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from ottla.client.cluster import Cluster
from ottla.wire.messages import CreateTopicsRequest

PARTITIONS = 10
AT_ONCE = 200
STARTS = 5
PATHS = "path=/overview&path=/history%3Fmeasure%3Dlag&path=/topics"


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.create_server(("localhost", 0)) as made:
        return int(made.getsockname()[1])


@contextlib.contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of `ottla` that has printed its ready line."""
    made = subprocess.Popen(
        [sys.executable, "-m", "ottla", *words], stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL)
    assert made.stdout is not None
    made.stdout.readline()
    try:
        yield made
    finally:
        made.terminate()
        made.wait(60)
        made.stdout.close()


def memory_mib(pid: int, name: str = "VmRSS") -> float:
    """Resident memory; VmHWM is the most there was."""
    text = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """CPU time used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def make_topics(address: str, count: int) -> None:
    """Create topics."""
    with Cluster(address, request_seconds=300, patience_seconds=300) as cluster:
        for first in range(0, count, AT_ONCE):
            topics = [
                CreateTopicsRequest.Topic(
                    name=f"topic-{number:05}", num_partitions=PARTITIONS, replication_factor=1,
                    assignments=[], configs=[])
                for number in range(first, min(first + AT_ONCE, count))
            ]
            cluster.controller().call(CreateTopicsRequest(topics=topics, timeout_ms=300_000))


def asked(port: int, path: str) -> tuple[float, int]:
    """How long an answer takes, and its size."""
    connection = http.client.HTTPConnection("localhost", port, timeout=300)
    began = time.perf_counter()
    connection.request("GET", path)
    size = len(connection.getresponse().read())
    taken = time.perf_counter() - began
    connection.close()
    return taken, size


def viewer(port: int, stop: threading.Event) -> None:
    """A page that is open."""
    connection = http.client.HTTPConnection("localhost", port, timeout=300)
    connection.request("GET", f"/api/v1/stream?{PATHS}")
    answer = connection.getresponse()
    while not stop.is_set() and answer.readline():
        pass
    connection.close()


def cost_of_viewers(pid: int, port: int, viewers: int, seconds: float) -> float:
    """The share of a core that the console uses while pages are open."""
    stop = threading.Event()
    threads = [threading.Thread(target=viewer, args=(port, stop), daemon=True)
               for _ in range(viewers)]
    for thread in threads:
        thread.start()
    time.sleep(5)                       # the first answers are whole
    before = cpu_seconds(pid)
    time.sleep(seconds)
    used = (cpu_seconds(pid) - before) / seconds
    stop.set()
    return used


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker_port, port = free_port(), free_port()
        address = f"localhost:{broker_port}"
        words = ["console", "--bootstrap-server", address, "--listen", f"localhost:{port}",
                 "--history", f"{folder}/history"]
        with process("server", "start", "--override", f"listeners=PLAINTEXT://{address}",
                     "--override", f"log.dirs={folder}/data"):
            make_topics(address, options.topics)
            starts, used = [], []
            for _ in range(STARTS):
                began = time.perf_counter()
                with process(*words) as started:
                    starts.append(time.perf_counter() - began)
                    used.append(cpu_seconds(started.pid))
            print(f"ready after {median(starts):.2f} s ({min(starts):.2f}-{max(starts):.2f}, "
                  f"{STARTS} starts), {median(used):.2f} s of CPU")
            with process(*words) as console:
                print(f"memory when ready: {memory_mib(console.pid):.0f} MiB")
                for path in ("overview", "topics"):
                    first, size = asked(port, f"/api/v1/{path}")
                    again = asked(port, f"/api/v1/{path}")[0]
                    print(f"{path}: {first:.2f} s, again {again:.2f} s, {size / 1024:.0f} KiB "
                          f"({options.topics} topics of {PARTITIONS} partitions)")
                idle = cost_of_viewers(console.pid, port, 1, options.seconds)
                busy = cost_of_viewers(console.pid, port, options.viewers, options.seconds)
                each = (busy - idle) / max(options.viewers - 1, 1)
                print(f"CPU: {idle:.1%} of a core with 1 page open, {busy:.1%} with "
                      f"{options.viewers}: {each:.2%} for each further one")
                print(f"memory: {memory_mib(console.pid):.0f} MiB, at most "
                      f"{memory_mib(console.pid, 'VmHWM'):.0f} MiB")


if __name__ == "__main__":
    main()
