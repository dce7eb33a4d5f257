"""Broker and driver are killed with kill -9 in the middle of archive, latest, windows and replay.

`ottla pipeline run` runs as users run it, with TOML files. First, each step runs until it is
killed; in the end, one run with all steps completes. Then the results equal the source: no
duplicate, no gap.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from compat_tests.brokers import Broker, ClusterBroker, KafkaBroker, OttlaBroker
from compat_tests.flights import PARTITIONS, LoadedTopic, produce, read_flights
from compat_tests.requirements import COMPAT_DIR, java
from compat_tests.spark_flights import committed_lines, source_lines
from compat_tests.spark_session import SHORT_RUN
from ottla import spark_interop as si
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.in_place.source import read_in_place
from ottla.spark_interop.pipelines import transactional

# Takes minutes, but much longer if Apache Kafka and all these JVMs share a busy machine.
pytestmark = pytest.mark.timeout(1800)
FLIGHTS = int(os.environ.get("OTTLA_SPARK_FLIGHTS", "6000"))
RUN_SECONDS = 600
Killable = OttlaBroker | KafkaBroker | ClusterBroker
COMMON = """
bootstrap = "{bootstrap}"
records_per_batch = 1000
"""
STEPS = {
    "archive": """
[[step]]
run = "archive"
topic = "flights"
path = "{path}/archive"
by = "date"
""",
    "latest": """
[[step]]
run = "latest"
topic = "flights"
path = "{path}/latest"
""",
    "windows": """
[[step]]
run = "windows"
topic = "flights"
path = "{path}/windows"
window = "1 day"
time_column = "time_hour"
by = ["carrier"]
aggregates = {{ flights = "count(*)", minutes = "coalesce(sum(dep_delay), 0)" }}
schema = "carrier STRING, dep_delay INT, time_hour TIMESTAMP"
watermark = "10 days"
to = "daily"
updates = true
""",
    "replay": """
[[step]]
run = "replay"
path = "{path}/archive"
topic = "again"
rate = 1500
""",
}


@pytest.fixture(scope="module")
def own_broker(new_broker: Callable[..., Broker]) -> Iterator[Killable]:
    """A broker for this module only; or three, of which `--kills` kills one after the other."""
    broker = new_broker("log.segment.bytes=1048576")
    assert isinstance(broker, Killable)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def flights_there(own_broker: Killable) -> LoadedTopic:
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    config = {"retention.ms": "-1", "compression.type": "uncompressed"}
    names = [NewTopic(t, PARTITIONS, -1, config=config) for t in ("flights", "again")]
    for made in admin.create_topics(names).values():
        made.result(60)
    return produce(own_broker.bootstrap, "flights", "lz4", read_flights(FLIGHTS))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory to which the pipelines write everything."""
    return tmp_path_factory.mktemp("pipelines")


class Driver:
    """`ottla pipeline run`, with its JVM and workers in a process group."""

    def __init__(self, file: Path, log: Path) -> None:
        ottla = str(Path(sys.executable).with_name("ottla"))
        command = [ottla, "pipeline", "run", str(file), "--master", "local[2]", "--memory", "1g",
                   "--jars", str(COMPAT_DIR / "ivy")]  # fmt: skip
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, start_new_session=True, env=os.environ | SHORT_RUN
            )

    def wait_until(self, reached: Callable[[], bool]) -> bool:
        """Wait until `reached` returns true, and return True; return False if the driver ends with
        status 0 before. Raises AssertionError if the driver fails, or after RUN_SECONDS."""
        deadline = time.monotonic() + RUN_SECONDS
        while not reached():
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            if self.process.poll() is not None:
                assert self.process.returncode == 0, self.log.read_text()[-3000:]
                return False
            time.sleep(0.05)
        return True

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def file_of(steps: Iterable[str], broker: Killable, place: Path) -> Path:
    """Write a TOML file with these steps for `ottla pipeline run`."""
    file = place / f"{'-'.join(steps)}.toml"
    text = "".join([COMMON, *(STEPS[step] for step in steps)])
    file.write_text(text.format(bootstrap=broker.bootstrap, path=place))
    return file


