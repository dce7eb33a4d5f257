"""Does the console stay light and quick on a large cluster?

    python -m benchmarks.console [--topics 10000] [--groups 1000] [--members 100]

One broker has topics of ten partitions, and groups whose members send heartbeats. The benchmark
measures the time until `ottla console` is ready, its memory, the CPU of an open page, and how long
the overview and the list of topics take. It reads the overview in two ways. The first way is a
page's stream, opened as soon as the console is ready: the first event has the brokers, a later
event has the unhealthy topics, and the last event has all sums. Beside this stream, the benchmark
repeats a request that needs no cluster; its longest time shows how long the console's event loop
was blocked. The second way is a plain request, whose reply has everything.

In Chromium it measures the time from the console's ready line until the overview is painted, the
time from the arrival of the topics' data until the list is on the screen, and the cost of scrolling
the list.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.console_lists import drawn, opened, scrolled
from benchmarks.group_load import CONSUMER_HEARTBEAT, Member
from benchmarks.machine import cpu_seconds
from ottla.client.cluster import ClusterClient
from ottla.tools.zookeeper.local import free_port
from ottla.wire.messages import ConsumerGroupHeartbeatRequest, CreateTopicsRequest

PARTITIONS = 10
AT_ONCE = 200
STARTS = 5
COLD = 3
"""How many consoles are started to measure the first overview."""
BEAT_SECONDS = 0.02
PUBLISHED = (
    ("AKHQ", "ready after 34 s, slow with 256 MB of memory (issue 580); 50 to 65 s for the list of"
     " 1,000 to 1,500 topics (issues 55, 156)"),
    ("kafbat", "versions 1.4.2 and 1.5.0 could not be used with 42,000 partitions (issue 1776);"
     " hundreds of MB of memory"),
)
"""What users of other consoles have reported. For neither is the CPU per viewer known."""
PATHS = "path=/overview&path=/history%3Fmeasure%3Dlag&path=/topics"
HEARTBEATS_AT_ONCE = 500
FRAMES = 180


@contextlib.contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of `ottla` for a block, which begins when the command prints its ready line."""
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
    """The resident memory of a process in MiB; with the name VmHWM, its maximum so far."""
    text = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def make_topics(address: str, count: int) -> None:
    """Create topics."""
    with ClusterClient(address, request_seconds=300, patience_seconds=300) as cluster:
        for first in range(0, count, AT_ONCE):
            made = [
                CreateTopicsRequest.Topic(
                    name=f"topic-{number:05}", num_partitions=PARTITIONS, replication_factor=1,
                    assignments=[], configs=[])
                for number in range(first, min(first + AT_ONCE, count))
            ]
            cluster.controller().call(CreateTopicsRequest(topics=made, timeout_ms=300_000))


def fill_groups(port: int, count: int, members: int, stop: threading.Event) -> None:
    """Creates groups; all their members use one connection, and send heartbeats until `stop`."""
    if not count:
        return
    one = Member(("127.0.0.1", port), "group-0000")
    one.find_coordinator()
    known = [(f"group-{group:04}", f"member-{number}", number)
             for group in range(count) for number in range(members)]
    epochs: dict[tuple[str, str], int] = {}

    def beat() -> None:
        for first in range(0, len(known), HEARTBEATS_AT_ONCE):
            part = known[first : first + HEARTBEATS_AT_ONCE]
            for group, member, number in part:
                epoch = epochs.get((group, member), 0)
                one.send(ConsumerGroupHeartbeatRequest(
                    group_id=group, member_id=member, member_epoch=epoch,
                    rebalance_timeout_ms=60_000 if not epoch else -1,
                    subscribed_topic_names=[f"topic-{number % 10:05}"] if not epoch else None,
                    topic_partitions=[] if not epoch else None), CONSUMER_HEARTBEAT)
            for group, member, _ in part:
                epochs[group, member] = max(one.receive(68, CONSUMER_HEARTBEAT).member_epoch, 0)

    beat()
    beats = threading.Thread(target=until_stopped, args=(beat, stop), daemon=True)
    beats.start()


def until_stopped(work: Any, stop: threading.Event) -> None:
    """Calls `work` every ten seconds until `stop`."""
    while not stop.wait(10):
        work()


def asked(port: int, path: str) -> tuple[float, int]:
    """Request a path; returns the seconds until the answer is complete, and its size in bytes."""
    connection = http.client.HTTPConnection("localhost", port, timeout=300)
    began = time.perf_counter()
    connection.request("GET", path)
    size = len(connection.getresponse().read())
    taken = time.perf_counter() - began
    connection.close()
    return taken, size


def viewer(port: int, stop: threading.Event) -> None:
    """Reads the stream of an open page until `stop`."""
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
    time.sleep(5)                       # until the first answers are complete
    before = cpu_seconds(pid)
    time.sleep(seconds)
    used = (cpu_seconds(pid) - before) / seconds
    stop.set()
    return used


