"""franz-go, which begins with ApiVersions 5 and uses the newest Produce and Fetch, by topic id."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests import readers
from compat_tests.brokers import Broker
from compat_tests.flights import CODECS
from compat_tests.requirements import built


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
