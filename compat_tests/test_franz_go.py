"""Tests franz-go, which starts with ApiVersions 5, and uses the newest versions of Produce and
Fetch, with topic ids."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from compat_tests import readers
from compat_tests.brokers import Broker
from compat_tests.flights import CODECS
from compat_tests.requirements import built

OTTLA = str(Path(sys.executable).with_name("ottla"))


@pytest.mark.parametrize("codec", CODECS)
def test_what_franz_go_writes_franz_go_reads(
    broker: Broker, new_topic: Callable[..., str], codec: str
) -> None:
    franz = str(built("bin/franz"))
    topic = new_topic(f"franz-{codec}", partitions=3)
    produced = readers.output_of([franz, "produce", broker.bootstrap, topic, codec, "5000"])
    acknowledged = {tuple(line.split(b"\t")) for line in produced.splitlines()}
    assert {value for _, _, value in acknowledged} == {b"value-%d" % i for i in range(5_000)}
    read = [
        line.split(b"\t")
        for line in readers.output_of([franz, "read", broker.bootstrap, topic]).splitlines()
    ]
    assert len(read) == 5_000
    assert {(partition, offset, value) for partition, offset, _, _, value in read} == acknowledged


@pytest.mark.parametrize("layout", [
    r"%t %p %o %k %v\n", r"%K %V %H|%h{%k=%v;%K,%V }|\x41\\\t%%%{%}\n", r"%i{hex8} %e %d\n",
    r"%T{ascii} %t{hex} %k{base64} %k{base64raw} %v{hex}\n",
    r"%o{hex} %o{hex64} %o{hex32} %o{hex16} %o{hex8} %o{hex4} %o{bool}\n",
    "%d{big64}%d{big32}%d{big16}%d{big8}%d{little64}%d{little32}%d{little16}%o{byte}",
    r"%v{unpack[>HBB$]} %v{unpack{<hs}} %v{unpack##.c>q##} %h{%v{hex} }\n",
    r"%d{strftime[%F %T]} %d{strftime##[%H:%M] ##}\n", r"%V{number}%V{hex}\n",
])  # fmt: skip
def test_consume_formats_records_as_rpk_does(
    broker: Broker, new_topic: Callable[..., str], layout: str
) -> None:
    """rpk uses franz-go's formats, so the test compares with franz-go."""
    topic = new_topic("franz-format", partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for key, value, headers in (
        (b"k", b"value", [("a", b"1"), ("b", b"")]), (b"", b"", []),
        (b"\xff\x00", b"\x81\x02\x03", []),
        (b"key", b"\x01\x02\xff\x00\x80\x00\x00\x01\x02\x03", [("h", b"\xfe")]),
    ):  # fmt: skip
        producer.produce(topic, value, key, headers=headers, timestamp=1_700_000_000_123)
    producer.flush(30)
    theirs = readers.output_of(
        [str(built("bin/franz")), "format", broker.bootstrap, topic, layout])
    ours = readers.output_of(
        [OTTLA, "consume", topic, "-b", broker.bootstrap, "--exit", "--format", layout])
    assert ours == theirs
