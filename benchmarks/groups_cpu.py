"""How much CPU do a heartbeat and an offset commit cost, and how fast does a large group settle?

One process sends the requests: each member has its own connection, with one request in flight. The
brokers take turns in the same run. Data are on tmpfs, so a flush does not wait for a disk. Apache
Kafka does not flush before it answers a commit, so a second Ottla has `ottla.acks.all.flush=false`.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import load, machine, report
from benchmarks.group_load import (
    ConsumerMember,
    Member,
    closed_loop,
    paced,
    settle,
    settle_consumers,
)

GROUPS, SIZE, LARGE = 1_000, 3, 500
CONNECTIONS, SECONDS = 32, 4.0
names = (f"bench-{number}" for number in itertools.count())


def address(broker: load.AnyBroker) -> tuple[str, int]:
    return "127.0.0.1", broker.port


def cost(broker: load.AnyBroker, run: Any) -> float:
    """CPU seconds of the broker per million of the operations that `run` counts."""
    before = machine.cpu_seconds(broker.pid)
    count = run()
    return (machine.cpu_seconds(broker.pid) - before) / count * 1e6


def heartbeats(broker: load.AnyBroker, members: Sequence[Member]) -> float:
    return cost(broker, lambda: closed_loop(members, lambda m: m.heartbeat(), SECONDS))


def commits(broker: load.AnyBroker, members: list[Member], topic: str) -> float:
    return cost(broker, lambda: closed_loop(members, lambda m: m.commit(topic, 0), SECONDS))


def grown_group(broker: load.AnyBroker, size: int) -> list[Member]:
    """Make a new group of this size; returns its members."""
    name = next(names)
    members = [Member(address(broker), name) for _ in range(size)]
    members[0].find_coordinator()
    settle(members)
    return members


def rebalance(broker: load.AnyBroker, members: list[Member]) -> tuple[float, float]:
    """All members join again; returns the seconds, and the broker's CPU ms per member."""
    before = machine.cpu_seconds(broker.pid)
    seconds = settle(members)
    return seconds, (machine.cpu_seconds(broker.pid) - before) * 1000 / len(members)


def consumer_heartbeats(broker: load.AnyBroker, topic: str) -> float:
    """CPU seconds per million heartbeats in a KIP-848 group whose assignment does not change."""
    name = next(names)
    members = [ConsumerMember(address(broker), name) for _ in range(CONNECTIONS)]
    settle_consumers(members, topic)
    found = heartbeats(broker, members)
    close(members)
    return found


def small_groups(broker: load.AnyBroker) -> list[Member]:
    """Make a thousand groups of three members, each on its own connection; returns the members."""
    members = []
    for _ in range(GROUPS):
        name = next(names)
        members += [Member(address(broker), name) for _ in range(SIZE)]
    members[0].find_coordinator()
    settle(members)
    return members


def share_of_core(broker: load.AnyBroker, members: list[Member]) -> float:
    """The share of a core, in percent, while every member sends a heartbeat every three seconds."""
    before, start = machine.cpu_seconds(broker.pid), time.monotonic()
    paced(members, interval=3.0, seconds=12.0)
    return (machine.cpu_seconds(broker.pid) - before) / (time.monotonic() - start) * 100


def make_topic(broker: load.AnyBroker) -> str:
    """Create a topic for offset commits; returns its name."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("groups", 1, 1)], operation_timeout=30)["groups"].result(60)
    return "groups"


def close(members: Sequence[Member]) -> None:
    for member in members:
        member.socket.close()


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    """The values of all rounds, by figure and broker."""
    found: dict[str, dict[str, list[float]]] = {}
    delay = "group.initial.rebalance.delay.ms=3000"
    with load.both_brokers(delay, kafkas_flush=True) as brokers:
        topics = {kind: make_topic(broker) for kind, broker in brokers.items()}
        for number in range(-1, rounds):  # a first round warms Kafka up and is not kept
            for kind, broker in brokers.items():
                members = grown_group(broker, CONNECTIONS)
                values = {
                    "heartbeat": heartbeats(broker, members),
                    "offset commit": commits(broker, members, topics[kind]),
                }
                close(members)
                values["KIP-848 heartbeat"] = consumer_heartbeats(broker, topics[kind])
                members = grown_group(broker, LARGE)
                values["settle"], values["join"] = rebalance(broker, members)
                close(members)
                if number >= 0:
                    for figure, value in values.items():
                        found.setdefault(figure, {}).setdefault(kind, []).append(value)
        for kind, broker in brokers.items():
            members = small_groups(broker)
            found.setdefault("idle groups", {})[kind] = [share_of_core(broker, members)]
            close(members)
    return found


UNITS = {
    "heartbeat": "CPU-s a million heartbeats",
    "KIP-848 heartbeat": "CPU-s a million heartbeats of KIP-848 members",
    "offset commit": "CPU-s a million commits of one offset",
    "join": f"CPU ms a member in a rebalance of {LARGE}",
    "settle": f"s until {LARGE} members of one group have joined again and have their assignment",
    "idle groups": f"% of a core, {GROUPS} groups of {SIZE} members that each send a heartbeat"
    " every 3 s",
}


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    found = measure(arguments.parse_args().rounds)
    rows = []
    for figure, by_broker in found.items():
        ours, theirs = by_broker["ottla"], by_broker["kafka"]
        weaker = by_broker[load.KAFKAS_FLUSH]
        digits = 2 if statistics.median(ours) < 10 else 1
        rows.append(
            [
                UNITS[figure], report.spread(ours, digits), report.spread(weaker, digits),
                report.spread(theirs, digits), report.ratio(ours, theirs),
                report.ratio(weaker, theirs),
            ]
        )
    header = ["figure", "Ottla", "Ottla, no flush", report.PEER, "ratio",
              "ratio, no flush"]
    text = report.table(header, rows)
    report.write("What do groups cost?", "groups-cpu", text, found)


if __name__ == "__main__":
    main()
