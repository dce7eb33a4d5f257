"""Kafka's own tools work with groups: the console consumer with both protocols,
kafka-consumer-groups, and the formatter of the offsets topic. kcat works with groups, too."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable

import pytest

from compat_tests.brokers import Broker
from compat_tests.group_members import PARTITIONS, RECORDS, produce
from compat_tests.kafka_tools import kafka_tool
from compat_tests.requirements import missing
from tests.documents import shown_lines

AT = ("--bootstrap-server", "{}")


def consume(broker: Broker, topic: str, group: str, protocol: str, count: int) -> list[str]:
    """The values that Kafka's console consumer reads as a member of a group."""
    printed = kafka_tool(
        broker, "console-consumer", *AT, "--topic", topic, "--group", group,
        "--max-messages", str(count), "--timeout-ms", "60000",
        "--command-property", f"group.protocol={protocol}",
        "--command-property", "auto.offset.reset=earliest",
    )
    return [line for line in printed.splitlines() if line.isdigit()]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_java_consumer_reads_commits_and_goes_on(
    broker: Broker, new_topic: Callable[..., str], protocol: str
) -> None:
    topic = new_topic(f"groups-java-{protocol}", partitions=PARTITIONS)
    produce(broker, topic)
    first = consume(broker, topic, topic, protocol, RECORDS // 2)
    second = consume(broker, topic, topic, protocol, RECORDS // 2)
    assert sorted(map(int, first + second)) == list(range(RECORDS))
    listed = kafka_tool(broker, "groups", *AT, "--list")
    kind = {"classic": "Classic", "consumer": "Consumer"}[protocol]
    assert re.search(rf"{topic}\s+{kind}\s+consumer", listed)


def test_kafka_consumer_groups_shows_resets_and_deletes(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("groups-tool", partitions=PARTITIONS)
    produce(broker, topic)
    consume(broker, topic, topic, "classic", RECORDS)
    named = (*AT, "--group", topic)
    described = kafka_tool(broker, "consumer-groups", *named, "--describe")
    lags = re.findall(rf"{topic}\s+{topic}\s+\d\s+(\d+)\s+(\d+)\s+(\d+)", described)
    assert sorted(lags) == [("100", "100", "0")] * PARTITIONS
    state = kafka_tool(broker, "consumer-groups", *named, "--describe", "--state")
    assert "Empty" in state
    assert topic in kafka_tool(broker, "consumer-groups", *AT, "--list", "--state", "Empty")
    kafka_tool(
        broker, "consumer-groups", *named, "--reset-offsets", "--topic", topic,
        "--to-offset", "7", "--execute",
    )
    described = kafka_tool(broker, "consumer-groups", *named, "--describe")
    lags = re.findall(rf"{topic}\s+{topic}\s+\d\s+(\d+)\s+(\d+)\s+(\d+)", described)
    assert sorted(lags) == [("7", "100", "93")] * PARTITIONS
    kafka_tool(broker, "consumer-groups", *named, "--delete-offsets", "--topic", f"{topic}:0")
    described = kafka_tool(broker, "consumer-groups", *named, "--describe")
    assert len(re.findall(rf"{topic}\s+{topic}\s+\d\s+7\s", described)) == PARTITIONS - 1
    kafka_tool(broker, "consumer-groups", *named, "--delete")
    assert topic not in kafka_tool(broker, "consumer-groups", *AT, "--list")


def test_kafkas_formatter_reads_the_offsets_topic(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("groups-formatter", partitions=PARTITIONS)
    produce(broker, topic)
    consume(broker, topic, topic, "consumer", RECORDS)
    [line] = [line for page, line in shown_lines() if "OffsetsMessageFormatter" in line]
    tool, *words = shlex.split(line.replace("\\\n", " ").replace("localhost:9092", "{}"))
    assert tool == "kafka-console-consumer"
    printed = kafka_tool(broker, "console-consumer", *words, "--timeout-ms", "6000")
    newest: dict[int, int] = {}
    decoder, at = json.JSONDecoder(), printed.find('{"key"')
    while 0 <= at < len(printed):
        record, at = decoder.raw_decode(printed, at)
        key = record["key"]["data"]
        if key["group"] == topic and record["value"] is not None:
            newest[key["partition"]] = record["value"]["data"]["offset"]
        at = printed.find('{"key"', at)
    assert newest == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


def test_kcat_consumes_as_a_group(broker: Broker, new_topic: Callable[..., str]) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        missing("kcat is not installed")
    topic = new_topic("groups-kcat", partitions=PARTITIONS)
    produce(broker, topic)
    command = [
        str(kcat), "-b", broker.bootstrap, "-G", topic, "-X", "auto.offset.reset=earliest",
        "-c", str(RECORDS), "-q", topic,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    assert sorted(map(int, done.stdout.split())) == list(range(RECORDS))
