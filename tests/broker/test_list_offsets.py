"""Offsets by time are answered in every version."""

from __future__ import annotations

import pytest

from ottla.wire.messages import ListOffsetsRequest, ListOffsetsResponse
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import WireClient

LATEST, EARLIEST = -1, -2
PARTITION = ListOffsetsRequest.Topic.Partition


def ask(
    client: WireClient, topic: str, timestamp: int, version: int
) -> ListOffsetsResponse.Topic.Partition:
    asked = PARTITION(partition_index=0, timestamp=timestamp)
    wanted = ListOffsetsRequest.Topic(name=topic, partitions=[asked])
    response = client.call(ListOffsetsRequest(replica_id=-1, topics=[wanted]), version)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_the_ends_of_a_partition_are_told_in_every_version(
    client: WireClient, topic: str, version: int
) -> None:
    produce(client, topic, batch(b"a", b"b", b"c"))
    latest, earliest = ask(client, topic, LATEST, version), ask(client, topic, EARLIEST, version)
    assert (latest.error_code, latest.offset) == (0, 3)
    assert (earliest.error_code, earliest.offset) == (0, 0)
    # The field came with version 4; a client before it must not be told what it cannot read.
    assert latest.leader_epoch == (0 if version >= 4 else -1)


def test_version_0_answers_with_a_list(client: WireClient, topic: str) -> None:
    produce(client, topic, batch(b"a", b"b", b"c"))
    assert list(ask(client, topic, LATEST, 0).old_style_offsets) == [3]
    assert list(ask(client, topic, EARLIEST, 0).old_style_offsets) == [0]
