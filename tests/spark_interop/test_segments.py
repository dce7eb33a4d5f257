"""Segment files are read as columns with every field of every committed record. Damage is
reported."""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from pathlib import Path

import pytest

from ottla.spark_interop.in_place import segments
from ottla.spark_interop.in_place.columns import Columns
from ottla.spark_interop.in_place.segments import (
    Aborted,
    Segment,
    SegmentGone,
    UnindexedAbort,
)
from ottla.wire.errors import CorruptMessage
from ottla.wire.records import ControlType, Record, build_batch, build_marker

ALL = ("key", "value", "offset", "timestamp", "timestampType", "headers")


def some_batches(seed: int, count: int = 12) -> tuple[list[bytes], list[Record]]:
    """Consecutive batches with every codec, and their records with offsets."""
    r = random.Random(seed)
    batches, records, offset = [], [], 0
    for number in range(count):
        these = [
            Record(
                offset + n,
                1_000 + r.randrange(10**6),
                r.choice((None, b"", r.randbytes(9))),
                r.choice((None, b"", r.randbytes(r.randrange(3_000)))),
                [("h", None), ("é", b"1")][: r.randrange(3)],
            )
            for n in range(1 + r.randrange(30))
        ]
        batches.append(bytes(build_batch(these, base_offset=offset, codec=number % 5)))
        records += these
        offset += len(these)
    return batches, records


