"""The small files of a log directory are read as they were written; a damaged file counts as
missing."""

from __future__ import annotations

import pytest

from ottla.log.files import aborted_sizes, checkpoints, closed_logs, names, topic_ids
from ottla.log.files.checkpoints import partition_of
from ottla.log.files.closed_logs import ClosedLog
from ottla.log.files.epochs import LeaderEpochs
from ottla.log.files.swaps import offset_in
from ottla.log.files.transaction_index import AbortedTransaction, TransactionIndex
from tests.log.faulty_disk import FaultyDisk

ID, TEXT = bytes(range(16)), "AAECAwQFBgcICQoLDA0ODw"


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.makedirs("/d")
    return disk


# The logs of a clean stop

CLOSED = {
    ("events", 0): ClosedLog(ID, 3, 1312, 4, 2, 90112, 17, 34, 1290),
    ("events", 12): ClosedLog(ID, 0, 0, -1, 0, 0, -1),
    ("plain", 0): ClosedLog(None, 1, 2, 3, 4, 5, 6, 7, 8),
}
CLOSED_TEXT = (
    f"0\n3\nevents 0 {TEXT} 3 1312 4 2 90112 17 34 1290\n"
    f"events 12 {TEXT} 0 0 -1 0 0 -1 -1 -1\nplain 0 - 1 2 3 4 5 6 7 8\n"
)


def test_the_state_of_closed_logs_is_one_line_each() -> None:
    assert closed_logs.encode(CLOSED) == CLOSED_TEXT.encode()
    assert closed_logs.decode(CLOSED_TEXT.encode()) == CLOSED
    assert closed_logs.decode(b"0\n0\n") == closed_logs.decode(closed_logs.encode({})) == {}


def test_closed_logs_of_earlier_versions_lack_the_last_fields() -> None:
    text = b"0\n2\nt 0 - 1 2 3 4 5 6\nt 1 - 1 2 3 4 5 6 7\n"
    assert closed_logs.decode(text) == {
        ("t", 0): ClosedLog(None, 1, 2, 3, 4, 5, 6, -1, -1),
        ("t", 1): ClosedLog(None, 1, 2, 3, 4, 5, 6, 7, -1),
    }


@pytest.mark.parametrize("text", [
    b"", b"\n", b"0", b"0\n", b"1\n0\n", b"0\nmany\n", b"\xff",
    b"0\n2\nt 0 - 1 2 3 4 5 6\n", b"0\n0\nt 0 - 1 2 3 4 5 6\n",
    b"0\n1\nt 0 - 1 2 3 4 5\n", b"0\n1\nt 0 - 1 2 3 4 5 6 7 8 9\n", b"0\n1\nt 0\n",
    b"0\n1\nt x - 1 2 3 4 5 6\n", b"0\n1\nt 0 - 1 2 3 4 5 x\n", b"0\n1\nt 0 - 1 2 3 4 5 6",
])
def test_closed_logs_that_cannot_be_read_make_the_start_look_itself(
    disk: FaultyDisk, text: bytes
) -> None:
    disk.write_atomically("/d/closed", text)
    assert closed_logs.read(disk, "/d/closed") == {}
    assert closed_logs.read(disk, "/d/none") == {}
    disk.write_atomically("/d/closed", CLOSED_TEXT.encode())
    assert closed_logs.read(disk, "/d/closed") == CLOSED


# The topics of the checkpoints

def test_topic_ids_are_kafkas() -> None:
    assert topic_ids.id_text(ID) == TEXT and topic_ids.id_of(TEXT) == ID
    assert topic_ids.id_text(None) == "-" and topic_ids.id_of("-") is None
    known = {"events": ID, "plain": None}
    text = f"0\n2\nevents {TEXT}\nplain -\n".encode()
    assert topic_ids.encode(known) == text and topic_ids.decode(text) == known
    assert topic_ids.decode(topic_ids.encode({})) == {}
    assert names.partition_metadata(ID) == f"version: 0\ntopic_id: {TEXT}\n".encode()


