"""Records of `__transaction_state`: Kafka's bytes."""

from __future__ import annotations

import pytest

from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.transactions.records import (
    EPOCH_MAX,
    TransactionRecord,
    TransactionState,
    TransactionValue,
    decode_record,
    encode_record,
    is_exhausted,
)
from ottla.groups.transactions.shard import End, Initialise
from ottla.wire.errors import MalformedMessage

S = TransactionState


def test_records_are_kafkas_bytes() -> None:
    value = TransactionValue(
        1, 2, 3, S.ONGOING, frozenset({("t", 1), ("t", 0), ("u", 5)}), 4, 5, 6, 7, 2
    )
    key, data = encode_record(TransactionRecord("id", value))
    assert key == b"\0\0\0\2id"
    # version | producer id | epoch | timeout | state | 2 topics | updated | started | 3 tags
    assert data is not None and data.hex(" ") == (
        "00 01 00 00 00 00 00 00 00 01 00 02 00 00 00 03 01 03 02 74 03 00 00 00 00 00 00 00 01 00"
        " 02 75 02 00 00 00 05 00 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 05 03 00 08 00 00 00"
        " 00 00 00 00 06 01 08 00 00 00 00 00 00 00 07 02 02 00 02"
    )
    assert decode_record(key, data) == TransactionRecord("id", value)
    assert decode_record(key, None) == TransactionRecord("id", None)


def test_values_of_kafka_2_are_read() -> None:
    data = bytes.fromhex("0000 0000000000000009 0001 0000ea60 00 ffffffff")
    data += bytes.fromhex("0000018bcfe56800 ffffffffffffffff")
    record = decode_record(b"\0\0\0\1x", data)
    assert record is not None and record.value is not None
    assert (record.value.producer_id, record.value.epoch, record.value.state) == (9, 1, S.EMPTY)


def test_foreign_records_are_skipped_and_broken_ones_refused() -> None:
    assert decode_record(b"\0\7rest", b"") is None
    for key, value in [(b"", None), (b"\0\0\0\1x", b""), (b"\0\0\0\1x", b"\0\5rest")]:
        with pytest.raises(MalformedMessage):
            decode_record(key, value)
    good = encode_record(TransactionRecord("x", TransactionValue(1, 2, 3)))[1] or b""
    state = good[:16] + b"\x63" + good[17:]
    with pytest.raises(MalformedMessage, match="state 99"):
        decode_record(b"\0\0\0\1x", state)


def test_states_have_kafkas_numbers_and_names() -> None:
    assert [(state.value, state.label) for state in S] == [
        (0, "Empty"), (1, "Ongoing"), (2, "PrepareCommit"), (3, "PrepareAbort"),
        (4, "CompleteCommit"), (5, "CompleteAbort"), (6, "Dead"), (7, "PrepareEpochFence"),
    ]


@pytest.mark.parametrize("state", S)
def test_a_state_says_whether_it_ends_and_how(state: TransactionState) -> None:
    value = TransactionValue(1, 2, 3, state)
    assert value.is_ending == (state in (S.PREPARE_COMMIT, S.PREPARE_ABORT))
    assert value.commits == (state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT))


def test_the_last_epoch_is_kept_for_fencing() -> None:
    assert EPOCH_MAX == 0x7FFF
    assert [is_exhausted(epoch) for epoch in (0, 0x7FFD, 0x7FFE, 0x7FFF)] == [
        False, False, True, True]
    assert TransactionValue(1, 0x7FFE, 3).is_exhausted
    assert not TransactionValue(1, 0x7FFD, 3).is_exhausted


def test_an_empty_id_has_no_list_of_partitions_and_what_was_left_out_has_its_default() -> None:
    _, data = encode_record(TransactionRecord("x", TransactionValue(1, 2, 3)))
    # version | producer id | epoch | timeout | state | no list | updated | started | no tags
    assert data is not None and data.hex(" ") == (
        "00 01 00 00 00 00 00 00 00 01 00 02 00 00 00 03 00 00"
        " ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00"
    )
    assert decode_record(b"\0\0\0\1x", data) == TransactionRecord("x", TransactionValue(1, 2, 3))


@pytest.mark.parametrize(("key", "value"), [
    (b"\0", None), (b"\0\0\0\1x", b"\0"), (b"\0\0\0\1x", b"\0\2rest"),
])
def test_what_is_cut_off_within_its_version_is_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage, match=r"shorter than|version 2"):
        decode_record(key, value)


def test_a_client_that_says_nothing_has_no_epoch_for_each_transaction() -> None:
    end = End("t", Producer(7, 3), commit=True)
    assert end.version == 0
    assert Initialise("t", 60_000).expected == NO_PRODUCER