def commits(path: Path) -> int:
    return len(list((path / "_ottla" / "commits").glob("[0-9]*.json")))


def written_to(broker: Broker, topic: str, group: str) -> int:
    try:
        cluster = Cluster(broker.bootstrap)
        to = transactional.Destination(cluster, topic, group, source_cluster=cluster.id())
        return sum(transactional.positions(to).values())
    except Exception:  # the topic does not exist yet, or the broker is down
        return 0


@pytest.mark.long
def test_killed_in_the_middle_of_each_step_the_results_are_the_sources(
    spark: SparkSession, own_broker: Killable, flights_there: LoadedTopic,
    place: Path,
) -> None:  # fmt: skip
    java()
    progress: dict[str, Callable[[], int]] = {
        "archive": lambda: commits(place / "archive"),
        "latest": lambda: commits(place / "latest"),
        "windows": lambda: written_to(own_broker, "daily", "windows-daily"),
        "replay": lambda: written_to(own_broker, "again", "replay-again"),
    }
    kills = Counter[str]()
    for step, done in progress.items():
        steps = ["archive", step] if step == "replay" else [step]   # replay needs a whole archive
        driver = Driver(file_of(steps, own_broker, place), place / "driver.log")
        before = done()
        if driver.wait_until(lambda: done() > before):  # noqa: B023
            own_broker.kill()
            own_broker.start()
            kills["broker"] += 1
            between = done()
            if driver.wait_until(lambda: done() > between):  # noqa: B023
                driver.kill()
                kills[step] += 1
    assert kills == Counter(["broker"] * 4 + list(progress)), kills
    driver = Driver(file_of(STEPS, own_broker, place), place / "driver.log")
    assert not driver.wait_until(lambda: False)
    nothing_is_missing_or_there_twice(spark, own_broker, flights_there, place)


def nothing_is_missing_or_there_twice(
    spark: SparkSession, own_broker: Killable, flights_there: LoadedTopic,
    path: Path,
) -> None:  # fmt: skip
    source = source_lines(flights_there)
    verdict = si.verify(spark, path / "archive", own_broker.bootstrap)
    assert verdict["ok"], verdict
    assert sum(p["records"] for p in verdict["partitions"].values()) == FLIGHTS
    newest: dict[bytes, bytes] = {}
    daily: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for _, _, key, value in source:
        newest[key] = value
        flight = json.loads(value)
        figures = daily[flight["time_hour"][:10], flight["carrier"]]
        figures[0] += 1
        figures[1] += flight["dep_delay"] or 0
    rows = si.read_latest(spark, path / "latest").collect()
    assert {bytes(r.key): bytes(r.value) for r in rows} == newest and len(rows) == len(newest)
    last = {key: json.loads(v) for _, _, key, v in committed_lines(own_broker, "daily")}
    assert {
        (w["window_start"][:10], w["carrier"]): [w["flights"], w["minutes"]] for w in last.values()
    } == daily
    again = committed_lines(own_broker, "again")
    same_records(again, source)
    by_partition = {p: [x for x in again if x[0] == p] for p in range(PARTITIONS)}
    assert by_partition == {p: [x for x in source if x[0] == p] for p in range(PARTITIONS)}
    if isinstance(own_broker, OttlaBroker):
        data = own_broker.directory / "data"
        names = ["partition", "timestamp", "key", "value"]
        frame = read_in_place(spark, own_broker.bootstrap, "again", [data], columns=names)
        got = frame.selectExpr("partition", "unix_millis(timestamp)", "key", "value").collect()
        same_records([(a, b, bytes(c), bytes(d)) for a, b, c, d in got], source)


def same_records(
    got: list[tuple[int, int, bytes, bytes]], wanted: list[tuple[int, int, bytes, bytes]]
) -> None:
    """Raise AssertionError if the records differ. Its message says how many records of each
    partition are missing, and how many are too many."""
    missing, more = Counter(wanted) - Counter(got), Counter(got) - Counter(wanted)
    kinds = {"missing": missing, "too many": more}
    report = {what: Counter(one[0] for one in c.elements()) for what, c in kinds.items()}
    assert not missing and not more, f"by partition: {report}"
