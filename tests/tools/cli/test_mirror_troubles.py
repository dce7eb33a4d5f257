"""`ottla mirror` copies every record that the source still has, even if records expire or are
refused, or topics grow or are created again."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import IO

import pytest
from confluent_kafka import KafkaError

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, Unreachable, check
from ottla.testing import Broker
from ottla.tools.admin import groups
from ottla.tools.cli.mirror import Copied, Mirror
from ottla.tools.stream.mirror_progress import Progress
from ottla.wire.errors import ErrorCode
from tests.tools.cli.ottla_command import Ottla, mirroring


@pytest.fixture(scope="module")
def running() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def disturbed(running: Broker) -> Iterator[Broker]:
    """The target: a broker whose answers the test replaces."""
    yield running
    running.heal()


@pytest.fixture
def there(disturbed: Broker) -> Ottla:
    return Ottla(disturbed.bootstrap_servers)


def once(source: Ottla, target: Ottla, topic: str, *more: str) -> list[str]:
    """The command line that copies one topic."""
    return ["mirror", "--from", source.address, "--to", target.address, "--topics", topic,
            "--once", *more]  # fmt: skip


def test_what_the_source_still_has_is_copied_where_earlier_records_have_expired(
    ottla: Ottla, there: Ottla
) -> None:
    topic = "expired"
    ottla.ok(f"topic create {topic} --partitions 1")
    ottla.ok(f"produce {topic}", b"1\n2\n")
    ottla.ok(once(ottla, there, topic))
    ottla.ok(f"produce {topic}", b"3\n4\n5\n6\n")
    ottla.ok(f"topic trim {topic} --before 4 --yes")
    done = ottla(once(ottla, there, topic))
    assert done.status == 0 and "2 records copied, lag 0" in done.err
    assert there.ok(f"consume {topic} -e").split() == ["1", "2", "5", "6"]
    assert f"{topic}-0: the source no longer has the records from offset 2 to 3" in done.err


def test_a_topic_that_the_targets_coordinator_hardly_knows_is_copied(
    ottla: Ottla, there: Ottla, disturbed: Broker
) -> None:
    ottla.ok("topic create fresh")
    ottla.ok("produce fresh", b"1\n")
    fault = disturbed.fail("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION")
    ottla.ok(once(ottla, there, "fresh"))
    assert fault.hits == 1
    assert there.ok("consume fresh -e").split() == ["1"]


def test_a_mirror_goes_on_when_the_target_closes_its_connections(
    ottla: Ottla, there: Ottla, disturbed: Broker
) -> None:
    """A broker closes connections when it restarts, or after ten minutes without a request."""
    ottla.ok("topic create closed")
    ottla.ok("produce closed", b"1\n")
    fault = disturbed.drop("OffsetCommit")
    ottla.ok(once(ottla, there, "closed"))
    assert fault.hits == 1
    assert there.ok("consume closed -e").split() == ["1"]


def test_a_record_that_was_refused_is_not_left_out_by_the_next_run(
    ottla: Ottla, there: Ottla
) -> None:
    """Later records are already in the target, so a count of records does not show the gap."""
    topic = "refused"
    ottla.ok(f"topic create {topic} --partitions 1")
    there.ok(f"topic create {topic} --partitions 1 --config max.message.bytes=30000")
    values = ["first", random.Random(1).randbytes(20_000).hex(), None, "last"]
    lines = "".join(json.dumps({"value": value}) + "\n" for value in values)
    ottla.ok(f"produce {topic} -i jsonl", lines.encode())
    done = ottla(once(ottla, there, topic))
    assert done.status == 1
    there.ok(f"config set topic/{topic} max.message.bytes=1000000")
    ottla.ok(once(ottla, there, topic))
    printed = there.ok(f"consume {topic} -e --output jsonl").splitlines()
    found = [json.loads(line)["value"] for line in printed]
    assert found[-3:] == values[1:]


class Groups:
    """The groups of both clusters, in place of the functions of `admin.groups`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offsets: dict[str, dict[tuple[str, int], tuple[int, int]]] = {"source": {}}
        self.refusals: list[int] = []
        self.hidden: set[str] = set()
        self.ids = ["team"]
        monkeypatch.setattr(
            groups, "list_groups", lambda _: [SimpleNamespace(id=name) for name in self.ids])
        monkeypatch.setattr(groups, "committed", self.committed)
        monkeypatch.setattr(groups, "commit", self.commit)

    def committed(self, cluster: str, group: str) -> dict[tuple[str, int], tuple[int, int]]:
        check(ErrorCode.GROUP_AUTHORIZATION_FAILED if group in self.hidden else 0)
        return self.offsets.get(cluster, {})

    def commit(
        self, cluster: str, _: str, wanted: dict[tuple[str, int], int], *, created: bool
    ) -> None:
        assert created
        check(self.refusals.pop(0) if self.refusals else 0)
        self.set(cluster, **{topic: offset for (topic, _), offset in wanted.items()})

    def set(self, cluster: str, **wanted: int) -> None:
        """Commit these offsets for partition 0 of each topic."""
        found = self.offsets.setdefault(cluster, {})
        found |= {(topic, 0): (offset, -1) for topic, offset in wanted.items()}


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> tuple[Groups, Mirror]:
    """The groups, and a mirror that has copied 100 records of two topics."""
    options = SimpleNamespace(
        once=False, topics=None, groups=".*", prefix="", report=None, dry_run=False
    )
    mirror = Mirror(options, "source", "target")  # type: ignore[arg-type]
    for topic in ("here", "there"):
        mirror.names[topic] = topic
        found = mirror.progress[topic, 0] = Progress((topic, 0), 0, 0)
        for offset in range(100):
            found.passed(offset, offset)
    return Groups(monkeypatch), mirror


