"""Records of `__consumer_offsets` survive their bytes, and the bytes are Kafka's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.groups.record_codec import decode_record, encode_record
from ottla.groups.records import (
    ClassicMemberValue,
    ClassicProtocols,
    CommittedOffset,
    ConsumerGroupKey,
    ConsumerGroupValue,
    ConsumerMemberKey,
    ConsumerMemberValue,
    CurrentMemberKey,
    CurrentMemberValue,
    GroupKey,
    GroupValue,
    Key,
    OffsetKey,
    Record,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetEpochKey,
    TargetEpochValue,
    TargetMemberKey,
    TargetMemberValue,
)
from ottla.wire.errors import MalformedMessage
from ottla.wire.messages import OffsetCommitKey, OffsetCommitValue

names = st.text(max_size=20)
maybe = st.none() | names
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
ids = st.binary(min_size=16, max_size=16)
partitions = st.frozensets(st.tuples(ids, st.integers(0, 99)), max_size=6)
owned = st.dictionaries(st.tuples(ids, st.integers(0, 99)), int32, max_size=6)
small = st.binary(max_size=20)

classic_members = st.builds(
    ClassicMemberValue, names, maybe, names, names, int32, int32, small, small
)
groups = st.builds(
    GroupValue, names, int32, maybe, maybe, int64, st.lists(classic_members, max_size=3).map(tuple)
)
classic_protocols = st.builds(
    ClassicProtocols, int32, st.lists(st.tuples(names, small), max_size=3).map(tuple)
)
consumer_members = st.builds(
    ConsumerMemberValue, names, names, maybe, maybe, st.frozensets(names, max_size=3), maybe,
    int32, maybe, st.none() | classic_protocols,
)
offsets = st.builds(CommittedOffset, int64, int32, names, int64, st.just(-1), ids)
pairs = st.one_of(
    st.tuples(st.builds(OffsetKey, names, names, int32), st.none() | offsets),
    st.tuples(st.builds(GroupKey, names), st.none() | groups),
    st.tuples(
        st.builds(ConsumerGroupKey, names), st.none() | st.builds(ConsumerGroupValue, int32, int64)
    ),
    st.tuples(st.builds(ConsumerMemberKey, names, names), st.none() | consumer_members),
    st.tuples(
        st.builds(TargetEpochKey, names), st.none() | st.builds(TargetEpochValue, int32, int64)
    ),
    st.tuples(
        st.builds(TargetMemberKey, names, names),
        st.none() | st.builds(TargetMemberValue, partitions),
    ),
    st.tuples(
        st.builds(CurrentMemberKey, names, names),
        st.none()
        | st.builds(CurrentMemberValue, int32, int32, st.integers(0, 2), owned, owned),
    ),
    st.tuples(
        st.builds(RegularExpressionKey, names, names),
        st.none()
        | st.builds(RegularExpressionValue, st.frozensets(names, max_size=3), int64, int64),
    ),
)


@given(pairs)
def test_a_record_survives_its_bytes(pair: tuple[object, object]) -> None:
    record = Record(*pair)  # type: ignore[arg-type]
    assert decode_record(*encode_record(record)) == record


def test_an_offset_has_the_bytes_that_kafka_writes() -> None:
    value = CommittedOffset(5, 3, "m", 0x0102)
    key, encoded = encode_record(Record(OffsetKey("g", "t", 7), value))
    assert key.hex(" ") == "00 01 00 01 67 00 01 74 00 00 00 07"
    assert encoded is not None
    assert encoded.hex(" ") == (
        "00 03 00 00 00 00 00 00 00 05 00 00 00 03 00 01 6d 00 00 00 00 00 00 01 02"
    )


@given(int64, int32, st.text(max_size=200), int64, ids)
def test_offsets_have_the_bytes_of_their_schema(
    offset: int, leader_epoch: int, metadata: str, commit_ms: int, topic_id: bytes
) -> None:
    value = CommittedOffset(offset, leader_epoch, metadata, commit_ms, topic_id=topic_id)
    key, encoded = encode_record(Record(OffsetKey(metadata, metadata, 7), value))
    named = OffsetCommitKey(group=metadata, topic=metadata, partition=7)
    assert key == b"\0\1" + named.encode(0)
    version = 3 if topic_id == bytes(16) else 4
    message = OffsetCommitValue(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata,
        commit_timestamp=commit_ms, topic_id=topic_id,
    )
    assert encoded == version.to_bytes(2, "big") + message.encode(version)


@pytest.mark.parametrize("expire_ms", [0, 1, 9])
@pytest.mark.parametrize("topic_id", [bytes(16), b"i" * 16])
def test_an_offset_with_its_own_retention_is_of_version_1(
    expire_ms: int, topic_id: bytes
) -> None:
    value = CommittedOffset(5, -1, "", 7, expire_ms, topic_id)
    _, encoded = encode_record(Record(OffsetKey("g", "t", 7), value))
    assert encoded is not None and encoded[:2] == b"\0\1"
    record = decode_record(b"\0\1\0\1g\0\1t\0\0\0\7", encoded)
    assert record == Record(OffsetKey("g", "t", 7), value._replace(topic_id=bytes(16)))


def test_keys_of_kafka_0_8_are_offsets_too() -> None:
    value = b"\0\0" + (5).to_bytes(8, "big") + b"\0\0" + (7).to_bytes(8, "big")
    record = decode_record(b"\0\0\0\1g\0\1t\0\0\0\7", value)
    assert record == Record(OffsetKey("g", "t", 7), CommittedOffset(5, commit_ms=7))


def test_unknown_types_are_skipped() -> None:
    assert decode_record(b"\0\x63anything", b"\0\0") is None


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\1", b"\0\1\0\5g"])
def test_keys_that_are_cut_off_are_refused(key: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(key, b"\0\3")


@pytest.mark.parametrize("value", [b"", b"\0", b"\0\3", b"\0\3\0"])
def test_values_that_are_cut_off_are_refused(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(b"\0\1\0\1g\0\1t\0\0\0\7", value)


@pytest.mark.parametrize("size", [126, 127, 128])
def test_metadata_of_any_length_are_kept(size: int) -> None:
    value = CommittedOffset(5, -1, "m" * size, 7, topic_id=b"i" * 16)
    record = Record(OffsetKey("g", "t", 7), value)
    assert decode_record(*encode_record(record)) == record


@pytest.mark.parametrize(("key", "number"), [
    (OffsetKey("g", "t", 7), 1), (GroupKey("g"), 2), (ConsumerGroupKey("g"), 3),
    (ConsumerMemberKey("g", "m"), 5), (TargetEpochKey("g"), 6), (TargetMemberKey("g", "m"), 7),
    (CurrentMemberKey("g", "m"), 8), (RegularExpressionKey("g", "m"), 16),
])
def test_keys_have_kafkas_numbers(key: Key, number: int) -> None:
    assert encode_record(Record(key, None))[0][:2] == number.to_bytes(2, "big")
