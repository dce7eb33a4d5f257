"""Decisions about producer ids."""

from __future__ import annotations

from ottla.replication.controller.producer_ids import take_producer_ids
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
