"""Which segments a pass of compaction may clean, when a pass is due, and which segments are
merged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.log.compaction.choice import Cleanable, cleanable, groups_of, is_overdue
from ottla.log.partition.config import LogConfig
from ottla.wire.marks import count_in

NOW_MS = 1_000_000
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


class Facts:
    """The properties of a segment that the choice uses."""

    def __init__(self, base: int, end: int, size: int, first_ms: int = 1, last_ms: int = 1) -> None:
        self.base_offset, self.end_offset, self.size = base, end, size
        self.first_ms, self.last_ms = first_ms, last_ms
        self.first_timestamp = 0

    def largest_timestamp(self, patient: bool) -> int:
        return self.last_ms

    def load_times(self, patient: bool) -> None:
        self.first_timestamp = self.first_ms


SEGMENTS = [Facts(0, 10, 100), Facts(10, 20, 200), Facts(20, 30, 400), Facts(30, 35, 800)]


def choose(
    config: LogConfig = COMPACTED, dirty: int = 0, start: int = 0, stable: int = 35,
    durable: int = 35, segments: list[Facts] = SEGMENTS, offline: str | None = None,
) -> Cleanable | None:
    log: Any = SimpleNamespace(
        segments=segments, config=config, offline=offline, first_dirty_offset=dirty,
        log_start_offset=start, log_end_offset=35, recovery_point=durable,
        stable_offset=lambda high_watermark: min(high_watermark, stable), wake=lambda patient: 0,
    )
    return cleanable(log, 35, NOW_MS)


def part(**options: Any) -> tuple[int, int, int, int, bool]:
    found = choose(**options)
    assert found is not None
    return tuple(found[1:])     # type: ignore[return-value]


def test_all_sealed_segments_may_be_cleaned() -> None:
    assert part() == (0, 30, 0, 700, False)
    assert part(dirty=10) == (10, 30, 100, 600, False)
    assert part(dirty=11) == (11, 30, 100, 600, False), "a segment that is partly dirty"
    assert part(dirty=20) == (20, 30, 300, 400, False)
    assert part(dirty=30) == (30, 30, 700, 0, False)


@pytest.mark.parametrize("options", [
    {"config": LogConfig()}, {"offline": "the disk is gone"}, {"segments": SEGMENTS[:1]},
    {"segments": []},
])
def test_a_log_without_anything_to_clean_is_not_chosen(options: dict[str, Any]) -> None:
    assert choose(**options) is None


def test_an_offline_log_at_rest_is_not_chosen_and_not_opened() -> None:
    log: Any = SimpleNamespace(config=COMPACTED, offline="its disk died")
    assert cleanable(log, 35, NOW_MS) is None


def test_what_is_not_stable_or_not_durable_stays() -> None:
    for name in ("stable", "durable"):
        assert part(**{name: 30})[:2] == (0, 30)
        assert part(**{name: 29}) == (0, 20, 0, 300, False)
        assert part(**{name: 9}) == (0, 0, 0, 0, False)
        assert part(**{name: 9}, dirty=10)[:2] == (10, 10)


@pytest.mark.parametrize(("dirty", "first"), [(4, 5), (5, 5), (35, 35), (36, 5)])
def test_a_checkpoint_outside_the_log_does_not_count(dirty: int, first: int) -> None:
    assert part(dirty=dirty, start=5)[0] == first


def test_records_stay_for_the_least_lag() -> None:
    config = COMPACTED._replace(min_compaction_lag_ms=100)
    segments = [Facts(0, 10, 100, 1, NOW_MS - 100), Facts(10, 20, 100, 1, NOW_MS - 99), *SEGMENTS]
    assert part(config=config, segments=segments)[1] == 10
    young = [Facts(0, 10, 100, 1, NOW_MS + 5), *SEGMENTS]
    assert part(segments=young)[1] == 30, "without a lag the clock does not matter"


@pytest.mark.parametrize(("first_ms", "lag_ms", "overdue"), [
    (NOW_MS - 101, 100, True), (NOW_MS - 100, 100, False), (0, 100, False), (-1, 100, False),
    (1, NOW_MS - 2, True), (1, NOW_MS - 1, False), (1, NOW_MS, False), (1, NOW_MS + 5, False),
])
def test_a_segment_is_overdue_once_its_first_record_is_older_than_the_longest_lag(
    first_ms: int, lag_ms: int, overdue: bool
) -> None:
    segments: Any = [Facts(0, 10, 100, NOW_MS), Facts(10, 20, 100, first_ms)]
    assert is_overdue(segments, lag_ms, NOW_MS, False) is overdue
    assert is_overdue([], 100, NOW_MS, False) is False
    config = COMPACTED._replace(max_compaction_lag_ms=lag_ms)
    assert part(config=config, segments=[*segments, *SEGMENTS[3:]])[4] is overdue
    assert part(config=config, segments=[*segments, *SEGMENTS[3:]], dirty=20)[4] is False


def test_a_pass_is_due_once_the_dirty_share_is_above_the_setting() -> None:
    log: Any = SimpleNamespace(config=COMPACTED._replace(min_cleanable_dirty_ratio=0.5))

    def due(clean: int, dirty: int, overdue: bool = False) -> bool:
        return Cleanable(log, 0, 0, clean, dirty, overdue).due

    assert not due(100, 100) and due(99, 100) and due(0, 1)
    assert due(1000, 1, overdue=True)
    assert not due(0, 0, overdue=True), "there is nothing to do"
    assert Cleanable(log, 0, 0, 300, 100, False).ratio == 0.25
    assert Cleanable(log, 0, 0, 0, 0, False).ratio == 0


def bases(sizes: list[int], size_max: int, entries: int = 1 << 20, interval: int = 4096) -> Any:
    segments: Any = [Facts(at * 10, at * 10 + 10, size) for at, size in enumerate(sizes)]
    groups = groups_of(segments, size_max, entries, interval)
    return [[each.base_offset // 10 for each in group] for group in groups]


def test_neighbours_go_together_up_to_the_size_of_a_segment() -> None:
    assert bases([50, 50, 1, 99, 1, 200, 1], 100) == [[0, 1], [2, 3], [4], [5], [6]]
    assert bases([], 100) == []
    assert bases([100, 0, 0], 100) == [[0, 1, 2]]
    assert bases([101], 100) == [[0]], "one alone may be larger"


def test_a_groups_index_has_room_for_its_entries() -> None:
    assert bases([50, 50, 50, 50], 1000, entries=10, interval=10) == [[0, 1], [2, 3]]
    assert bases([5, 5, 5], 1000, entries=10, interval=0) == [[0, 1], [2]]
    assert bases([5, 5, 5], 1000, entries=10, interval=1) == [[0, 1], [2]]


@pytest.mark.parametrize(("end", "together"), [(0x7FFFFFFF, True), (0x80000000, False)])
def test_the_offsets_of_a_group_fit_into_four_bytes(end: int, together: bool) -> None:
    segments: Any = [Facts(7, 17, 1), Facts(17, 7 + end, 1)]
    assert len(groups_of(segments, 100, 100, 100)) == (1 if together else 2)


@pytest.mark.parametrize(("stable", "durable", "waits"), [
    (35, 30, {}), (35, 29, {"compaction waits for a flush": 1}), (29, 35, {}), (29, 30, {}),
])
def test_a_pass_that_waits_for_a_flush_is_told_from_one_that_waits_for_a_commit(
    stable: int, durable: int, waits: dict[str, int]
) -> None:
    found: dict[str, int] = {}
    count_in(found)
    try:
        assert part(stable=stable, durable=durable)[1] == min(stable, durable) // 10 * 10
    finally:
        count_in(None)
    assert found == waits
