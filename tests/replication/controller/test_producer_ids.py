"""Decisions about producer ids."""

from __future__ import annotations

import pytest

from ottla.replication.controller.brokers import StaleBrokerEpoch
from ottla.replication.controller.producer_ids import (
    PRODUCER_ID_MAX,
    BackupBeingAdopted,
    allocate_producer_ids,
    take_producer_ids,
)
from ottla.replication.metadata import BackupAdopting, ProducerIdsTaken
from ottla.wire.errors import ProtocolError
from tests.replication.images import brokers


def test_producer_ids_are_handed_out_in_blocks_and_never_twice() -> None:
    image = brokers(1)
    seen: set[int] = set()
    for _ in range(3):
        decision = take_producer_ids(image)
        assert len(decision.result) == 1000
        assert not seen & set(decision.result)
        seen |= set(decision.result)
        image = image.apply(decision.records)
    assert seen == set(range(3000))


def test_another_broker_gets_its_block_under_its_own_epoch_only() -> None:
    image = brokers(1, 2)
    assert allocate_producer_ids(image, 2, 1) == take_producer_ids(image)
    for node_id, epoch in ((2, 0), (2, 2), (3, 1)):
        said = f"broker {node_id} has sent broker epoch {epoch}"
        with pytest.raises(StaleBrokerEpoch, match=said):
            allocate_producer_ids(image, node_id, epoch)


def test_no_ids_are_handed_out_while_later_ones_may_be_in_the_logs() -> None:
    image = brokers(1).apply([BackupAdopting((1, 2))])
    with pytest.raises(BackupBeingAdopted, match=r"brokers \[1, 2\]"):
        take_producer_ids(image)


def test_the_last_block_ends_with_the_largest_id() -> None:
    assert PRODUCER_ID_MAX == 0x7FFFFFFFFFFFFFFF
    image = brokers(1).apply([ProducerIdsTaken(PRODUCER_ID_MAX - 1000)])
    decision = take_producer_ids(image)
    assert decision.result == range(PRODUCER_ID_MAX - 1000, PRODUCER_ID_MAX)
    with pytest.raises(ProtocolError, match="used up"):
        take_producer_ids(image.apply(decision.records))
    image = brokers(1).apply([ProducerIdsTaken(PRODUCER_ID_MAX - 999)])
    with pytest.raises(ProtocolError, match="used up"):
        take_producer_ids(image)
