"""Topics that pipelines write have the settings of their source, and keep the records that are
written to them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError
from ottla.spark_interop.pipelines import dead_letter, mirror, replay, targets, windows
from ottla.spark_interop.pipelines.table import SETTINGS
from ottla.testing import Broker

OWN = {"retention.ms": "3600000", "cleanup.policy": "compact,delete", "segment.ms": "600000",
       "message.timestamp.type": "LogAppendTime", "max.message.bytes": "2000000"}  # fmt: skip


NUMBERS = itertools.count()


def new_topic(broker: Broker, **more: Any) -> str:
    return broker.create_topic(f"t{next(NUMBERS)}", **more)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture
def cluster(broker: Broker) -> Cluster:
    return Cluster(broker.bootstrap_servers)


def old_records(broker: Broker, cluster: Cluster) -> str:
    """A topic with records of 1970."""
    topic = new_topic(broker, configs={"retention.ms": "-1"})
    producer = Producer(cluster.client())
    for n in range(3):
        producer.produce(topic, b"v", timestamp=1_000 + n)
    assert producer.flush(30) == 0
    return topic


def made(cluster: Cluster, topic: str) -> dict[str, str]:
    return {name: setting.value for name, setting in cluster.settings(topic).items()}


def test_a_copy_has_the_settings_of_its_source_but_keeps_timestamps(
    broker: Broker, cluster: Cluster
) -> None:
    source, copy = new_topic(broker, configs=OWN), f"{new_topic(broker)}-copy"
    like = targets.settings_like(cluster, source)
    targets.prepare(cluster, copy, 3, like, lambda _: False)
    found = made(cluster, copy)
    assert {name: found[name] for name in OWN} == OWN | {
        "message.timestamp.type": "CreateTime",
        "max.message.bytes": str(2_000_000 + targets.HEADER_BYTES),
    }
    assert len(cluster.partitions(copy)) == 3


def test_old_records_go_to_topics_that_keep_them(broker: Broker, cluster: Cluster) -> None:
    source, young = old_records(broker, cluster), new_topic(broker)
    older = targets.older_in_topic(cluster, source, {})
    like = targets.settings_like(cluster, young)
    assert like["retention.ms"] == "604800000"
    targets.prepare(cluster, f"{source}-copy", 1, like, older)
    assert made(cluster, f"{source}-copy")["retention.ms"] == "-1"
    with pytest.raises(PipelineError, match=rf"{young} keeps records for 604800000 ms, and this"):
        targets.prepare(cluster, young, 1, like, older)
    # Only the records that are still to be written matter, and none of these is old.
    targets.prepare(cluster, young, 1, like, targets.older_in_topic(cluster, source, {0: 3}))


def test_a_copy_takes_records_that_have_grown_old(broker: Broker, cluster: Cluster) -> None:
    limit = {"message.timestamp.before.max.ms": "60000"}
    like = targets.settings_like(cluster, new_topic(broker, configs=limit))
    assert not limit.keys() & like.keys()


def test_a_topic_with_the_highest_limit_of_a_record_can_be_copied(
    broker: Broker, cluster: Cluster
) -> None:
    source = new_topic(broker, configs={"max.message.bytes": "2147483647"})
    like = targets.settings_like(cluster, source)
    targets.prepare(cluster, f"{source}-copy", 1, like, None)
    assert made(cluster, f"{source}-copy")["max.message.bytes"] == "2147483647"


def test_a_compacted_topic_takes_no_records_of_one_that_is_not(
    broker: Broker, cluster: Cluster
) -> None:
    for policy in ("compact", "compact,delete"):
        keeps_newest = new_topic(broker, configs={"cleanup.policy": policy})
        for has_older in (None, lambda _: False):
            for like in ({}, {"cleanup.policy": "delete"}):
                with pytest.raises(PipelineError, match=f"^{keeps_newest} has .*={policy}, which"):
                    targets.prepare(cluster, keeps_newest, 1, like, has_older)
            like = targets.settings_like(cluster, keeps_newest)
            targets.prepare(cluster, keeps_newest, 1, like, has_older)


def test_a_topic_that_cannot_hold_the_records_is_refused(
    broker: Broker, cluster: Cluster
) -> None:
    stamping = new_topic(broker, configs={"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(PipelineError, match=r"set message\.timestamp\.type of \w+ to CreateTime"):
        targets.prepare(cluster, stamping, 1, {}, lambda _: False)
    with pytest.raises(PipelineError, match="needs at least 2"):
        targets.prepare(cluster, stamping, 2, {}, None)
    targets.prepare(cluster, stamping, 1, {}, None)     # records get the present time anyway
    with pytest.raises(PipelineError, match="not found"):
        targets.prepare(cluster, "nothing", 1, {}, None, create=False)


def test_a_replay_of_old_records_makes_a_topic_that_keeps_them(
    broker: Broker, cluster: Cluster
) -> None:
    archived = {SETTINGS: {"retention.ms": "86400000", "retention.bytes": "5"}}
    for name, oldest_ms, kept in (("old", 1_000, "-1"), ("now", None, "86400000")):
        topic = f"{new_topic(broker)}-{name}"
        replay.prepare(cluster, topic, 3, archived, oldest_ms, True)
        found = made(cluster, topic)
        assert (found["retention.ms"], found["retention.bytes"]) == (kept, "-1")
        assert len(cluster.partitions(topic)) == 3
    with pytest.raises(PipelineError, match="keeps records for 604800000 ms, and this run writes"):
        replay.prepare(cluster, new_topic(broker), 1, archived, 1_000, True)


def test_with_gaps_allowed_a_new_topic_of_dead_letters_still_keeps_old_records(
    broker: Broker, cluster: Cluster
) -> None:
    """If only the topic of good records existed, the other one got the retention of the source, and
    its records were deleted at once."""
    place: Any = Checkpoint()
    source, good = old_records(broker, cluster), new_topic(broker)
    day = ConfigResource(ConfigResource.Type.TOPIC, source, incremental_configs=[ConfigEntry(
        "retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)])  # fmt: skip
    admin = AdminClient(cluster.client())
    admin.incremental_alter_configs([day])[day].result(30)
    dead_letter.prepared(cluster, source, (good, f"{good}-bad"), None, place, True)
    assert made(cluster, f"{good}-bad")["retention.ms"] == "-1"


def test_windows_of_other_options_are_others(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, cluster: Cluster
) -> None:
    """The test checks which options `Table.writing` compares with those of earlier runs."""
    compared: list[dict[str, Any]] = []

    def writing(_files: object, _kind: str, about: dict[str, Any], _origin: object) -> None:
        compared.append(about)
        raise NoSpark

    monkeypatch.setattr(windows.Table, "writing", writing)
    for name in ("Files", "stream_topic", "_aggregated"):
        monkeypatch.setattr(windows, name, lambda *_, **__: None)
    avro = {"format": "avro", "schema": '"int"'}
    base: dict[str, Any] = {"window": "1 hour", "aggregates": {"n": "count(*)"}, "to": "t", **avro}
    others: list[dict[str, Any]] = [
        {"window": "2 hours"}, {"aggregates": {"n": "sum(1)"}}, {"to": "u"}, {"to": None},
        {"schema": '"long"'}, {"format": "text", "schema": None}, {"time_column": "at"},
        {"by": ["k"]}, {"slide": "1 minute"}, {"session_gap": True, "by": ["k"]},
        {"watermark": "1 day"},
        {"name": "n"}, {"updates": True}, {"schemas": "there"},
    ]  # fmt: skip
    same: list[dict[str, Any]] = [
        {}, {"every": "1 minute"}, {"records_per_batch": 5}, {"allow_gaps": True}, {"final": True},
    ]  # fmt: skip
    source, spark = new_topic(broker), None
    for more in (*same, *others):
        with suppress(NoSpark):
            windows.windows(spark, cluster, source, "path", **(base | more))
    assert len(compared) == len(same) + len(others)
    assert all(about == compared[0] for about in compared[: len(same)])
    assert all(about != compared[0] for about in compared[len(same) :])


class NoSpark(Exception):
    """Raised at the point where a pipeline needs Spark."""


class Checkpoint:
    """A directory's files, in memory."""

    root = "the checkpoint"

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def exists(self, name: str) -> bool:
        return name in self.files

    def list(self, name: str) -> dict[str, int]:
        return {each: 0 for each in self.files if each.startswith(f"{name}/")}

    def read(self, name: str) -> str:
        return self.files[name]

    def write(self, name: str, text: str) -> None:
        self.files[name] = text


