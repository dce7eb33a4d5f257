"""A deleted topic concerns only itself: commands show and copy all other topics."""

from __future__ import annotations

import json
import subprocess
from argparse import Namespace
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from ottla.client.cluster import ClusterClient
from ottla.testing import Broker
from ottla.tools.admin import offsets
from ottla.tools.admin.offsets import LATEST
from ottla.tools.cli.mirror import Mirror
from ottla.tools.stream.mirror_progress import Progress
from ottla.wire.errors import ErrorCode
from tests.tools.cli.ottla_command import Ottla, mirroring

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


def lines_until(mirror: subprocess.Popen[str], wanted: str) -> list[str]:
    """The lines of a mirror, up to this one."""
    assert mirror.stderr is not None
    lines = []
    for line in mirror.stderr:
        lines.append(line.strip())
        if lines[-1] == wanted:
            return lines
        assert len(lines) < 1000, lines
    raise AssertionError(lines)


def dropped(name: str) -> str:
    return f"ottla mirror: {name} is no longer copied: it was deleted in the source"


def test_a_mirror_drops_deleted_topics_and_copies_the_others(
    ottla: Ottla, there: Ottla, running: Broker
) -> None:
    for name in ("m-kept", "m-gone"):
        running.create_topic(name)
        there.ok(f"produce {name}", b"1\n")
    mirror = mirroring(there, ottla, "--topics", "m-.*")
    assert mirror.stderr is not None
    try:
        lines_until(mirror, "m-kept: 1 record copied, lag 0")
        there.ok("topic delete m-gone --yes")
        lines_until(mirror, dropped("m-gone"))
        there.ok("produce m-kept", b"2\n")
        lines = lines_until(mirror, "m-kept: 2 records copied, lag 0")
        assert not any("m-gone" in line for line in lines), lines
        there.ok("topic create m-gone --partitions 1")
        there.ok("produce m-gone", b"3\n4\n")
        lines_until(mirror, "m-gone: 2 records copied, lag 0")
    finally:
        mirror.kill()
        mirror.wait()
        mirror.stderr.close()
    assert ottla.ok("consume m-kept -e").split() == ["1", "2"]
    assert ottla.ok("consume m-gone -e").split() == ["1", "3", "4"]


def test_a_mirror_drops_a_topic_that_is_deleted_before_it_is_read(
    there: Ottla, running: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    running.create_topic("soon")
    there.ok("produce soon", b"1\n")
    options = Namespace(
        once=True, topics=None, groups=None, prefix="", report=None, dry_run=False)
    with ClusterClient(there.address) as source:
        mirror = Mirror(options, source, source)
        for topic in ("soon", "nowhere"):
            mirror.names[topic] = topic
            mirror.progress[topic, 0] = Progress((topic, 0), 0, 0)
            mirror.remembered[topic, 0] = 0.0
        assert mirror.ends() == {("soon", 0): 1}
    assert mirror.names.keys() == {"soon"}
    assert mirror.progress.keys() == mirror.remembered.keys() == {("soon", 0)}
    assert capsys.readouterr().err == dropped("nowhere") + "\n"
