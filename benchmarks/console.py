"""Does the console stay light and quick on a large cluster, and does a search leave clients alone?

    python -m benchmarks.console [--topics 10000] [--groups 1000] [--members 100] [--search-gib 10]

One broker, topics of ten partitions, groups whose members heartbeat. Of `ottla console`: how soon
it is ready, its memory, what an open page costs, how long the overview and the list of topics take:
a page's stream that is opened as soon as the console is ready (its first event has the brokers, a
later one what is unhealthy, the last one all sums), and a request that waits for everything. In
Chromium: how soon after the console's start the overview is painted, how long the list of topics
takes to be shown once its data are there, and the frames while it is scrolled. Meanwhile somebody
asks again and again for what needs no cluster: how long that takes is how long the console's loop
stands still. Then a search through a topic with one client that writes small records beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks import report
from benchmarks.group_load import CONSUMER_HEARTBEAT, Member
from compat_tests.requirements import program
from ottla.client.cluster import Cluster
from ottla.tools.admin import topics
from ottla.tools.admin.topics import leader
from ottla.tools.stream.batches import PRODUCE_MAX, check_produced, produce_request
from ottla.wire.messages import ConsumerGroupHeartbeatRequest, CreateTopicsRequest
from ottla.wire.records import Record, build_batch

PARTITIONS = 10
AT_ONCE = 200
STARTS = 5
COLD = 3
"""Consoles that are started to be asked for the overview at once."""
BEAT_SECONDS = 0.02
PUBLISHED = (
    ("AKHQ", "ready after 34 s, lags with 256 MB (issue 580); 50 to 65 s for the list of 1,000 to "
     "1,500 topics (55, 156)"),
    ("kafbat", "42,000 partitions: 1.4.2 and 1.5.0 could not be used (issue 1776); hundreds of MB"),
)
"""What users of others have reported. Neither has figures of CPU for each viewer."""
PATHS = "path=/overview&path=/history%3Fmeasure%3Dlag&path=/topics"
HEARTBEATS_AT_ONCE = 500
ASKED = 400
"""Small records of the client beside a search, with and without it."""
VALUE_SIZE = 10_000
FRAMES = """
() => new Promise((done) => {
  const box = document.querySelector(".scroll"), frames = [];
  let left = 180, before = 0;
  const step = (now) => {
    if (before) frames.push(now - before);
    before = now;
    box.scrollTop += 1500;
    left -= 1;
    if (left) requestAnimationFrame(step); else done(frames);
  };
  requestAnimationFrame(step);
})
"""


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
            made = [
                CreateTopicsRequest.Topic(
                    name=f"topic-{number:05}", num_partitions=PARTITIONS, replication_factor=1,
                    assignments=[], configs=[])
                for number in range(first, min(first + AT_ONCE, count))
            ]
            cluster.controller().call(CreateTopicsRequest(topics=made, timeout_ms=300_000))


def fill_groups(port: int, count: int, members: int, stop: threading.Event) -> None:
    """Groups with members, all of them over one connection, which heartbeat until they stop."""
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
    """Do something every ten seconds."""
    while not stop.wait(10):
        work()


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


def first_overview(port: int) -> dict[str, float]:
    """When the stream of an overview has the brokers, what is unhealthy in the topics, and all
    sums; and the longest time for which the console's loop stood still meanwhile."""
    stop, beats = threading.Event(), [0.0]
    beating = threading.Thread(target=beat, args=(port, stop, beats), daemon=True)
    beating.start()
    connection = http.client.HTTPConnection("localhost", port, timeout=300)
    began = time.perf_counter()
    connection.request("GET", "/api/v1/stream?path=/overview")
    answer = connection.getresponse()
    found: dict[str, float] = {}
    while "all sums" not in found:
        line = answer.readline()
        assert line, "the stream has ended"
        if not line.startswith(b"data: "):
            continue
        value, now = json.loads(line[6:])["value"], time.perf_counter() - began
        found.setdefault("brokers", now)
        if value.get("topics") is not None:
            found.setdefault("topics and health", now)
        if not value["pending"]:
            found["all sums"] = now
    connection.close()
    stop.set()
    beating.join()
    return found | {"loop stood still": max(beats)}