def first_overview(port: int) -> dict[str, float]:
    """The seconds until the stream of an overview has shown the brokers, the unhealthy topics, and
    all sums; also the longest time for which the console's loop was blocked meanwhile."""
    stop, beats = threading.Event(), [0.0]
    beating = threading.Thread(target=beat, args=(port, stop, beats), daemon=True)
    beating.start()
    connection = http.client.HTTPConnection("localhost", port, timeout=300)
    began = time.perf_counter()
    connection.request("GET", "/api/v1/stream?path=/overview")
    answer = connection.getresponse()
    found: dict[str, float] = {}
    while "until it shows all sums" not in found:
        line = answer.readline()
        assert line, "the stream has ended"
        if not line.startswith(b"data: "):
            continue
        value, now = json.loads(line[6:])["value"], time.perf_counter() - began
        found.setdefault("until it shows the brokers", now)
        if value.get("topics") is not None:
            found.setdefault("until it shows the unhealthy topics", now)
        if not value["pending"]:
            found["until it shows all sums"] = now
    connection.close()
    stop.set()
    beating.join()
    return found | {"longest block of the loop": max(beats)}


def beat(port: int, stop: threading.Event, beats: list[float]) -> None:
    """Repeats a request that needs no cluster; appends the seconds of each answer to `beats`."""
    connection = http.client.HTTPConnection("localhost", port, timeout=300)
    while not stop.wait(BEAT_SECONDS):
        began = time.perf_counter()
        connection.request("GET", "/api/v1/session")
        connection.getresponse().read()
        beats.append(time.perf_counter() - began)
    connection.close()


def painted(playwright: Any, words: list[str], port: int) -> float:
    """The seconds from a console's ready line until the screen shows the overview with brokers."""
    with opened(playwright) as page, process(*words):
        began = time.perf_counter()
        page.goto(f"http://localhost:{port}/")
        page.wait_for_function("() => document.querySelector('tr.row')", timeout=300_000)
        return time.perf_counter() - began


def in_browser(words: list[str], port: int) -> dict[str, list[float]]:
    """For new consoles, the time until the overview is painted. For the console at `port`, the time
    from the topics' data until their list is on the screen, and what scrolling the list costs."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        cold = free_port()
        there = [f"localhost:{cold}" if word == f"localhost:{port}" else word for word in words]
        first = [painted(playwright, there, cold) for _ in range(COLD)]
        with opened(playwright) as page:
            shown = [drawn(page, f"http://localhost:{port}/topics")]
            return {"from ready until the overview is painted, s": first,
                    "topics: from the arrival of the data until they are shown, s": shown,
                    **scrolled(page, FRAMES)}


def measure(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Measure everything; returns the values of each figure, by its name."""
    broker_port, port, http_port = free_port(), free_port(), free_port()
    address = f"localhost:{broker_port}"
    words = ["console", "--bootstrap-server", address, "--listen", f"localhost:{port}",
             "--history", f"{folder}/history"]
    found: dict[str, Any] = {}
    stop = threading.Event()
    with process("server", "start", "--override", f"listeners=PLAINTEXT://{address}",
                 "--override", f"log.dirs={folder}/data", "--override",
                 f"ottla.http.listener=localhost:{http_port}"):
        make_topics(address, options.topics)
        starts, used = [], []
        for _ in range(STARTS):
            began = time.perf_counter()
            with process(*words) as started:
                starts.append(time.perf_counter() - began)
                used.append(cpu_seconds(started.pid))
        found |= {"start until ready, s": starts, "start until ready, CPU-s": used}
        cold = []
        for _ in range(COLD):
            with process(*words):
                cold.append(first_overview(port))
        for name in cold[0]:
            found[f"first overview: {name}, s"] = [one[name] for one in cold]
        with process(*words) as console:
            found["memory when ready, MiB"] = [memory_mib(console.pid)]
            for path in ("overview", "topics"):
                first, size = asked(port, f"/api/v1/{path}")
                found[f"{path}: first reply, s"] = [first]
                found[f"{path}: later reply, s"] = [
                    asked(port, f"/api/v1/{path}")[0] for _ in range(5)]
                found[f"{path}: size of a reply, KiB"] = [size / 1024]
            found["memory without groups, MiB"] = [memory_mib(console.pid)]
            if options.browser:
                found |= in_browser(words, port)
            idle = cost_of_viewers(console.pid, port, 1, options.seconds)
            busy = cost_of_viewers(console.pid, port, options.viewers, options.seconds)
            found["CPU with one open page, % of a core"] = [100 * idle]
            found["CPU of each further open page, % of a core"] = [
                100 * (busy - idle) / max(options.viewers - 1, 1)]
            fill_groups(broker_port, options.groups, options.members, stop)
            found["groups: reply, s"] = [asked(port, "/api/v1/groups")[0] for _ in range(5)]
            stop.set()
            found["memory with groups, MiB"] = [memory_mib(console.pid)]
            found["highest memory, MiB"] = [memory_mib(console.pid, "VmHWM")]
    return found


def main() -> None:
    """Measure, print, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--no-browser", dest="browser", action="store_false")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, folder)
    what = (f"{options.topics} topics of {PARTITIONS} partitions. The last three rows were measured"
            f" after {options.groups} groups of {options.members} members were added")
    rows = [[name, report.spread(values)] for name, values in found.items()]
    others = report.table(
        ["other consoles, as their users report", ""], [list(one) for one in PUBLISHED])
    report.write(
        "Does the console stay light and quick on a large cluster?", "console",
        f"{what}.\n\n{report.table(['', 'median (range)'], rows)}\n\n{others}", found)


if __name__ == "__main__":
    main()
