"""Compaction: the newest record of each key stays, with its offset, after any crash."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.log.compaction.choice import cleanable
from ottla.log.compaction.key_table import KeyOffsets, digest_of
from ottla.wire.errors import CorruptMessage
from ottla.wire.records import read_records
from tests.log.batches import NOW_MS, split
from tests.log.compaction.table import COMPACT, KEYS, Table

VALUES = st.sampled_from([b"x" * 5, b"y" * 90, None])
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            st.lists(st.tuples(st.sampled_from(KEYS), VALUES), min_size=1, max_size=6),
            st.sampled_from([0, 0, 1, 4]),
            st.sampled_from([-1, -1, 1, 2]),
        ),
        st.tuples(st.just("end"), st.sampled_from([1, 2]), st.booleans()),
        st.tuples(st.sampled_from(["clean", "seal", "wait", "reopen"])),
    ),
    min_size=5,
    max_size=60,
)


def live(table: Table, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    for step in steps:
        if step[0] == "put":
            table.put(*step[1], codec=step[2], producer=step[3])
        elif step[0] == "end":
            table.end(step[1], step[2])
        elif step[0] == "clean":
            table.seal()
            table.clean()
            table.check(table.log)
        elif step[0] == "seal":
            table.seal()
        elif step[0] == "wait":
            table.clock.advance(600)
        else:
            dirty = table.log.first_dirty_offset
            table.disk.kill()
            table.log = table.open(recovery_point=table.recovery_point)
            table.log.note_cleaned(dirty)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS, st.sampled_from([1 << 20, 24 * 4, 24 * 9]))
def test_a_compacted_log_has_the_newest_record_of_each_key_and_no_other_content(
    steps: list[tuple],  # type: ignore[type-arg]
    memory_max: int,
) -> None:
    table = Table(memory_max=memory_max)
    live(table, steps)
    table.seal()
    end = table.log.log_end_offset
    stable = table.log.last_stable_offset
    table.clean_all()
    table.check(table.log)
    assert table.log.log_end_offset == end
    # Below the cleaned offset no key occurs twice.
    found = table.committed(table.log)
    below = [
        key for offset, (key, _) in found.items() if offset < table.log.first_dirty_offset
    ]  # fmt: skip
    assert len(below) == len(set(below))
    assert table.log.last_stable_offset == stable
    # A restart finds the same records, offsets and producers.
    table.disk.kill()
    again = table.open()
    table.check(again)
    assert table.committed(again) == found
    assert again.log_end_offset == end
    assert again.last_stable_offset == stable
    assert {p.producer_id: p.last_sequence for p in again.active_producers()} == {
        p.producer_id: p.last_sequence for p in table.log.active_producers()
    }


def values(table: Table) -> dict[int, tuple[bytes, bytes | None]]:
    return table.committed(table.log)


def test_offsets_stay_and_older_records_go() -> None:
    table = Table()
    for value in (b"1", b"2", b"3"):
        table.put((b"a", value), (b"b", value))
    table.seal()
    table.put((b"a", b"active"))
    before = table.log.size_bytes
    table.clean()
    assert values(table) == {4: (b"a", b"3"), 5: (b"b", b"3"), 6: (b"a", b"active")}
    assert table.log.size_bytes < before
    assert table.log.first_dirty_offset == 6
    assert table.log.offset_for_timestamp(NOW_MS)[0] == 4
    assert table.clean() is None


def test_a_deletion_outlives_its_key_by_delete_retention_ms() -> None:
    table = Table()
    table.put((b"a", b"1"))
    table.put((b"a", None), (b"b", b"1"))
    table.seal()
    table.clean()
    assert values(table) == {1: (b"a", None), 2: (b"b", b"1")}
    batch = split(table.log.read_bytes(1, 1000))[0]
    assert int.from_bytes(batch[21:23], "big") & 0x40
    assert int.from_bytes(batch[27:35], "big") == NOW_MS + 1000
    assert [record.timestamp for record in read_records(batch)] == [NOW_MS, NOW_MS]
    for wait, left in ((999, 2), (1, 1)):
        table.clock.advance(wait)
        table.put((b"c", b"%d" % wait))
        table.seal()
        table.clean()
        assert len([one for one in values(table).values() if one[0] != b"c"]) == left


def test_markers_stay_until_nothing_of_their_transaction_is_left() -> None:
    table = Table()
    table.put((b"a", b"aborted"), producer=1)
    table.end(1, commit=False)
    table.put((b"a", b"committed"), producer=1)
    table.end(1, commit=True)
    table.put((b"b", b"last"), producer=1)
    table.end(1, commit=True)
    table.put((b"a", b"newest"))
    sizes = []
    for _ in range(4):
        table.seal()
        table.clean()
        table.check(table.log)
        markers = [
            int.from_bytes(data[:8], "big") for data in split(table.log.read_bytes(0, 10_000))
            if int.from_bytes(data[21:23], "big") & 0x20
        ]  # fmt: skip
        sizes.append(markers)
        table.clock.advance(1001)
        table.put((b"z", b"%d" % len(sizes)))
    # Markers 1 and 3: the first pass finds records of their transactions, the second finds none,
    # and the third removes the markers after delete.retention.ms. The transaction of marker 5 still
    # has a record.
    assert sizes == [[1, 3, 5], [1, 3, 5], [5], [5]]
    assert table.log.aborted_transactions(0, 100) == []


def test_the_last_batch_of_a_producer_stays_for_its_sequence() -> None:
    table = Table()
    table.put((b"a", b"1"), (b"b", b"1"), producer=1)
    table.end(1, commit=True)
    table.put((b"a", b"2"), (b"b", b"2"))
    table.seal()
    table.clean()
    first = split(table.log.read_bytes(0, 1000))[0]
    assert len(first) == 61
    assert int.from_bytes(first[53:57], "big") == 0
    assert int.from_bytes(first[23:27], "big") == 1
    table.disk.kill()
    assert table.open().producers.get(1).last_sequence == 1


def test_what_may_not_be_cleaned_yet_is_left_alone() -> None:
    table = Table(config=COMPACT._replace(min_compaction_lag_ms=500))
    table.put((b"a", b"1"))
    table.log.roll()
    table.put((b"a", b"2"))
    log, now = table.log, NOW_MS
    assert not cleanable(log, 2, now).dirty_bytes, "not flushed, too young"
    log.flush()
    assert not cleanable(log, 2, now + 499).dirty_bytes, "too young"
    assert cleanable(log, 2, now + 500).due
    assert not cleanable(log, 0, now + 500).dirty_bytes, "not committed"
    log.configure(COMPACT._replace(min_cleanable_dirty_ratio=1.0))
    assert not cleanable(log, 2, now).due
    log.configure(COMPACT._replace(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=100))
    assert not cleanable(log, 2, now + 100).due
    assert cleanable(log, 2, now + 101).due


def test_an_open_transaction_and_what_follows_is_left_alone() -> None:
    table = Table()
    table.put((b"a", b"1"))
    table.put((b"a", b"2"), producer=1)
    table.seal()
    table.put((b"a", b"3"))
    table.seal()
    assert not cleanable(table.log, 3, NOW_MS).dirty_bytes
    table.end(1, commit=False)
    table.seal()
    table.clean()
    assert values(table) == {2: (b"a", b"3")}


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_batch_keeps_its_codec_and_an_untouched_one_its_bytes(codec: int) -> None:
    table = Table()
    table.put((b"a", b"1" * 50), (b"b", b"2" * 50), codec=codec)
    table.put((b"a", b"3" * 50), (b"c", b"4" * 50), codec=codec)
    second = split(table.log.read_bytes(2, 1000))[0]
    table.seal()
    table.clean()
    batches = split(table.log.read_bytes(0, 10_000))
    assert batches[1] == second
    assert batches[0][22] & 7 == codec
    assert [record.key for record in read_records(batches[0])] == [b"b"]


def test_a_flush_covers_the_index_of_aborted_transactions() -> None:
    for seed in range(20):
        table = Table(seed)
        table.put((b"a", b"1"))
        table.put((b"a", b"2"), producer=1)
        table.end(1, commit=False)
        table.seal()
        table.disk.cut_power()
        table.log = table.open(recovery_point=table.recovery_point)
        table.clean()
        assert values(table) == {0: (b"a", b"1")}, f"seed {seed}"


def test_damage_ends_a_pass_and_is_not_given_a_new_checksum() -> None:
    table = Table()
    table.put((b"a", b"1"), (b"b", b"1"))
    table.put((b"a", b"2"))
    table.seal()
    inode = table.disk.inode(table.log.segments[0].path(".log"))
    inode.content[70] ^= 1
    before = bytes(inode.content)
    with pytest.raises(CorruptMessage, match="checksum"):
        table.clean()
    assert bytes(table.disk.inode(table.log.segments[0].path(".log")).content) == before


def test_the_table_of_keys_keeps_the_newest_and_its_bound() -> None:
    table = KeyOffsets(24 * 1000, 10_000, b"s" * 16)
    assert table.memory <= 24 * 1000
    expected = {}
    choose = random.Random(1)
    for offset in range(table.limit):
        key = b"%d" % choose.randrange(400) * choose.randrange(1, 5)
        if table.used == table.limit:
            break
        table.set(key, offset)
        expected[key] = offset
    assert {key: table.offset_of(key) for key in expected} == expected
    assert table.offset_of(b"none") == -1
    assert table.used == len(expected)
    small = KeyOffsets(0, 1, b"s" * 16)
    small.set(b"1", 1), small.set(b"2", 2), small.set(b"3", 3)
    with pytest.raises(OverflowError):
        small.set(b"4", 4)


def test_digests_are_those_of_the_reference_implementation() -> None:
    secret = bytes(range(16))
    assert digest_of(b"", secret).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert digest_of(b"\0", secret).hex() == "da87c1d86b99af44347659119b22fc45"
