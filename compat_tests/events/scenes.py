"""The scenes for events: each has a topic, one pipeline that reads it, and the expected result."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from pyspark.sql import SparkSession

from compat_tests.brokers import Broker
from compat_tests.spark_flights import committed_lines
from compat_tests.waiting import wait_until
from ottla import spark_interop as si
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import PipelineError

FIRST_MS = 1_000_000
STEP_MS = 100           # so each window of one second has ten records
KEYS = 20
SCHEMA = "n INT"


@dataclass(frozen=True)
class Record:
    """A record that a scene has sent."""

    number: int
    value: bytes

    @property
    def key(self) -> bytes:
        return b"k%d" % (self.number % KEYS)

    @property
    def time_ms(self) -> int:
        return FIRST_MS + self.number * STEP_MS


def numbered(first: int, count: int) -> list[Record]:
    """Records whose values match SCHEMA."""
    return [Record(n, b'{"n":%d}' % n) for n in range(first, first + count)]


@dataclass
class Scene:
    """One pipeline on a topic of its own. `sent` has the records that its result must contain."""

    spark: SparkSession
    broker: Broker
    pipeline: str
    place: Path
    topic: str
    partitions: int = 2
    sent: list[Record] = field(default_factory=list)
    number: int = 0     # how often the pipeline began anew; part of its paths and names
    deleted: set[str] = field(default_factory=set)      # ids of deleted topics

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        self.cluster = Cluster(self.broker.bootstrap)

    def begin(self) -> None:
        """Create the topic, and a directory for all files of the scene."""
        self.place.mkdir()
        self.make(self.topic, self.partitions)

    @property
    def path(self) -> Path:
        return self.place / f"{self.pipeline}-{self.number}"

    @property
    def to(self) -> str:
        return f"{self.topic}-to{self.number or ''}"

    @property
    def targets(self) -> list[str]:
        """The topics that the pipeline writes."""
        more = {"dead-letter": [f"{self.to}-bad"]}.get(self.pipeline, [])
        return [self.to, *more] if self.pipeline in WRITE_TOPICS else []

    def make(self, topic: str, partitions: int, **config: str) -> None:
        """Create a topic. An older topic of this name may still be in deletion."""
        settings = {"retention.ms": "-1"} | {k.replace("_", "."): v for k, v in config.items()}

        new = NewTopic(topic, partitions, -1, config=settings)

        def made() -> bool:
            try:
                self.admin.create_topics([new])[topic].result(60)
            except KafkaException:      # the topic may exist although the answer was lost
                return self.cluster.topic_ids([topic])[topic] not in {None, *self.deleted}
            return True

        wait_until(made, f"topic {topic}")

    def delete(self, topic: str) -> None:
        self.deleted.add(self.cluster.topic_id(topic))
        self.ask(lambda admin: admin.delete_topics([topic])[topic], "UNKNOWN_TOPIC_OR_PART")

    def grow(self, topic: str, partitions: int) -> None:
        if len(self.cluster.partitions(topic)) < partitions:
            new = NewPartitions(topic, partitions)
            self.ask(lambda admin: admin.create_partitions([new])[topic], "INVALID_PARTITIONS")

    def set(self, topic: str, **config: str) -> None:
        settings = {k.replace("_", "."): v for k, v in config.items()}
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config=settings)
        self.ask(lambda admin: admin.alter_configs([resource])[resource])

    def delete_records(self, offsets: dict[int, int]) -> None:
        """Delete the records of the scene's topic before these offsets."""
        for each in [TopicPartition(self.topic, p, offset) for p, offset in offsets.items()]:
            self.ask(lambda admin: admin.delete_records([each])[each])  # noqa: B023

    def ask(self, ask: Callable[[AdminClient], Any], done: str | None = None) -> None:
        """Send an admin request, and repeat it if a broker was killed. `done` is the error that a
        repeated request gets if the first one was executed, but its answer was lost."""

        def asked(admin: AdminClient) -> None:
            try:
                ask(admin).result(60)
            except KafkaException as error:
                if error.args[0].name() != done:
                    raise

        self.cluster.asked(asked)

    def send(self, records: list[Record]) -> None:
        """Produce records. All records of a key go to one partition until partitions are added."""
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "acks": "all",
                             "partitioner": "murmur2_random", "enable.idempotence": True})
        for each in records:
            producer.produce(self.topic, each.value, each.key, timestamp=each.time_ms,
                             on_delivery=delivered)  # fmt: skip
        assert producer.flush(120) == 0 and not failed, failed
        self.sent += records

    def run(self, **more: Any) -> dict[str, Any]:
        """Run the pipeline, and return its report."""
        return PIPELINES[self.pipeline](self, **more)

    def attempt(self, **more: Any) -> str | None:
        """Run the pipeline; return its message if it raised PipelineError, otherwise None."""
        try:
            self.run(**more)
        except PipelineError as error:
            return str(error)
        return None

    def anew(self) -> None:
        """Make the next run start from the beginning, with other paths and names."""
        self.number += 1

    def check(self, surely: list[Record] | None = None) -> None:
        """Raise AssertionError unless the result has exactly the sent records. If `surely` is
        given, only these must be in the result; other sent records may be missing."""
        found, wanted = self._found(), self._wanted(self.sent)
        if isinstance(found, Counter):
            least = wanted if surely is None else self._wanted(surely)
            missing, more = least - found, found - wanted
            assert not missing and not more, f"missing {dict(missing)}, too many {dict(more)}"
        else:
            assert found == wanted, f"{found} is not {wanted}"

    def _wanted(self, records: list[Record]) -> Any:
        if self.pipeline == "latest":
            return {r.key: r.value for r in records}
        if self.pipeline in ("windows", "windows --to"):
            good = [r for r in records if r.value.startswith(b'{"n"')]
            return Counter(r.time_ms // 1000 for r in good)
        return Counter(r.value for r in records)

    def _found(self) -> Any:
        spark, path = self.spark, self.path
        if self.pipeline == "archive":
            verdict = si.verify(spark, path, self.broker.bootstrap)
            assert verdict["ok"], verdict["problems"]
            return Counter(bytes(r.value) for r in si.read_archive(spark, path).collect())
        if self.pipeline == "latest":
            return {bytes(r.key): bytes(r.value) for r in si.read_latest(spark, path).collect()}
        if self.pipeline == "windows":
            self.run(final=True)
            rows = si.read_windows(spark, path).selectExpr("unix_seconds(window_start) AS s", "n")
            return Counter({r.s: r.n for r in rows.collect()})
        if self.pipeline == "windows --to":
            lines = committed_lines(self.broker, self.to)
            newest = {key: json.loads(value) for _, _, key, value in lines}
            seconds = {key: _seconds(row["window_start"]) for key, row in newest.items()}
            return Counter({seconds[key]: row["n"] for key, row in newest.items()})
        return Counter(value for to in self.targets
                       for *_, value in committed_lines(self.broker, to))  # fmt: skip


def _seconds(text: str) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())