def beat(port: int, stop: threading.Event, beats: list[float]) -> None:
    """Ask for what needs no cluster again and again; how long each answer takes."""
    connection = http.client.HTTPConnection("localhost", port, timeout=300)
    while not stop.wait(BEAT_SECONDS):
        began = time.perf_counter()
        connection.request("GET", "/api/v1/session")
        connection.getresponse().read()
        beats.append(time.perf_counter() - began)
    connection.close()


def painted(playwright: Any, words: list[str], port: int) -> float:
    """How long after its start a console's overview is on the screen, with its brokers."""
    browser = playwright.chromium.launch(
        executable_path=program("chromium"), args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    with process(*words):
        began = time.perf_counter()
        page.goto(f"http://localhost:{port}/")
        page.wait_for_function("() => document.querySelector('tr.row')", timeout=300_000)
        taken = time.perf_counter() - began
    browser.close()
    return taken


def in_browser(words: list[str], port: int) -> dict[str, list[float]]:
    """How soon the overview of a console that has just been started is painted; of one that runs,
    how long the list of topics takes from its data to the screen, and the frames of scrolling:
    their length, and how much of it the main thread works."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        cold = free_port()
        there = [f"localhost:{cold}" if word == f"localhost:{port}" else word for word in words]
        first = [painted(playwright, there, cold) for _ in range(COLD)]
        browser = playwright.chromium.launch(
            executable_path=program("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.add_init_script("""
            const parse = JSON.parse;
            JSON.parse = (text) => { if (text.includes('"path":"/topics"'))
              window.came ??= performance.now(); return parse(text); };
            const drawn = () => setTimeout(() => { window.shown ??= performance.now(); });
            new MutationObserver(() => { if (!window.shown && document.querySelector("tr.row"))
              requestAnimationFrame(drawn); })
              .observe(document, { childList: true, subtree: true });""")
        page.goto(f"http://localhost:{port}/topics")
        page.wait_for_function("() => window.shown && window.came", timeout=300_000)
        drawn = page.evaluate("() => (window.shown - window.came) / 1000")
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")

        def busy() -> float:
            found = devtools.send("Performance.getMetrics")["metrics"]
            return next(one["value"] for one in found if one["name"] == "TaskDuration")

        before = busy()
        frames: list[float] = page.evaluate(FRAMES)
        worked = (busy() - before) * 1000 / len(frames)
        browser.close()
    return {"overview painted s": first, "topics from data to screen s": [drawn],
            "frame ms": frames, "frame work ms": [worked]}


def fill(address: str, gib: float) -> None:
    """A topic with so many bytes."""
    from confluent_kafka import Producer

    with Cluster(address) as cluster:
        topics.create(cluster, "haystack", partitions=4, replication_factor=1)
        topics.create(cluster, "small", partitions=1, replication_factor=1)
    producer = Producer({
        "bootstrap.servers": address, "linger.ms": 20, "batch.size": 1_000_000, "acks": 1,
        "queue.buffering.max.kbytes": 262_144})
    value = json.dumps({"order": 1, "note": "x" * (VALUE_SIZE - 30)}).encode()
    for number in range(int(gib * (1 << 30) / len(value))):
        while True:
            try:
                producer.produce("haystack", value, partition=number % 4)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(300)


def small_records(address: str) -> list[float]:
    """How many milliseconds a small record takes to be acknowledged."""
    found = []
    batch = build_batch([Record(value=b"x" * 100)])
    with Cluster(address) as cluster:
        connection = cluster.node(leader(cluster, ("small", 0)))
        for _ in range(ASKED):
            began = time.perf_counter()
            request = produce_request("small", 0, batch, acks=1)
            check_produced(connection.call(request, at_most=PRODUCE_MAX))
            found.append((time.perf_counter() - began) * 1000)
    return found


def beside_a_search(address: str, port: int, rounds: int) -> dict[str, Any]:
    """The client's times without and with a search that finds nothing, in turns; what the search
    has looked at."""
    quiet: list[float] = []
    searched: list[float] = []
    looked: list[dict[str, Any]] = []
    path = "/api/v1/topics/haystack/records?from=oldest&text=nowhere"
    whole = f"{path}&max_records=100000000&max_bytes=20000000000&max_seconds=300"

    def search(at: str) -> None:
        connection = http.client.HTTPConnection("localhost", port, timeout=400)
        connection.request("GET", at)
        answer = json.loads(connection.getresponse().read())
        looked.append({"ended": answer["ended"], **answer["scanned"], "budget": answer["budget"]})
        connection.close()

    for _ in range(rounds):
        quiet += small_records(address)
        running = threading.Thread(target=search, args=(whole,))
        running.start()
        while running.is_alive():
            searched += small_records(address)
        running.join()
    search(path)
    return {"quiet ms": quiet, "searched ms": searched, "searches": looked}


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return quantiles(values, n=100)[98]


def measure(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    """Everything."""
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
        found |= {"ready s": starts, "ready CPU-s": used}
        cold = []
        for _ in range(COLD):
            with process(*words):
                cold.append(first_overview(port))
        for name in cold[0]:
            found[f"first overview: {name} s"] = [one[name] for one in cold]
        with process(*words) as console:
            found["memory when ready MiB"] = [memory_mib(console.pid)]
            for path in ("overview", "topics"):
                first, size = asked(port, f"/api/v1/{path}")
                found[f"{path} first s"] = [first]
                found[f"{path} s"] = [asked(port, f"/api/v1/{path}")[0] for _ in range(5)]
                found[f"{path} KiB"] = [size / 1024]
            found["memory without groups MiB"] = [memory_mib(console.pid)]
            if options.browser:
                found |= in_browser(words, port)
            idle = cost_of_viewers(console.pid, port, 1, options.seconds)
            busy = cost_of_viewers(console.pid, port, options.viewers, options.seconds)
            found["CPU % with one page"] = [100 * idle]
            found["CPU % of each further page"] = [
                100 * (busy - idle) / max(options.viewers - 1, 1)]
            fill_groups(broker_port, options.groups, options.members, stop)
            found["groups s"] = [asked(port, "/api/v1/groups")[0] for _ in range(5)]
            stop.set()
            found["memory in the end MiB"] = [memory_mib(console.pid)]
            found["memory at most MiB"] = [memory_mib(console.pid, "VmHWM")]
            if options.search_gib:
                fill(address, options.search_gib)
                found |= beside_a_search(address, port, options.rounds)
    return found


def rows_of(found: dict[str, Any]) -> list[list[str]]:
    """The table."""
    rows = [[name, report.spread(values)] for name, values in found.items()
            if name not in ("frame ms", "quiet ms", "searched ms", "searches")]
    if frames := found.get("frame ms"):
        rows.append(["frames a second while scrolling", f"{1000 * len(frames) / sum(frames):.0f}"])
        rows.append(["frames longer than 20 ms", f"{sum(one > 20 for one in frames)} of "
                     f"{len(frames)}"])
    if found.get("searched ms"):
        without, beside = p99(found["quiet ms"]), p99(found["searched ms"])
        rows.append(["p99 of a small record, ms: without and beside a search",
                     f"{without:.2f}, {beside:.2f}: {beside / without:.2f} ×"])
        for one in found["searches"]:
            rows.append([
                f"a search of at most {one['budget']['bytes'] / (1 << 20):,.0f} MiB and "
                f"{one['budget']['seconds']} s",
                f"ended by {one['ended']} after {one['bytes'] / (1 << 20):,.0f} MiB, "
                f"{one['seconds']:.1f} s"])
    return rows


def main() -> None:
    """Measure, print, write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--search-gib", type=float, default=10.0)
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-browser", dest="browser", action="store_false")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, folder)
    what = (f"{options.topics} topics of {PARTITIONS} partitions, then {options.groups} groups of "
            f"{options.members} members; a search through {options.search_gib:g} GiB")
    others = report.table(["others, as their users report", ""], [list(one) for one in PUBLISHED])
    report.write(
        "Does the console stay light and quick on a large cluster?", "console",
        f"{what}.\n\n{report.table(['', 'median (range)'], rows_of(found))}\n\n{others}", found)


if __name__ == "__main__":
    main()