def bits(bitmap: bytes, rows: int) -> list[bool]:
    return [bool(bitmap[n // 8] >> (n % 8) & 1) for n in range(rows)]


def strings(made: tuple[int, int, bytes, bytes, bytes]) -> list[bytes | None]:
    """Decodes the buffers as Arrow does, without Arrow."""
    rows, nulls, bitmap, offsets, data = made
    at = struct.unpack(f"<{rows + 1}i", offsets)
    valid = bits(bitmap, rows)
    assert nulls == valid.count(False)
    return [data[at[n] : at[n + 1]] if valid[n] else None for n in range(rows)]


@pytest.mark.parametrize("seed", range(5))
def test_columns_are_the_records(seed: int) -> None:
    batches, records = some_batches(seed)
    columns = Columns(ALL)
    assert sum(columns.add(batch, 0, 10**9) for batch in batches) == len(records)
    for _ in range(2):  # taking the buffers empties them
        rows, made = columns.take()
        assert rows == len(records)
        assert list(struct.unpack(f"<{rows}q", made["offset"])) == [r.offset for r in records]
        times = struct.unpack(f"<{rows}q", made["timestamp"])
        assert list(times) == [1000 * r.timestamp for r in records]
        assert struct.unpack(f"<{rows}i", made["timestampType"]) == (0,) * rows
        assert strings(made["key"]) == [r.key for r in records]
        assert strings(made["value"]) == [r.value for r in records]
        bitmap, _, offsets, keys, values = made["headers"]
        at = struct.unpack(f"<{rows + 1}i", offsets)
        names, contents = strings(keys), strings(values)
        got = [list(zip(names[a:b], contents[a:b], strict=True))
               for a, b in pairwise(at)]  # fmt: skip
        assert got == [[(k.encode(), v) for k, v in r.headers] for r in records]
        assert bits(bitmap, rows) == [bool(r.headers) for r in records]
        for batch in batches:
            columns.add(batch, 0, 10**9)


def test_only_the_columns_that_are_wanted_are_made() -> None:
    batches, records = some_batches(1)
    columns = Columns(("offset",))
    for batch in batches:
        columns.add(batch, 5, 20)
    rows, made = columns.take()
    assert (rows, columns.size) == (15, 0)
    assert set(made) == {"offset"}
    assert list(struct.unpack("<15q", made["offset"])) == list(range(5, 20))
    assert len(records) > 20


def test_a_range_of_a_segment_is_exact_with_and_without_an_index(tmp_path: Path) -> None:
    batches, records = some_batches(2, 40)
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(b"".join(batches))
    segment = Segment(str(file), 0, len(records))
    for indexed in (False, True):
        if indexed:
            position, entries = 0, b""
            for batch in batches:
                base, last_delta = struct.unpack(">q15xi", batch[:27])
                entries += struct.pack(">ii", base + last_delta, position)
                position += len(batch)
            file.with_suffix(".index").write_bytes(entries + bytes(80))  # preallocated zeros
        for start, end in ((0, len(records)), (37, 38), (100, 321), (len(records) - 1, 10**6)):
            columns = Columns(("offset",))
            for batch in segments.committed_batches(segment, start, end, []):
                columns.add(batch, start, end)
            rows, made = columns.take()
            expected = list(range(start, min(end, len(records))))
            assert list(struct.unpack(f"<{rows}q", made["offset"])) == expected


def test_a_batch_larger_than_a_chunk_is_read(tmp_path: Path) -> None:
    value = random.Random(1).randbytes(3 * segments.CHUNK_BYTES)
    made = [bytes(build_batch([Record(n, 1, None, value)], base_offset=n)) for n in range(3)]
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(b"".join(made))
    found = list(segments.committed_batches(Segment(str(file), 0, 3), 0, 3, []))
    assert [bytes(batch) for batch in found] == made


def test_aborted_and_control_batches_do_not_count(tmp_path: Path) -> None:
    kinds = [
        build_batch([Record(0, 1, b"a")], base_offset=0, producer_id=7, producer_epoch=0,
                    base_sequence=0, transactional=True),
        build_batch([Record(1, 1, b"b")], base_offset=1, producer_id=8, producer_epoch=0,
                    base_sequence=0, transactional=True),
        build_batch([Record(2, 1, b"\0\0\0\0", b"")], base_offset=2, producer_id=7,
                    producer_epoch=0, transactional=True, control=True),
        build_batch([Record(3, 1, b"c")], base_offset=3, producer_id=7, producer_epoch=0,
                    base_sequence=1, transactional=True),
    ]  # fmt: skip
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(b"".join(map(bytes, kinds)))
    file.with_suffix(".txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 0, 2, 4))
    aborted = segments.aborted_transactions(tmp_path)
    assert aborted == [Aborted(7, 0, 2)]
    found = segments.committed_batches(Segment(str(file), 0, 4), 0, 4, aborted)
    assert [struct.unpack_from(">q", batch)[0] for batch in found] == [1, 3]


def test_an_aborted_transaction_that_the_index_lacks_is_an_error(tmp_path: Path) -> None:
    kinds = [
        build_batch([Record(0, 1, b"a")], base_offset=0, producer_id=7, producer_epoch=0,
                    base_sequence=0, transactional=True),
        build_marker(ControlType.COMMIT, producer_id=7, producer_epoch=0, coordinator_epoch=0,
                     timestamp=1, base_offset=1),
        build_marker(ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0,
                     timestamp=1, base_offset=2),           # of a transaction without records
        build_batch([Record(3, 1, b"b")], base_offset=3, producer_id=7, producer_epoch=0,
                    base_sequence=1, transactional=True),
        build_marker(ControlType.ABORT, producer_id=7, producer_epoch=0, coordinator_epoch=0,
                     timestamp=1, base_offset=4),
    ]  # fmt: skip
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(b"".join(map(bytes, kinds)))
    segment = Segment(str(file), 0, 5)
    with pytest.raises(UnindexedAbort, match="producer 7 that ends at offset 4 was aborted"):
        list(segments.committed_batches(segment, 0, 5, []))
    found = segments.committed_batches(segment, 0, 5, [Aborted(7, 3, 4)])
    assert [struct.unpack_from(">q", batch)[0] for batch in found] == [0]


def test_damage_is_named_and_a_missing_segment_is_gone(tmp_path: Path) -> None:
    batches, _ = some_batches(3, 3)
    whole = bytearray(batches[0])
    whole[-1] ^= 1
    with pytest.raises(CorruptMessage, match="does not match its checksum"):
        Columns(ALL).add(bytes(whole), 0, 100)
    file = tmp_path / f"{0:020}.log"
    file.write_bytes(batches[0] + batches[1][:-1])
    with pytest.raises(CorruptMessage, match="ends inside the batch at position"):
        list(segments.committed_batches(Segment(str(file), 0, 99), 0, 99, []))
    file.write_bytes(batches[0][:8] + b"\x7f" + batches[0][9:])
    with pytest.raises(CorruptMessage, match="size is 2130707438 bytes, expected 61 to"):
        list(segments.committed_batches(Segment(str(file), 0, 99), 0, 99, []))
    with pytest.raises(SegmentGone):
        list(segments.committed_batches(Segment(str(tmp_path / "none.log"), 0, 9), 0, 9, []))


def test_the_last_segment_ends_at_the_given_offset_and_may_grow(tmp_path: Path) -> None:
    for base in (0, 50, 700):
        (tmp_path / f"{base:020}.log").touch()
    (tmp_path / "leader-epoch-checkpoint").touch()

    def found(end: int) -> list[tuple[int, int, bool]]:
        return [(s.start, s.end, s.growing) for s in segments.segments_below(tmp_path, end)]

    closed = [(0, 50, False), (50, 700, False)]
    assert found(750) == [*closed, (700, 750, True)]
    assert found(700) == closed
    assert found(60) == closed
    assert found(0) == []


def test_of_a_growing_segment_no_byte_beyond_the_end_is_looked_at(tmp_path: Path) -> None:
    batches, records = some_batches(4, 5)
    ends = [len(records), struct.unpack_from(">q", batches[4])[0]]
    file = tmp_path / f"{0:020}.log"
    for torn in (b"", bytes(4_000), b"\xff" * 4_000, batches[4][:61], batches[4][:-1]):
        file.write_bytes(b"".join(batches[:4]) + torn)
        [segment] = segments.segments_below(tmp_path, ends[1])
        assert len(list(segments.committed_batches(segment, 0, ends[1], []))) == 4
    file.write_bytes(b"".join(batches[:4]))
    [segment] = segments.segments_below(tmp_path, ends[0])
    read = segments.committed_batches(segment, 0, ends[0], [])
    assert [bytes(next(read)) for _ in range(4)] == batches[:4]
    with pytest.raises(SegmentGone, match="ends before offset"):
        next(read)


def test_only_a_directory_of_a_replica_in_sync_is_read(tmp_path: Path) -> None:
    for node, name in ((1, "one"), (2, "two"), (None, "unknown")):
        (tmp_path / name / "t-0").mkdir(parents=True)
        if node is not None:
            (tmp_path / name / "meta.properties").write_text(f"version=1\nnode.id={node}\n")
    directories = [str(tmp_path / name) for name in ("unknown", "one", "two")]
    for in_sync, name in (([2], "two"), ([3, 2, 1], "one")):
        found = segments.partition_directory(directories, "t", 0, in_sync)
        assert found == tmp_path / name / "t-0"
    assert segments.partition_directory(directories, "t", 0, [3]) is None
    assert segments.partition_directory(directories, "t", 1, [1, 2]) is None