def archive(scene: Scene, **more: Any) -> dict[str, Any]:
    return si.archive(scene.spark, scene.broker.bootstrap, scene.topic, scene.path, by="none",
                      **more)  # fmt: skip


def latest(scene: Scene, **more: Any) -> dict[str, Any]:
    return si.latest(scene.spark, scene.broker.bootstrap, scene.topic, scene.path, **more)


def windows(scene: Scene, **more: Any) -> dict[str, Any]:
    return si.windows(
        scene.spark, scene.broker.bootstrap, scene.topic, scene.path, window="1 second",
        watermark="2 seconds", format="json", schema=SCHEMA, aggregates={"n": "count(*)"}, **more,
    )  # fmt: skip


def windows_to(scene: Scene, **more: Any) -> dict[str, Any]:
    return windows(scene, to=scene.to, updates=True, **more)


def replay(scene: Scene, **more: Any) -> dict[str, Any]:
    """Bring the archive up to date and replay it, as `ottla pipeline run` does with a file of both
    steps. The archive is the source of the replay, so it stays when the replay begins anew."""
    own = {k: more.pop(k) for k in ("allow_gaps", "every") if k in more}
    allowed = {k: v for k, v in own.items() if k == "allow_gaps"}
    path = scene.place / "archive"
    si.archive(scene.spark, scene.broker.bootstrap, scene.topic, path, by="none", **allowed)
    done = si.replay(scene.spark, path, scene.broker.bootstrap, scene.to, create=True, **more)
    while own.get("every"):
        time.sleep(0.2)
        si.archive(scene.spark, scene.broker.bootstrap, scene.topic, path, by="none")
        si.replay(scene.spark, path, scene.broker.bootstrap, scene.to, create=True, **more)
    return done


def mirror(scene: Scene, **more: Any) -> dict[str, Any]:
    at = scene.broker.bootstrap
    return si.mirror(scene.spark, at, scene.topic, at, scene.path, to=scene.to,
                     name=f"mirror-{scene.number}", names=("here", "there"), **more)  # fmt: skip


def dead_letter(scene: Scene, **more: Any) -> dict[str, Any]:
    return si.dead_letter(
        scene.spark, scene.broker.bootstrap, scene.topic, scene.to, f"{scene.to}-bad", scene.path,
        name=f"dead-{scene.number}-{scene.topic}", format="json", schema=SCHEMA, **more,
    )  # fmt: skip


PIPELINES: dict[str, Callable[..., dict[str, Any]]] = {
    "archive": archive,
    "latest": latest,
    "windows": windows,
    "windows --to": windows_to,
    "replay": replay,
    "mirror": mirror,
    "dead-letter": dead_letter,
}
WRITE_TOPICS = ("windows --to", "replay", "mirror", "dead-letter")
KEEP_PARTITIONS = ("replay", "mirror", "dead-letter")
