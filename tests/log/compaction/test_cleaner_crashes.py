"""A power cut or a kill at any step of a compaction: no key loses its newest record."""

from __future__ import annotations

import errno
import random

import pytest

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.cleaner import Abandoned, Cleaner
from ottla.log.partition.retention import remove_below_start
from ottla.wire.errors import StorageFailed
from tests.log.compaction.table import COMPACT, KEYS, Table
from tests.log.faulty_disk import PowerCut

CRASH_POINTS = 2000


def filled(seed: int) -> Table:
    """A log with values, deletions and transactions in several sealed segments."""
    choose = random.Random(seed)
    table = Table(seed, COMPACT._replace(segment_bytes=choose.choice([300, 700, 2000])))
    for _ in range(choose.randrange(10, 40)):
        value = choose.choice([b"v" * choose.randrange(1, 120), None])
        table.put((choose.choice(KEYS), value), producer=choose.choice([-1, -1, 1, 2]))
        if choose.random() < 0.3:
            table.end(choose.choice([1, 2]), choose.random() < 0.5)
        if choose.random() < 0.1:
            table.clock.advance(700)
        if choose.random() < 0.1:
            table.seal()
            table.clean()
    table.seal()
    table.clock.advance(choose.choice([0, 2000]))
    return table


@pytest.mark.parametrize("power", [True, False], ids=["power cut", "kill -9"])
def test_a_crash_at_any_operation_of_a_compaction_loses_no_key(power: bool) -> None:
    done = 0
    for seed in range(CRASH_POINTS):
        if done >= CRASH_POINTS // 2:
            break
        table = filled(seed)
        table.disk.stop_at = table.disk.operations + 1 + seed % 60
        end = table.log.log_end_offset
        try:
            table.clean_all()
        except PowerCut:
            done += 1
        else:
            table.disk.stop_at = None
        if power:
            table.disk.cut_power()
        else:
            table.disk.kill()
        log = table.open(recovery_point=table.recovery_point)
        assert log.log_end_offset == end, f"seed {seed}"
        table.check(log)
        # A recovery that reads every byte finds the same, and the next compaction can continue.
        log = table.open(recovery_point=0)
        table.check(log)
        names = table.disk.listdir("/data/table-0")
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        table.log = log
        log.flush()
        table.clean_all()
        table.check(log)
    assert done > CRASH_POINTS // 4


def test_a_full_disk_ends_a_pass_and_leaves_the_log_as_it_is() -> None:
    for free in range(0, 500, 50):
        table = filled(3)
        dirty = table.log.first_dirty_offset
        table.disk.free = free
        with pytest.raises(OSError, match="full disk"):
            table.clean()
        names = table.disk.listdir("/data/table-0")
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        assert table.log.first_dirty_offset == dirty
        table.check(table.log)


def test_a_failed_sync_takes_the_log_offline_before_anything_is_replaced() -> None:
    table = filled(3)
    before = table.committed(table.log)
    table.disk.errors = {"sync": errno.EIO}
    with pytest.raises(StorageFailed):
        table.clean()
    table.disk.errors = {}
    assert table.log.offline is not None
    assert table.committed(table.log) == before


@pytest.mark.parametrize("change", ["truncate", "retention", "delete"])
def test_a_pass_gives_up_when_its_segments_go(change: str) -> None:
    for after in range(40):
        table = filled(5)
        target = cleanable(table.log, table.log.log_end_offset, table.clock.now_ms())
        assert target is not None
        cleaner = Cleaner(target, 1 << 20, 0.0, lambda paths: None)
        steps = cleaner.steps()
        try:
            for _ in range(after):
                task = next(steps)
                if task is not None:
                    task.run()
        except StopIteration:
            break
        if change == "truncate":
            table.log.truncate_to(1)
            table.visible = {o: one for o, one in table.visible.items() if o < 1}
            for _ in range(20):
                table.put((b"a", b"new" * 20))
            table.seal()
        elif change == "retention":
            table.log.delete_before(table.log.segments[-1].base_offset)
            remove_below_start(table.log)
        else:
            table.log.move_to("/data/gone")
            table.log.fail("its topic was deleted")
        expected = {} if change == "delete" else table.committed(table.log)
        try:
            for task in steps:
                if task is not None:
                    task.run()
        except Abandoned:
            pass
        else:
            # Retention came before the first step of the pass, or after its last change.
            assert change == "retention"
        if change == "delete":
            continue
        assert table.committed(table.log) == expected
        if change == "truncate":
            assert table.log.first_dirty_offset <= 1
            table.clean_all()
            table.check(table.log)
    else:
        pytest.fail("the pass never ended")