def test_a_groups_offsets_that_were_refused_are_carried_over_later(
    two: tuple[Groups, Mirror], capsys: pytest.CaptureFixture[str]
) -> None:
    known, mirror = two
    known.set("source", here=10)
    known.refusals = [ErrorCode.UNKNOWN_MEMBER_ID] * 2      # the target's group has a member
    for _ in range(2):
        mirror.carry_groups()
        assert "target" not in known.offsets
    mirror.carry_groups()
    assert known.offsets["target"] == {("here", 0): (10, -1)}
    assert capsys.readouterr().err.count("the offsets of group team were not copied") == 1


def test_a_group_that_the_source_hides_does_not_end_the_mirror(
    two: tuple[Groups, Mirror], capsys: pytest.CaptureFixture[str]
) -> None:
    known, mirror = two
    known.ids, known.hidden = ["secret", "team"], {"secret"}
    for offset in (10, 20):
        known.set("source", here=offset)
        mirror.carry_groups()
        assert known.offsets["target"] == {("here", 0): (offset, -1)}
    assert capsys.readouterr().err.count("the offsets of group secret were not copied") == 1


def test_a_group_that_went_on_in_the_target_is_not_set_back(two: tuple[Groups, Mirror]) -> None:
    known, mirror = two
    known.set("source", here=10, there=20)
    known.set("target", here=30)
    mirror.carry_groups()
    assert known.offsets["target"] == {("here", 0): (30, -1), ("there", 0): (20, -1)}
    known.set("source", here=40, there=5)       # the mirror set 20, so 5 may replace it
    mirror.carry_groups()
    assert known.offsets["target"] == {("here", 0): (40, -1), ("there", 0): (5, -1)}


def test_topics_and_partitions_that_the_source_gets_later_are_copied_too(
    ottla: Ottla, there: Ottla
) -> None:
    grown, new = "grown", "new"
    ottla.ok(f"topic create {grown} --partitions 1")
    ottla.ok(f"produce {grown} --partition 0", b"1\n2\n")
    process = mirroring(ottla, there, "--topics", f"{grown}|{new}")
    assert process.stderr is not None
    try:
        wait_for(process.stderr, f"{grown}: 2 records copied, lag 0")
        ottla.ok(f"topic grow {grown} --partitions 2")
        ottla.ok(f"produce {grown} --partition 1", b"3\n")
        ottla.ok(f"topic create {new} --partitions 1")
        ottla.ok(f"produce {new}", b"4\n")
        wait_for(process.stderr, f"{grown}: 3 records copied, lag 0")
        wait_for(process.stderr, f"{new}: 1 record copied, lag 0")
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert sorted(there.ok(f"consume {grown} -e").split()) == ["1", "2", "3"]
    assert there.ok(f"consume {new} -e").split() == ["4"]


