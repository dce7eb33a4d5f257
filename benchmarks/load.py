"""Ottla and Apache Kafka side by side under the same raw load, their data on tmpfs."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine
from compat_tests.brokers import KafkaBroker, OttlaBroker

BLASTER = Path(__file__).with_name("peers") / "blaster"
MEMORY = Path("/dev/shm")
# Deleted topics leave the memory at once, or a long run fills it.
SETTINGS = ("log.segment.delete.delay.ms=500", "log.retention.check.interval.ms=1000")

AnyBroker = OttlaBroker | KafkaBroker


class LoadFailed(Exception):
    """The load generator was refused something."""


@contextlib.contextmanager
def both_brokers(*settings: str) -> Iterator[dict[str, AnyBroker]]:
    """Ottla and Kafka, running with these settings, with their segments in memory."""
    subprocess.run(["make", "-s", "-C", BLASTER], check=True)
    directory = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=MEMORY))
    brokers: dict[str, AnyBroker] = {
        "ottla": OttlaBroker(directory / "ottla", (*SETTINGS, *settings)),
        "kafka": KafkaBroker(directory / "kafka", (*SETTINGS, *settings)),
    }
    started: list[AnyBroker] = []
    try:
        for broker in brokers.values():
            broker.start()
            started.append(broker)
        yield brokers
    finally:
        for broker in started:
            broker.stop()
        shutil.rmtree(directory)


@contextlib.contextmanager
def topic(broker: AnyBroker, name: str, partitions: int) -> Iterator[str]:
    """A topic that is led, and is deleted afterwards."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=30)[name].result(60)
    wait_until_led(broker, name, partitions)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(60)


def wait_until_led(broker: AnyBroker, name: str, partitions: int) -> None:
    """Until every partition takes records: Kafka answers CreateTopics before it leads them."""
    for _ in range(50):
        try:
            blast(
                broker,
                "small",
                name,
                partitions=partitions,
                conns=partitions,
                seconds=0.1,
                warmup=0,
            )
            return
        except LoadFailed:
            time.sleep(0.1)
    raise LoadFailed(f"{name} takes no records")


def blast(broker: AnyBroker, mode: str, name: str, **options: Any) -> dict[str, Any]:
    """One run of blaster against a broker, with the share of the machine that others took."""
    settings = {"port": broker.port, "topic": name, "pid": broker.pid, **options}
    words = [x for k, v in settings.items() for x in (f"--{k.replace('_', '-')}", str(v))]
    before, busy_before = machine.cpu_time(broker.pid), machine.busy_seconds()
    done = subprocess.run(
        [BLASTER / "blaster", mode, *words], capture_output=True, text=True, timeout=300
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
