"""A deleted topic concerns only itself: commands show and copy all other topics."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from ottla.client.cluster import ClusterClient
from ottla.testing import Broker
from ottla.tools.admin import offsets
from ottla.tools.admin.offsets import LATEST
from ottla.wire.errors import ErrorCode
from tests.tools.cli.ottla_command import Ottla

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def there(running: Broker) -> Ottla:
    return Ottla(running.bootstrap_servers)


def member_of(there: Ottla, group: str, topics: list[str]) -> Consumer:
    """A classic member, which keeps its partitions until it asks for metadata again."""
    member = Consumer({
        "bootstrap.servers": there.address, "group.id": group, "group.protocol": "classic",
        "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0,
    })  # fmt: skip
    member.subscribe(topics)
    while len(member.assignment()) < len(topics):
        member.poll(0.1)
    return member


def test_groups_are_shown_although_a_member_has_a_partition_of_a_deleted_topic(
    there: Ottla, running: Broker
) -> None:
    for topic in ("kept", "gone"):
        running.create_topic(topic)
        there.ok(f"produce {topic}", b"1\n2\n")
    member = member_of(there, "team", ["kept", "gone"])
    try:
        there.ok("topic delete gone --yes")
        assert "team" in there.ok("group list")
        rows = json.loads(there.ok("group describe team -o json"))
        assert [(row["topic"], row["end"]) for row in rows] == [("gone", None), ("kept", 2)]
        shown = there.ok(
            f"kafka-consumer-groups --bootstrap-server {there.address} --describe --group team")
        columns = {line.split()[1]: line.split()[4] for line in shown.splitlines() if line}
        assert (columns["gone"], columns["kept"]) == ("-", "2")
    finally:
        member.close()


def test_offsets_and_deletions_of_the_topics_that_exist_do_not_depend_on_the_others(
    there: Ottla, running: Broker
) -> None:
    topic = running.create_topic("here")
    there.ok(f"produce {topic}", b"1\n2\n")
    with ClusterClient(there.address) as cluster:
        wanted = {(topic, 0): LATEST, ("nowhere", 0): LATEST}
        found = offsets.at(cluster, wanted)
        assert {place: one.known for place, one in found.items()} == {
            (topic, 0): 2, ("nowhere", 0): None}
        assert found["nowhere", 0].error == UNKNOWN
        done = offsets.delete_records(cluster, {(topic, 0): 1, ("nowhere", 0): 1})
        assert done == {(topic, 0): (0, 1), ("nowhere", 0): (UNKNOWN, -1)}
