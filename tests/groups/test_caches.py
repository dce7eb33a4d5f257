"""Caches whose keys are chosen by clients hold a few MiB at most, however long the keys are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from ottla.broker.api.consumer_groups import _nothing_new
from ottla.groups.record_codec import encode_record
from ottla.groups.records import OffsetKey, Record
from ottla.groups.routing import partition_for

CHARS, NAMES = 10_000, 20
USES: dict[str, Callable[[str], object]] = {
    "find the coordinator": lambda name: partition_for(name, 50),
    "commit": lambda name: encode_record(Record(OffsetKey(name, "t", 0), None)),
    "heartbeat": lambda name: _nothing_new(name, 1, 5_000),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_long_names_are_not_kept(use: Callable[[str], object]) -> None:
    use("a short one")
    tracemalloc.start()
    try:
        for number in range(NAMES):
            use(f"{number}".rjust(CHARS, "x"))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < CHARS * NAMES / 10
