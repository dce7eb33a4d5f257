"""Metadata records as text: each is decoded as it was, and nothing is guessed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.metadata import (
    MetadataRecord,
    PartitionsAdded,
    PartitionState,
    TopicCreated,
)
from ottla.replication.records import UnreadableMetadata, decode_record, encode_record
from tests.replication.histories import histories


@given(histories())
def test_every_record_comes_back_as_it_was(records: list[MetadataRecord]) -> None:
    for record in records:
        assert decode_record(encode_record(record)) == record


def test_the_text_of_a_record_is_for_good() -> None:
    topic = TopicCreated("t", b"\x0f" * 16, (PartitionState(0, 1, (0, 2), (0,), 3),))
    text = (
        '["TopicCreated",{"name":"t","topic_id":"0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f",'
        '"partitions":[[0,1,[0,2],[0],3]]}]'
    )
    assert encode_record(topic) == text.encode()
    assert decode_record(text.encode()) == topic


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\xff", b"{}", b"[]", b'["TopicDeleted"]', b'["Unheard",{}]', b'["TopicDeleted",{}]',
        b'["TopicDeleted",{"name":"t","more":1}]', b'["TopicDeleted",[]]', b"null", b"1",
        b'["TopicCreated",{"name":"t","topic_id":"xyz","partitions":[]}]',
        b'["PartitionChanged",{"topic":"t","index":0,"state":[1]}]',
        b'["TopicDeleted",{"name":"t"}',
    ],
)
def test_a_record_that_cannot_be_read_stops_the_reader(text: bytes) -> None:
    with pytest.raises(UnreadableMetadata):
        decode_record(text)


@given(st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
))
def test_no_other_json_is_a_record(value: object) -> None:
    with pytest.raises(UnreadableMetadata):
        decode_record(json.dumps(value).encode())


def test_partitions_that_are_the_same_are_written_once() -> None:
    same, other = PartitionState(0, 0, (0,), (0,)), PartitionState(1, 0, (1,), (1,))
    record = TopicCreated("t", bytes(16), (same,) * 10_000 + (other,) + (same,) * 2)
    data = encode_record(record)
    assert b'"partitions":[[0,0,[0],[0],0,10000],[1,0,[1],[1],0],[0,0,[0],[0],0,2]]' in data
    assert decode_record(data) == record


def test_partitions_that_are_the_same_may_be_written_one_by_one() -> None:
    data = b'["PartitionsAdded",{"topic":"t","partitions":[[0,1,[0],[0],3],[0,1,[0],[0],3]]}]'
    state = PartitionState(0, 1, (0,), (0,), 3)
    assert decode_record(data) == PartitionsAdded("t", (state, state))