def test_a_checkpoint_belongs_to_one_name(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is recorded under a pipeline's name. Under another name, a run would not find that a
    killed run had committed a batch, and would write this batch again."""
    place: Any = Checkpoint()
    source = new_topic(broker)

    def dead_letters(name: str | None) -> None:
        to = f"{source}-good", f"{source}-bad"
        dead_letter.prepared(cluster, source, to, name, place, False)

    def mirrored(name: str | None) -> None:
        spark: Any = None
        with suppress(NoSpark):
            mirror.mirror(spark, cluster, source, cluster, "", to=f"{source}-copy", name=name)

    def no_spark(*_: object) -> None:
        raise NoSpark

    monkeypatch.setattr(mirror, "Files", lambda *_: place)
    monkeypatch.setattr(mirror, "_stream", no_spark)

    for run in (dead_letters, mirrored):
        place.files.clear()
        run(None)
        run(None)
        with pytest.raises(PipelineError, match=r"with name .*, but this run has other"):
            run("other")


def test_records_that_earlier_runs_have_read_may_have_grown_old(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror leaves out records that came from its destination. There are no positions of such
    records, nor of markers and aborted records: only the checkpoint shows that they were read."""
    place: Any = Checkpoint()
    source, copy = old_records(broker, cluster), new_topic(broker)
    for name in ("good", "bad"):
        broker.create_topic(f"{source}-{name}")

    def dead_letters() -> None:
        dead_letter.prepared(cluster, source, (f"{source}-good", f"{source}-bad"), None, place,
                             False)  # fmt: skip

    def mirrored() -> None:
        spark: Any = None
        with suppress(NoSpark):
            mirror.mirror(spark, cluster, source, cluster, "", to=copy)

    def no_spark(*_: object) -> None:
        raise NoSpark

    monkeypatch.setattr(mirror, "Files", lambda *_: place)
    monkeypatch.setattr(mirror, "_stream", no_spark)
    for run in (dead_letters, mirrored):
        place.files.clear()
        place.write("offsets/0", f'v1\n{{}}\n{{"{source}":{{"0":2}}}}')
        place.write("commits/0", "v1\n{}")
        place.write("offsets/1", f'v1\n{{}}\n{{"{source}":{{"0":3}}}}')
        with pytest.raises(PipelineError, match="this run writes older records"):
            run()                       # batch 1 was begun, and has perhaps written nothing
        place.write("commits/1", "v1\n{}")
        run()
