"""Metadata records as text: each is decoded to what was encoded, and text that is not a record is
refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.replication.metadata import (
    BackupAdopted,
    BackupAdopting,
    BrokerGone,
    BrokerImage,
    BrokerRegistered,
    Endpoint,
    MetadataRecord,
    PartitionChanged,
    PartitionExtra,
    PartitionsAdded,
    PartitionState,
    RecentlyGone,
    TopicCreated,
)
from ottla.replication.principals import (
    AccessRule,
    DelegationToken,
    QuotaSet,
    RuleSet,
    ScramCredential,
    ScramSet,
    TokenSet,
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


TOKEN = DelegationToken("id", "User:a", "User:b", ("User:c", "User:d"), 1, 2, 3)
CREDENTIAL = ScramCredential(4096, b"salt", b"stored", b"server")


@pytest.mark.parametrize("record", [
    TokenSet("id", TOKEN), TokenSet("id", TOKEN._replace(renewers=())), TokenSet("id", None),
    ScramSet("u", 1, CREDENTIAL), ScramSet("u", 1, None),
    RuleSet(AccessRule(2, 3, "t", "User:a", "*", 3, 3), False),
    QuotaSet((("client-id", None), ("user", "u")), "producer_byte_rate", 5.0),
    QuotaSet((), "producer_byte_rate", None),
    BrokerGone(1, (2, 3)), BrokerGone(1), RecentlyGone((2, 3)), RecentlyGone(),
    BackupAdopting((2, 3), 7, 5), BackupAdopted(),
], ids=str)
def test_what_the_metadata_keep_about_clients_and_backups_comes_back(
    record: MetadataRecord
) -> None:
    assert decode_record(encode_record(record)) == record


def test_fields_that_older_versions_do_not_know_are_left_out_if_they_say_nothing() -> None:
    assert encode_record(BrokerGone(1)) == b'["BrokerGone",{"node_id":1}]'
    assert encode_record(BrokerGone(1, (2,))) == b'["BrokerGone",{"node_id":1,"company":[2]}]'
    broker = BrokerImage(1, 5, (Endpoint("A", "h", 9),), None)
    assert encode_record(BrokerRegistered(broker)) == (
        b'["BrokerRegistered",{"broker":[1,5,[["A","h",9]],null]}]')
    assert encode_record(BrokerRegistered(broker._replace(directories=("d",)))) == (
        b'["BrokerRegistered",{"broker":[1,5,[["A","h",9]],null,"",["d"]]}]')
    state = PartitionState(0, 0, (0,), (0,), 0, PartitionExtra(elr=(1,)))
    assert encode_record(PartitionChanged("t", 0, state)) == (
        b'["PartitionChanged",{"topic":"t","index":0,"state":[0,0,[0],[0],0,{"elr":[1]}]}]')


def changed(state: str) -> str:
    return f'["PartitionChanged",{{"topic":"t","index":0,"state":{state}}}]'


NUMBER_MAX, NODE_MAX = 2**63 - 1, 2**31 - 1


@pytest.mark.parametrize("text", [
    changed(f"[{NODE_MAX},{NUMBER_MAX},[{NODE_MAX}],[],{NUMBER_MAX}]"),
    changed("[-1,0,[0],[],0]"),
    changed('[0,0,[0],[],0,{"elr":[0]}]'),
    f'["ProducerIdsTaken",{{"next_id":{NUMBER_MAX}}}]',
    '["BrokerRegistered",{"broker":[0,0,[],"rack","i",[]]}]',
    '["PartitionsAdded",{"topic":"t","partitions":[[0,1,[0],[0],3,1000000]]}]',
])
def test_numbers_and_names_of_any_size_are_read(text: str) -> None:
    decode_record(text.encode())


@pytest.mark.parametrize("text", [
    changed("[-2,0,[0],[],0]"),
    changed(f"[{NODE_MAX + 1},0,[0],[],0]"),
    changed("[0.0,0,[0],[],0]"),
    changed("[0,-1,[0],[],0]"),
    changed(f"[0,{NUMBER_MAX + 1},[0],[],0]"),
    changed('[0,"0",[0],[],0]'),
    changed("[0,0,0,[],0]"),
    changed('[0,0,"0",[],0]'),
    changed(f"[0,0,[{NODE_MAX + 1}],[],0]"),
    changed("[0,0,[-1],[],0]"),
    changed("[0,0,[true],[],0]"),
    changed("[0,0,[0],null,0]"),
    changed("[0,0,[0],[],-1]"),
    changed("[0,0,[0],[],0.5]"),
    changed("[0,0,[0],[],0,3]"),
    changed('[0,0,[0],[],0,{"elr":[-1]}]'),
    changed('[0,0,[0],[],0,{"unheard":[1]}]'),
    changed('[0,0,[0],[],0,{"elr":[1]},7]'),
    '["PartitionChanged",{"topic":3,"index":0,"state":[0,0,[0],[],0]}]',
    '["PartitionChanged",{"topic":"t","index":-1,"state":[0,0,[0],[],0]}]',
    '["PartitionChanged",{"topic":"t","index":true,"state":[0,0,[0],[],0]}]',
    '["PartitionsChanged",{"topic":"t","rows":[["0",0,0,[0],[],0]]}]',
    '["PartitionsAdded",{"topic":"t","partitions":[[0,1,[0],[0],3,1000001]]}]',
    '["PartitionsAdded",{"topic":"t","partitions":[[0,1,[0],[0],3,-1]]}]',
    f'["ProducerIdsTaken",{{"next_id":{NUMBER_MAX + 1}}}]',
    '["ProducerIdsTaken",{"next_id":-1}]',
    '["ProducerIdsTaken",{"next_id":"1"}]',
    '["BrokerRegistered",{"broker":[-1,0,[],null]}]',
    '["BrokerRegistered",{"broker":[0,"0",[],null]}]',
    '["BrokerRegistered",{"broker":[0,0,[[1,"h",9]],null]}]',
    '["BrokerRegistered",{"broker":[0,0,[["A",2,9]],null]}]',
    '["BrokerRegistered",{"broker":[0,0,[["A","h","9"]],null]}]',
    '["BrokerRegistered",{"broker":[0,0,[],5]}]',
    '["BrokerRegistered",{"broker":[0,0,[],null,5]}]',
    '["BrokerRegistered",{"broker":[0,0,[],null,"i",[5]]}]',
    '["BrokerGone",{"node_id":1,"company":[-1]}]',
    '["RecentlyGone",{"nodes":1}]',
    '["BackupAdopting",{"awaited":"2","next_id":0,"epoch":0}]',
    '["ScramSet",{"user":"u","mechanism":1,"credential":["1","","",""]}]',
    '["ScramSet",{"user":"u","mechanism":1,"credential":[-1,"","",""]}]',
    '["ScramSet",{"user":"u","mechanism":1,"credential":[1,"","x",""]}]',
    '["TokenSet",{"token_id":"i","token":[1,"a","b",[],1,2,3]}]',
    '["TokenSet",{"token_id":"i","token":["i","a","b",[4],1,2,3]}]',
    '["TokenSet",{"token_id":"i","token":["i","a","b",[],1,2,"3"]}]',
    '["TokenSet",{"token_id":"i","token":["i","a","b",[],1,2]}]',
    '["RuleSet",{"rule":[2,3,"t","User:a",5,3,3],"present":true}]',
    '["RuleSet",{"rule":[2,3,4,"User:a","*",3,3],"present":true}]',
    '["RuleSet",{"rule":["2",3,"t","User:a","*",3,3],"present":true}]',
    '["RuleSet",{"rule":[2,3,"t","User:a","*",3,null],"present":true}]',
    '["RuleSet",{"rule":[2,3,"t","User:a","*",3,3],"present":1}]',
    '["QuotaSet",{"entity":[[1,"u"]],"key":"k","value":1.0}]',
    '["QuotaSet",{"entity":[["user",3]],"key":"k","value":1.0}]',
    '["QuotaSet",{"entity":[],"key":"k","value":[]}]',
    '["TopicDeleted",{"name":null}]',
])  # fmt: skip
def test_a_field_of_another_type_or_out_of_range_is_not_guessed(text: str) -> None:
    with pytest.raises(UnreadableMetadata):
        decode_record(text.encode())


def test_the_times_of_a_token_fit_into_64_bits() -> None:
    """An earlier version stored later times if the settings allowed any lifetime."""
    text = f'["TokenSet",{{"token_id":"i","token":["i","a","b",[],1,2,{2**63}]}}]'
    token = DelegationToken("i", "a", "b", (), 1, 2, 2**63 - 1)
    assert decode_record(text.encode()) == TokenSet("i", token)