@pytest.mark.parametrize("text", [
    b"", b"0\n", b"1\n0\n", b"0\n1\n", b"0\n2\na -\n", b"0\n0\na -\n", b"0\n1\na\n",
    b"0\n1\na - b\n", b"0\n1\na x\n", b"0\nx\na -\n",
])
def test_topic_ids_that_are_damaged_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        topic_ids.decode(text)


# The sizes of transaction indexes

SIZES = {("a", 0): {0: 34, 700: 68}, ("b", 3): {5: -1}}
SIZES_TEXT = b"0\n3\na 0 0 34\na 0 700 68\nb 3 5 -1\n"


def test_index_sizes_are_one_line_for_each_segment(disk: FaultyDisk) -> None:
    assert list(aborted_sizes.lines_of(SIZES)) == SIZES_TEXT.decode().split("\n")[:-1]
    assert aborted_sizes.decode(SIZES_TEXT) == SIZES
    assert list(aborted_sizes.lines_of({})) == ["0", "0"]
    disk.write_atomically("/d/sizes", SIZES_TEXT)
    assert aborted_sizes.read(disk, "/d/sizes") == SIZES
    assert aborted_sizes.read(disk, "/d/none") == {}


@pytest.mark.parametrize("text", [
    b"", b"0", b"0\n", b"1\n0\n", b"0\n2\na 0 0 34\n", b"0\n0\na 0 0 34\n", b"0\n1\na 0 34\n",
    b"0\n1\na 0 0 34 1\n", b"0\n1\na x 0 34\n", b"0\n1\na 0 0 34",
])
def test_index_sizes_that_are_damaged_count_as_missing(disk: FaultyDisk, text: bytes) -> None:
    disk.write_atomically("/d/sizes", text)
    assert aborted_sizes.read(disk, "/d/sizes") == {}


# Names

@pytest.mark.parametrize(("name", "partition"), [
    ("events-0", ("events", 0)), ("a-b-12", ("a-b", 12)), ("-0-1", ("-0", 1)), ("a--1", ("a-", 1)),
    ("-0", None), ("events", None), ("events-", None), ("events-x", None), ("12", None),
    ("events-0-delete", None), ("events-0.1f-stray", None), ("", None),
])
def test_a_partitions_directory_has_its_topic_and_its_number(
    name: str, partition: tuple[str, int] | None
) -> None:
    assert partition_of(name) == partition


def test_files_are_named_by_their_base_offset() -> None:
    assert names.file_name(17, ".log") == "00000000000000000017.log"
    assert names.offset_in("00000000000000000017.log.swap") == 17
    assert offset_in("00000000000000000017.txnindex.swap") == 17
    assert offset_in("leader-epoch-checkpoint") == offset_in(".lock") == -1
    assert names.by_suffix(["1.log", "2.log", "1.index.swap", "plain", ".lock"]) == {
        ".log": ["1.log", "2.log"], ".swap": ["1.index.swap"], "plain": ["plain"],
        ".lock": [".lock"],
    }


def test_properties_are_those_of_java_without_escapes() -> None:
    text = b"# made by hand\n! this too\n\n  a = 1 \nb=x=y\nempty=\nalone\n"
    assert checkpoints.decode_properties(text) == {
        "a": "1", "b": "x=y", "empty": "", "alone": ""}
    assert checkpoints.encode_properties({"a": "1", "b": "x=y"}) == b"a=1\nb=x=y\n"
    assert checkpoints.decode_properties(b"") == {}


# Leader epochs

def test_epochs_are_forgotten_at_both_ends() -> None:
    entries = [(2, 10), (4, 20), (5, 30)]

    def left(method: str, offset: int) -> tuple[list[tuple[int, int]], bool]:
        epochs = LeaderEpochs(entries)
        assert not epochs.changed
        getattr(epochs, method)(offset)
        return epochs.entries, epochs.changed

    assert left("truncate_from_end", 31) == (entries, False)
    assert left("truncate_from_end", 30) == (entries[:2], True)
    assert left("truncate_from_end", 10) == ([], True)
    assert left("truncate_from_start", 9) == (entries, False)
    assert left("truncate_from_start", 10) == (entries, False)
    assert left("truncate_from_start", 11) == ([(2, 11), *entries[1:]], True)
    assert left("truncate_from_start", 19) == ([(2, 19), *entries[1:]], True)
    assert left("truncate_from_start", 20) == (entries[1:], True)
    assert left("truncate_from_start", 99) == ([(5, 99)], True)
    epochs = LeaderEpochs(entries)
    epochs.clear()
    assert (epochs.entries, epochs.changed, epochs.latest) == ([], True, -1)


