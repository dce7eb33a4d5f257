"""Pending offsets of open transactions: the later commit wins. While an offset is pending, it does
not expire, and the offset that was committed before it does not expire either."""

from __future__ import annotations

import pytest

from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.wire.errors import ErrorCode
from tests.groups.bench import Workbench

FIRST, SECOND = 1, 2
RETENTION_MS = 3_600_000


@pytest.fixture
def bench() -> Workbench:
    return Workbench(
        offsets_topic_num_partitions=1, offsets_retention_minutes=RETENTION_MS // 60_000
    )


def commit(bench: Workbench, offset: int, producer_id: int = -1) -> None:
    request = Commit(
        "g", [OffsetToCommit("t", 0, offset, -1, "")], transactional=producer_id >= 0
    )
    assert bench.ask(lambda s, r: s.commit(request, r), "g", producer_id) == [ErrorCode.NONE]


def committed(bench: Workbench) -> int:
    found = bench.shard().offsets.find("g", "t", 0)
    return -1 if found is None else found.offset


@pytest.mark.parametrize("ends", [(FIRST, SECOND), (SECOND, FIRST)])
def test_of_two_held_offsets_the_later_one_wins_whichever_transaction_ends_first(
    bench: Workbench, ends: tuple[int, int]
) -> None:
    commit(bench, 5, FIRST)
    commit(bench, 6, SECOND)
    for producer_id in ends:
        bench.end_transaction("g", producer_id, True)
    assert committed(bench) == 6


def test_an_offset_that_a_transaction_holds_does_not_expire_with_the_one_before_it(
    bench: Workbench,
) -> None:
    commit(bench, 5)
    bench.clock.elapsed_ms += RETENTION_MS
    commit(bench, 6, FIRST)
    bench.clock.elapsed_ms += 2 * RETENTION_MS
    bench.runtime.fire()
    bench.wait(100)
    assert committed(bench) == 5
    bench.end_transaction("g", FIRST, True)
    assert committed(bench) == 6
