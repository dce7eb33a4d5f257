"""How long does a broker with 10,000 groups need at a start until it knows every group's offsets?

Every group has one member, and committed offsets for three partitions. Three times are measured
from the start of the command: to the first Metadata reply, to the first OffsetFetch reply with
offsets, and to the moment when a group of each of the 50 partitions of `__consumer_offsets` has got
its offsets.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import machine, report
from benchmarks.group_load import JOIN, SUBSCRIPTION, SYNC, Member
from benchmarks.load import AnyBroker, running, stopped
from benchmarks.report import Figures
from benchmarks.start_time import start_kafka, start_ottla
from compat_tests.brokers import KafkaBroker, OttlaBroker
from ottla.groups.routing import partition_for
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest

PARTITIONS = 50
TOPIC, TOPIC_PARTITIONS = "groups", 3
COMMIT, FETCH = 8, 5
NO_DELAY = ("group.initial.rebalance.delay.ms=0",)


def name_of(number: int) -> str:
    return f"many-groups-{number}"


def one_of_each_partition() -> list[str]:
    """One group for every partition of `__consumer_offsets`."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < PARTITIONS:
        found.setdefault(partition_for(name_of(number), PARTITIONS), name_of(number))
        number += 1
    return [found[partition] for partition in range(PARTITIONS)]


def make_groups(broker: AnyBroker, count: int) -> None:
    """Creates groups with one member each, which commits; all members share one connection."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = admin.create_topics([NewTopic(TOPIC, TOPIC_PARTITIONS, 1)], operation_timeout=30)
    made[TOPIC].result(60)
    member = Member(("127.0.0.1", broker.port), name_of(0))
    member.find_coordinator()
    for number in range(count):
        member.group, member.member_id = name_of(number), ""
        member.send(member.join_request(), JOIN)
        member.member_id = member.receive(11, JOIN).member_id
        member.send(member.join_request(), JOIN)
        member.generation = member.receive(11, JOIN).generation_id
        mine = SyncGroupRequest.Assignment(member_id=member.member_id, assignment=SUBSCRIPTION)
        sync = SyncGroupRequest(
            group_id=member.group, generation_id=member.generation, member_id=member.member_id,
            protocol_type="consumer", protocol_name="range", assignments=[mine],
        )
        member.send(sync, SYNC)
        assert member.receive(14, SYNC).error_code == 0
        member.send(commit_of(member, number), COMMIT)
        answer = member.receive(8, COMMIT)
        assert all(each.error_code == 0 for each in answer.topics[0].partitions), answer
    member.socket.close()


def commit_of(member: Member, offset: int) -> OffsetCommitRequest:
    made = OffsetCommitRequest.Topic
    partitions = [
        made.Partition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index in range(TOPIC_PARTITIONS)
    ]
    return OffsetCommitRequest(
        group_id=member.group, generation_id_or_member_epoch=member.generation,
        member_id=member.member_id, topics=[made(name=TOPIC, partitions=partitions)],
    )


def fetched_ms(broker: AnyBroker, began: float) -> tuple[float, float]:
    """The milliseconds from `began` until a first group has got its offsets, and until a group of
    each partition of `__consumer_offsets` has got its offsets."""
    client = Member(("127.0.0.1", broker.port), "")
    first = 0.0
    for group in one_of_each_partition():
        while True:
            client.send(OffsetFetchRequest(group_id=group, topics=None), FETCH)
            answer = client.receive(9, FETCH)
            if answer.error_code == 0 and answer.topics:
                break
            assert answer.error_code in (
                0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR,
            )
            time.sleep(0.005)
        assert len(answer.topics[0].partitions) == TOPIC_PARTITIONS
        first = first or (time.time() - began) * 1000
    client.socket.close()
    return first, (time.time() - began) * 1000


def measure(kind: str, count: int, rounds: int) -> Figures:
    """Create the groups once, then start and stop the broker repeatedly; returns the figures."""
    figures: Figures = {"ready_ms": [], "first_ms": [], "all_ms": [], "cpu_s": [], "idle_mb": []}
    start: Any = start_ottla if kind == "ottla" else start_kafka
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        broker: AnyBroker = (OttlaBroker if kind == "ottla" else KafkaBroker)(directory, NO_DELAY)
        with running(broker):
            make_groups(broker, count)
        for _ in range(rounds):
            began = time.time()
            broker, ready_ms = start(directory)
            with stopped(broker):
                first, last = fetched_ms(broker, began)
                figures["ready_ms"].append(ready_ms)
                figures["first_ms"].append(first)
                figures["all_ms"].append(last)
                figures["cpu_s"].append(machine.cpu_seconds(broker.pid))
                figures["idle_mb"].append(machine.resident_mb(broker.pid))
    return figures


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--groups", type=int, default=10_000)
    arguments.add_argument("--without-kafka", action="store_true")
    chosen = arguments.parse_args()
    measured = {"ottla": measure("ottla", chosen.groups, chosen.rounds)}
    if not chosen.without_kafka:
        measured["kafka"] = measure("kafka", chosen.groups, min(chosen.rounds, 2))
    names = {
        "ready_ms": ("ms to Metadata", 0),
        "first_ms": ("ms to the first group's offsets", 0),
        "all_ms": ("ms until one group of each partition of __consumer_offsets has its offsets", 0),
        "cpu_s": ("CPU-s until then", 2),
        "idle_mb": ("resident memory then, MiB", 1),
    }
    question = f"How long until a broker with {chosen.groups:,} groups serves them?"
    report.write(question, "many-groups", report.figures_table(measured, names), measured)


if __name__ == "__main__":
    main()