def test_an_epoch_is_noted_once_and_none_before_it() -> None:
    epochs = LeaderEpochs()
    epochs.assign(-1, 0)
    assert (epochs.entries, epochs.changed) == ([], False)
    epochs.assign(0, 0)
    assert (epochs.entries, epochs.changed, epochs.latest) == ([(0, 0)], True, 0)
    epochs.changed = False
    epochs.assign(0, 5)
    assert (epochs.entries, epochs.changed) == ([(0, 0)], False)
    epochs.assign(7, 5)
    epochs.assign(9, 4)
    assert epochs.entries == [(0, 0), (9, 4)], "epoch 7 has no record left"


def test_epochs_are_two_numbers_a_line() -> None:
    text = b"0\n2\n1 0\n3 17\n"
    assert LeaderEpochs.decode(text).entries == [(1, 0), (3, 17)]
    assert LeaderEpochs([(1, 0), (3, 17)]).encode() == text
    assert LeaderEpochs().encode() == b"0\n0\n" and LeaderEpochs.decode(b"0\n0\n").entries == []
    for wrong in (b"1\n0\n", b"0\n2\n1 0\n", b"0\n1\n1\n", b"0\n1\n1 0 0\n", b"0\nx\n", b"\n0\n"):
        with pytest.raises(ValueError):
            LeaderEpochs.decode(wrong)
    assert LeaderEpochs([(1, 0)]).end_offset(-1, 9) == (-1, -1)


# Aborted transactions

ABORTED = [AbortedTransaction(n, 10 * n, 10 * n + 5, 10 * n + 6) for n in range(1, 4)]


@pytest.fixture
def index(disk: FaultyDisk) -> TransactionIndex:
    index = TransactionIndex(disk, "/d/x.txnindex")
    for each in ABORTED:
        index.append(each)
    return index


def test_aborted_transactions_are_in_kafkas_form(disk: FaultyDisk, index: TransactionIndex) -> None:
    assert index.entries() == ABORTED
    assert disk.read_bytes(index.path)[:34].hex() == (
        "0000" "0000000000000001" "000000000000000a" "000000000000000f" "0000000000000010")
    assert TransactionIndex(disk, "/d/none").entries() == []


def test_an_entry_that_was_cut_off_is_written_over(
    disk: FaultyDisk, index: TransactionIndex
) -> None:
    disk.open(index.path).truncate(3 * 34 - 1)
    assert index.entries() == ABORTED[:2]
    index.append(ABORTED[2])
    assert index.entries() == ABORTED and disk.size(index.path) == 3 * 34


@pytest.mark.parametrize(("offset", "kept"), [
    (99, 3), (36, 3), (35, 2), (26, 2), (25, 1), (16, 1), (15, 0), (0, 0),
])
def test_transactions_whose_marker_is_cut_off_are_forgotten(
    disk: FaultyDisk, index: TransactionIndex, offset: int, kept: int
) -> None:
    assert index.truncate_to(offset) == disk.size(index.path) == kept * 34
    assert index.entries() == ABORTED[:kept]


def test_an_index_of_a_later_version_stays_as_it_is(
    disk: FaultyDisk, index: TransactionIndex
) -> None:
    disk.open(index.path).pwrite(b"\0\1", 34)
    with pytest.raises(ValueError, match="an entry has version 1, expected 0"):
        index.entries()
    assert index.truncate_to(0) == disk.size(index.path) == 3 * 34


def test_an_index_is_replaced_durably_and_one_without_entries_is_removed(
    disk: FaultyDisk, index: TransactionIndex
) -> None:
    index.replace(ABORTED[1:])
    disk.cut_power()
    assert index.entries() == ABORTED[1:]
    index.replace([])
    assert not disk.exists(index.path)
