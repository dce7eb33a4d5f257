"""Ottla imports a log directory of Apache Kafka, and clients notice only a pause."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from compat_tests import every_kind
from compat_tests.brokers import KafkaBroker, OttlaBroker
from compat_tests.dumps import files_below, kafka_dump, lines, ottla, ottla_dump
from compat_tests.every_kind import Written
from compat_tests.requirements import PEER_DIR, java, missing

NODE = "node.id=1"
OFTEN = ("log.initial.task.delay.ms=100", "log.flush.start.offset.checkpoint.interval.ms=500")
"""Without these settings, kill -9 would undo the DeleteRecords of the last minute."""


@dataclass
class KafkaData:
    """What a Kafka broker left: a copy of its directory after kill -9, its directory after a clean
    stop, and what was written to it. The producer is still open."""

    killed: Path
    stopped: Path
    written: Written
    port: int
    producer: Producer


@pytest.fixture(scope="module")
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaData]:
    """Fill an Apache Kafka broker, kill it, start it again, and stop it cleanly. An idempotent
    producer stays open."""
    if request.config.getoption("--broker") == "kafka":
        pytest.skip("what Ottla imports is no question to Apache Kafka")
    java()
    if subprocess.run([PEER_DIR / "setup.sh"], capture_output=True).returncode != 0:
        missing("Apache Kafka is not there")
    directory = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(directory, [*every_kind.BROKER, *OFTEN])
    broker.compile_less()
    broker.start()
    try:
        written = every_kind.write(broker.bootstrap)
        producer = every_kind.producer(broker.bootstrap, topic_metadata_refresh_interval_ms=1000)
        producer.produce("empty", b"to Kafka")
        every_kind.flush(producer)
        written.values["empty"] = [b"to Kafka"]
        broker.kill()
        shutil.copytree(directory / "data", directory / "killed")
        broker.start()
    finally:
        broker.stop()
    yield KafkaData(
        directory / "killed", directory / "data", written, broker.port, producer
    )


def import_into(source: Path, directory: Path, *flags: str) -> str:
    """Run `ottla log import`, and return its output."""
    done = subprocess.run(
        [ottla(), "log", "import", source, "--data-dir", directory / "data", *flags],
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def content(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def check_everything(bootstrap: str, written: Written) -> None:
    """Check that every topic has the same records, and every group its committed offsets."""
    found = every_kind.read_topics(bootstrap, [*written.values, "table"])
    for topic, values in written.values.items():
        assert [value for _, value in found[topic]] == values, topic
    newest = dict(found["table"])
    assert {key: value for key, value in newest.items() if value is not None} == written.newest
    for group, offsets in written.commits.items():
        topics = [topic for topic, _ in offsets]
        assert every_kind.committed(bootstrap, group, topics) == offsets


def go_on_writing(bootstrap: str) -> None:
    """Write with a new idempotent producer, and with the transactional id that Kafka knew."""
    producer = every_kind.producer(bootstrap)
    producer.produce("codec-lz4", b"after the import")
    every_kind.flush(producer)
    assert every_kind.read(bootstrap, "codec-lz4")[-1][1] == b"after the import"
    mover = every_kind.producer(bootstrap, transactional_id="mover")
    mover.init_transactions(every_kind.WAIT_SECONDS)
    mover.begin_transaction()
    mover.produce("transactions", b"after the import")
    mover.commit_transaction(every_kind.WAIT_SECONDS)
    assert every_kind.read(bootstrap, "transactions")[-1][1] == b"after the import"


def test_after_a_clean_stop_clients_go_on_with_ottla(kafka: KafkaData, tmp_path: Path) -> None:
    before = content(kafka.stopped)
    printed = import_into(kafka.stopped, tmp_path, "--link")
    assert "adopted 12 topics" in printed
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    broker = OttlaBroker(tmp_path, [NODE, f"listeners=PLAINTEXT://127.0.0.1:{kafka.port}"])
    broker.start()
    try:
        check_everything(broker.bootstrap, kafka.written)
        # The producer that wrote to Kafka before continues with its id and sequence.
        kafka.producer.produce("empty", b"to Ottla")
        every_kind.flush(kafka.producer)
        values = [value for _, value in every_kind.read(broker.bootstrap, "empty")]
        assert values == [b"to Kafka", b"to Ottla"]
        go_on_writing(broker.bootstrap)
    finally:
        broker.stop()
    shown = ottla_dump(files_below(tmp_path / "data", "empty-0"))
    batches = [line for line in shown.stdout.splitlines() if line.startswith("baseOffset")]
    producers = {line.split("producerId: ")[1].split()[0] for line in batches}
    sequences = [line.split("baseSequence: ")[1].split()[0] for line in batches]
    assert len(producers) == 1 and sequences == ["0", "1"], shown.stdout
    assert content(kafka.stopped) == before


def test_after_kill_9_nothing_is_missing(kafka: KafkaData, tmp_path: Path) -> None:
    before = content(kafka.killed)
    assert "not stopped cleanly" in import_into(kafka.killed, tmp_path)
    broker = OttlaBroker(tmp_path, [NODE])
    broker.start()
    try:
        check_everything(broker.bootstrap, kafka.written)
        go_on_writing(broker.bootstrap)
    finally:
        broker.stop()
    assert content(kafka.killed) == before
    verified = subprocess.run(
        [ottla(), "log", "verify", "--deep", "--quiet", tmp_path / "data"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (verified.returncode, verified.stdout) == (0, ""), verified.stdout + verified.stderr


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        ("*-0", ["--print-data-log"]),
        ("__consumer_offsets-*", ["--offsets-decoder"]),
        ("__cluster_metadata-*", ["--cluster-metadata-decoder"]),
    ],
)
def test_both_dump_tools_print_the_same_of_kafkas_files(
    kafka: KafkaData, pattern: str, flags: list[str]
) -> None:
    files = files_below(kafka.stopped, pattern)
    theirs, ours = kafka_dump(files, *flags), ottla_dump(files, *flags)
    assert theirs.returncode == ours.returncode == 0, theirs.stderr + ours.stderr
    assert lines(ours.stdout) == lines(theirs.stdout)
    assert len(lines(ours.stdout)) > 10
