"""Where two flags, or a flag and a property, disagree, the one that Kafka's tool takes counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from ottla.tools.admin import offsets
from ottla.tools.commands import table
from ottla.tools.kafka_names import console_producer, verifiable_consumer
from ottla.tools.kafka_names.grammar import Options, parse
from tests.tools.cli.ottla_command import Done, Ottla

ENDLESS = 5000
"""A time-out that a passing test does not reach."""


def options_of(line: str) -> Options:
    name, *words = line.split()
    return parse(table.read("kafka")[name], words)


def tool(ottla: Ottla, line: str) -> Done:
    name, _, words = line.partition(" ")
    return ottla(f"{name} --bootstrap-server {ottla.address} {words}")


@pytest.mark.parametrize(("topic", "line"), [
    ("by-flag", "kafka-console-consumer --isolation-level read_committed --max-messages 1"
     f" --timeout-ms {ENDLESS}"),
    ("by-property", "kafka-console-consumer --command-property isolation.level=read_committed"
     f" --partition 0 --offset latest --max-messages 1 --timeout-ms {ENDLESS}"),
    ("measured", "kafka-consumer-perf-test --command-property isolation.level=read_committed"
     f" --from-latest --num-records 1 --timeout {ENDLESS} --hide-header"),
])  # fmt: skip
def test_a_reader_of_committed_records_begins_before_open_transactions(
    topic: str, line: str, ottla: Ottla, monkeypatch: pytest.MonkeyPatch
) -> None:
    ottla.ok(f"topic create {topic} --partitions 1")
    ottla.ok(f"produce {topic}", b"before\n")
    producer = Producer({"bootstrap.servers": ottla.address, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush(30)
    found = offsets.required

    def then_commit(*given: Any, **named: Any) -> Mapping[offsets.Place, int]:
        """Finds where to begin, and commits the transaction before anything is read."""
        places = found(*given, **named)
        monkeypatch.undo()
        producer.commit_transaction(30)
        return places

    monkeypatch.setattr(offsets, "required", then_commit)
    done = tool(ottla, f"{line} --topic {topic}")
    assert done.status == 0 and "WARNING" not in done.out, done
    assert done.out == "open\n" or ", 1, " in done.out, done


@pytest.mark.parametrize(("words", "printed"), [
    ("--partition 0", ""), ("--partition 0 --offset latest", ""),
    ("--partition 0 --from-beginning", "1\n2\n"), ("--partition 0 --offset 1", "2\n"),
    ("", "1\n2\n"),
])  # fmt: skip
def test_auto_offset_reset_does_not_choose_where_a_named_partition_begins(
    words: str, printed: str, ottla: Ottla
) -> None:
    if "reset-me" not in ottla.ok("topic list"):
        ottla.ok("topic create reset-me --partitions 1")
        ottla.ok("produce reset-me", b"1\n2\n")
    done = tool(ottla, "kafka-console-consumer --topic reset-me --timeout-ms 300"
                       f" --command-property auto.offset.reset=earliest {words}")  # fmt: skip
    assert done.out == printed, done


@pytest.mark.parametrize(("words", "reason"), [
    ("--group g --partition 0", "Options group and partition cannot be specified together."),
    ("--command-property group.id=g --partition 0", "Options group and partition cannot"),
    ("--from-beginning --command-property auto.offset.reset=latest",
     "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest'"),
])  # fmt: skip
def test_a_console_consumer_refuses_flags_that_contradict_each_other(
    words: str, reason: str, ottla: Ottla
) -> None:
    done = tool(ottla, f"kafka-console-consumer --topic t {words}")
    assert done.status == 1 and reason in done.err, done


def test_a_negative_timeout_of_a_console_consumer_is_none(ottla: Ottla) -> None:
    ottla.ok("topic create patient --partitions 1")
    ottla.ok("produce patient", b"1\n")
    line = "kafka-console-consumer --topic patient --from-beginning --timeout-ms -1 --max-messages"
    assert tool(ottla, f"{line} 1").out == "1\n"


def test_a_comma_in_braces_belongs_to_a_pattern_of_topics(ottla: Ottla) -> None:
    for topic in ("baa", "other"):
        ottla.ok(f"topic create {topic} --partitions 1")
        ottla.ok(f"produce {topic}", topic.encode())
    line = "kafka-console-consumer --from-beginning --timeout-ms 300 --include"
    assert tool(ottla, f"{line} ba{{1,2}}").out == "baa\n"
    assert sorted(tool(ottla, f"{line} ba{{1,2}},other").out.split()) == ["baa", "other"]


@pytest.mark.parametrize(("words", "name", "value"), [
    ("--timeout 20 --command-property linger.ms=5", "linger.ms", "20"),
    ("--command-property linger.ms=5", "linger.ms", "5"),
    ("--request-required-acks 1 --producer-property acks=all", "acks", "1"),
    ("--compression-codec --command-property compression.type=zstd", "compression.type", "gzip"),
    ("--batch-size 1 --max-partition-memory-bytes 2", "batch.size", "2"),
    ("--max-partition-memory-bytes 2 --batch-size 1", "batch.size", "2"),
])  # fmt: skip
def test_a_flag_of_the_console_producer_counts_more_than_a_property(
    words: str, name: str, value: str
) -> None:
    given = options_of(f"kafka-console-producer --topic t {words}")
    assert console_producer.producer_settings(given)[name] == value


def test_the_reset_policy_of_a_verifiable_consumer_counts_more_than_its_file(
    tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("auto.offset.reset=earliest\nfetch.min.bytes=2\n")
    given = options_of("kafka-verifiable-consumer --topic t --group-id g --reset-policy latest"
                       f" --command-config {tmp_path / 'file'}")  # fmt: skip
    settings = verifiable_consumer.consumer_settings(given)
    assert (settings["auto.offset.reset"], settings["fetch.min.bytes"]) == ("latest", "2")


def test_the_file_of_a_verifiable_producer_counts_more_than_its_flag(
    ottla: Ottla, tmp_path: Path
) -> None:
    """With acks=0, a producer does not learn the offsets of its records."""
    (tmp_path / "file").write_text("acks=0\n")
    done = tool(ottla, "kafka-verifiable-producer --topic quick --max-messages 1 --acks -1"
                       f" --command-config {tmp_path / 'file'}")  # fmt: skip
    [sent] = [one for one in map(json.loads, done.out.splitlines())
              if one["name"] == "producer_send_success"]  # fmt: skip
    assert sent["offset"] == -1, done
