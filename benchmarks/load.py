"""Runs Ottla and Apache Kafka with their data on tmpfs, and puts the same raw load on them.

Results call the CPU of `bare` the floor: `bare` is a server that does only what is needed to answer
the load's requests.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine
from compat_tests.brokers import KafkaBroker, OttlaBroker

BLASTER = Path(__file__).with_name("peers") / "blaster"
BARE = Path(__file__).with_name("peers") / "bare"
MEMORY = Path("/dev/shm")
# Deleted topics must free their memory soon; otherwise a long run would fill it.
SETTINGS = ("log.segment.delete.delay.ms=500", "log.retention.check.interval.ms=1000")

AnyBroker = OttlaBroker | KafkaBroker
KAFKAS_FLUSH = "ottla, no flush"
"""An Ottla that, like Apache Kafka, does not wait for the disk before it acknowledges acks=all."""


class Target(Protocol):
    """What the load generator needs from a server."""

    port: int
    pid: int


def build(peer: Path) -> None:
    """Compile a peer's C program if needed."""
    subprocess.run(["make", "-s", "-C", peer], check=True)


class Bare:
    """A process of `bare` that serves one topic. Each of `files` is one partition."""

    def __init__(self, topic: str, files: Sequence[Path]) -> None:
        build(BARE)
        self.process = subprocess.Popen([BARE / "bare", topic, *files], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port, self.pid = int(self.process.stdout.readline()), self.process.pid

    def __enter__(self) -> Bare:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


class LoadFailed(Exception):
    """The load generator failed, for example because the broker refused a request."""


@contextlib.contextmanager
def stopped(broker: AnyBroker) -> Iterator[None]:
    """Stop a running broker when the block ends, even with an exception."""
    try:
        yield
    finally:
        broker.stop()


@contextlib.contextmanager
def running(broker: AnyBroker) -> Iterator[None]:
    """Start a broker for the block."""
    broker.start()
    with stopped(broker):
        yield


@contextlib.contextmanager
def both_brokers(*settings: str, kafkas_flush: bool = False) -> Iterator[dict[str, AnyBroker]]:
    """Run Ottla and Kafka with these settings for a block, with their segments in memory. With
    `kafkas_flush`, also run KAFKAS_FLUSH."""
    build(BLASTER)
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=MEMORY))
    brokers: dict[str, AnyBroker] = {
        "ottla": OttlaBroker(directory / "ottla", (*SETTINGS, *settings)),
        "kafka": KafkaBroker(directory / "kafka", (*SETTINGS, *settings)),
    }
    if kafkas_flush:
        weaker = (*SETTINGS, *settings, "ottla.acks.all.flush=false")
        brokers[KAFKAS_FLUSH] = OttlaBroker(directory / "weaker", weaker)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        for broker in brokers.values():
            stack.enter_context(running(broker))
        yield brokers


@contextlib.contextmanager
def topic(broker: AnyBroker, name: str, partitions: int, **config: str) -> Iterator[str]:
    """A new topic whose partitions have leaders; it is deleted when the block ends."""
    make_topic(broker, name, partitions, **config)
    yield name
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([name])[name].result(60)


def make_topic(broker: AnyBroker, name: str, partitions: int, **config: str) -> None:
    """Creates a topic and waits until its partitions have leaders. In the names of settings, write
    underscores for dots."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    made = NewTopic(name, partitions, 1, config=settings)
    admin.create_topics([made], operation_timeout=30)[name].result(60)
    if isinstance(broker, KafkaBroker):     # Ottla answers once it leads the partitions
        wait_until_led(broker, name, partitions)


def wait_until_led(broker: AnyBroker, name: str, partitions: int) -> None:
    """Wait until every partition accepts records, because Kafka answers CreateTopics before the
    partitions have leaders."""
    few = {"partitions": partitions, "conns": partitions, "seconds": 0.1, "warmup": 0}
    for _ in range(100):
        with contextlib.suppress(LoadFailed):
            if blast(broker, "small", name, **few)["requests"] > 10 * partitions:
                return
        time.sleep(0.1)
    raise LoadFailed(f"{name} takes no records")


def blast(
    broker: Target,
    mode: str,
    name: str,
    core: int | None = None,
    behind: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Run blaster against a broker. Returns blaster's results and two more: the share of user time
    in the broker's CPU time, and the CPU seconds of all processes except broker and blaster.

    With `core`, broker and blaster run on this core only. With `behind`, this blaster has the
    lowest priority, so that it hardly disturbs another blaster, whose load is measured.
    """
    settings = {"port": broker.port, "topic": name, "pid": broker.pid, **options}
    words: list[str] = []
    for option, value in settings.items():
        words.append(f"--{option.replace('_', '-')}")
        words += [] if value is True else [str(value)]
    with _pinned(broker.pid, core):
        return _blast(broker, mode, words, behind)


@contextlib.contextmanager
def _pinned(pid: int, core: int | None) -> Iterator[None]:
    """While the block runs, let three things use one core only: process `pid`, this process, and
    the processes that this process starts."""
    if core is None:
        yield
        return
    threads = [0, *(int(path.name) for path in Path(f"/proc/{pid}/task").iterdir())]
    before = os.sched_getaffinity(0)
    for thread in threads:
        os.sched_setaffinity(thread, {core})
    try:
        yield
    finally:
        for thread in threads:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, before)


def _blast(broker: Target, mode: str, words: list[str], behind: bool) -> dict[str, Any]:
    before, busy_before = machine.cpu_time(broker.pid), machine.busy_seconds()
    done = subprocess.run(
        [*(["nice", "-n", "19"] if behind else []), BLASTER / "blaster", mode, *words],
        capture_output=True, text=True, timeout=300
    )
    if done.returncode != 0:
        raise LoadFailed(f"blaster {mode} {' '.join(words)}: {done.stderr or done.stdout}")
    result: dict[str, Any] = json.loads(done.stdout)
    after = machine.cpu_time(broker.pid)
    user, system = after.user - before.user, after.system - before.system
    busy = machine.busy_seconds() - busy_before
    result["broker_user_share"] = user / max(user + system, 0.01)
    result["foreign_cpu_s"] = max(0.0, busy - user - system - result["blaster_cpu_s"])
    return result