def wait_for(said: IO[str], wanted: str) -> None:
    """Read a mirror's reports up to this line."""
    lines = []
    for line in said:
        lines.append(line)
        if line.strip() == wanted:
            return
        assert len(lines) < 1000, lines
    raise AssertionError(lines)


def test_progress_is_committed_again_before_it_expires(
    monkeypatch: pytest.MonkeyPatch, two: tuple[Groups, Mirror]
) -> None:
    """Otherwise a partition without new records would be copied again after a week."""
    known, mirror = two
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(
        groups, "commit", lambda cluster, _, wanted, *__, **___: known.commit(
            cluster, "", wanted, created=True)
    )  # fmt: skip
    mirror.remember(mirror.progress)
    del known.offsets["target"]
    now += 1800
    mirror.remember([("here", 0)])
    del known.offsets["target"]
    now += 1800
    mirror.keep(now)
    assert known.offsets["target"] == {("there", 0): (100, -1)}


def test_a_topic_is_not_copied_back_while_the_group_that_says_so_has_no_coordinator(
    disturbed: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaders = [-1, 2, 2]

    def metadata(topics: list[str]) -> SimpleNamespace:
        part = SimpleNamespace(partition_index=0, leader_id=leaders.pop(0), leader_epoch=5)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[part])])

    def listed(_: ClusterClient) -> list[SimpleNamespace]:
        return [SimpleNamespace(id="ottla-mirror-T")] if len(leaders) < 2 else []

    monkeypatch.setattr(groups, "list_groups", listed)
    monkeypatch.setattr(groups, "committed", lambda *_: {("copied", 0): (1, -1)})
    with ClusterClient(disturbed.bootstrap_servers) as source:
        monkeypatch.setattr(source, "metadata", metadata)
        options = SimpleNamespace(
            once=True, topics=None, groups=None, prefix="", report=None, dry_run=False
        )
        target = SimpleNamespace(cluster_id="T")
        mirror = Mirror(options, source, target)  # type: ignore[arg-type]
        assert mirror.copied_back() == {"copied": "ottla-mirror-T"}


def test_a_copy_without_an_offset_is_no_progress(two: tuple[Groups, Mirror]) -> None:
    """After DUPLICATE_SEQUENCE_NUMBER, the offset is -1. With -1 as progress, the next run would
    treat all records as copied."""
    _, mirror = two
    found = mirror.progress["here", 0]
    mirror.waiting.append((found, 100, Copied()))
    mirror.writer = SimpleNamespace(flush=lambda: None)  # type: ignore[assignment]
    with pytest.raises(ClientError, match="but not at which offset"):
        mirror.settle()
    mirror.give_up()
    assert (found.source, found.target, found.torn) == (100, 100, False)


def test_a_refusal_that_cannot_be_remembered_is_said(
    two: tuple[Groups, Mirror], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, mirror = two
    mirror.group = "ottla-mirror-S"

    refused = Copied()
    refused.done(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)

    def away(*_: object, **__: object) -> None:
        raise Unreachable("away")

    monkeypatch.setattr(groups, "commit", away)
    mirror.waiting.append((mirror.progress["here", 0], 100, refused))
    mirror.give_up()
    assert "first delete the group ottla-mirror-S in the target" in capsys.readouterr().err


def test_a_topic_that_was_created_again_is_copied_from_its_first_record(
    ottla: Ottla, there: Ottla
) -> None:
    topic = "again"
    ottla.ok(f"topic create {topic} --partitions 1")
    ottla.ok(f"produce {topic}", b"1\n2\n")
    ottla.ok(once(ottla, there, topic))
    ottla.ok(f"topic delete {topic} --yes")
    ottla.ok(f"topic create {topic} --partitions 1")
    ottla.ok(f"produce {topic}", b"3\n4\n5\n")
    for _ in range(2):
        ottla.ok(once(ottla, there, topic))
        assert there.ok(f"consume {topic} -e").split() == ["1", "2", "3", "4", "5"]
