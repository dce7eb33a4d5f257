"""kcat, which has the oldest librdkafka of these tests (2.0): metadata, and a round trip with every
codec."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from compat_tests import readers
from compat_tests.brokers import Broker
from compat_tests.flights import CODECS
from compat_tests.requirements import program


def produce(broker: Broker, topic: str, text: bytes, *options: str) -> None:
    """Produce with kcat -P; each line of `text` is one record."""
    command = [program("kcat"), "-P", "-b", broker.bootstrap, "-t", topic, *options]
    done = subprocess.run(command, input=text, capture_output=True, timeout=180)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("codec", CODECS)
def test_what_kcat_writes_kcat_reads(
    broker: Broker, new_topic: Callable[..., str], codec: str
) -> None:
    topic = new_topic(f"kcat-{codec}", partitions=2)
    text = b"".join(b"key-%d\tthe same words again and again %d\n" % (i, i) for i in range(5_000))
    produce(broker, topic, text, "-K", "\t", "-z", codec)
    read = readers.read_with_kcat(broker.bootstrap, topic)
    records = [line.split(b"\t", 3)[3] for lines in read.values() for line in lines]
    assert sorted(records) == sorted(text.splitlines())
    assert len(read) == 2
    for lines in read.values():
        assert [int(line.split(b"\t")[1]) for line in lines] == list(range(len(lines)))


def test_a_topic_is_created_by_its_first_record(broker: Broker) -> None:
    topic = "kcat-made-by-itself"
    produce(broker, topic, b"first\n")
    read = readers.read_with_kcat(broker.bootstrap, topic)
    assert [line.rpartition(b"\t")[2] for line in read[0]] == [b"first"]


@pytest.mark.one_broker
def test_metadata_names_brokers_topics_and_leaders(
    broker: Broker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic("kcat-metadata", partitions=3)
    listed = json.loads(readers.output_of([program("kcat"), "-L", "-J", "-b", broker.bootstrap]))
    assert [b["name"].rpartition(":")[2] for b in listed["brokers"]] == [
        broker.bootstrap.rpartition(":")[2]
    ]
    partitions = next(t for t in listed["topics"] if t["topic"] == topic)["partitions"]
    ids = {b["id"] for b in listed["brokers"]}
    assert [p["partition"] for p in partitions] == [0, 1, 2]
    assert all(p["leader"] in ids and p["isrs"] for p in partitions)


def test_offsets_are_found_by_time(broker: Broker, new_topic: Callable[..., str]) -> None:
    topic = new_topic("kcat-times")
    produce(broker, topic, b"one\ntwo\n")
    stamps = [
        int(line.split(b"\t")[2]) for line in readers.read_with_kcat(broker.bootstrap, topic)[0]
    ]
    query = [program("kcat"), "-Q", "-b", broker.bootstrap, "-t"]
    assert readers.output_of([*query, f"{topic}:0:{stamps[0]}"]).split()[-1] == b"0"
    assert readers.output_of([*query, f"{topic}:0:-1"]).split()[-1] == b"2"
    assert readers.output_of([*query, f"{topic}:0:-2"]).split()[-1] == b"0"
