"""The behaviour of messages: construction, nulls, versions, tags, limits."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import pytest

from ottla.wire import messages
from ottla.wire.errors import (
    MalformedMessage,
    NotInThisVersion,
    NumberOutOfRange,
    UnencodableMessage,
    UnsupportedVersion,
)
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    ApiVersionsResponse,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupMemberMetadataValue,
    CreateTopicsRequest,
    DescribeTopicPartitionsRequest,
    FetchRequest,
    HeartbeatRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitKey,
    OffsetFetchResponse,
    ProduceRequest,
)
from ottla.wire.parts import EncodedInParts

QUOTA, TOPIC = AlterClientQuotasRequest.Entry, CreateTopicsRequest.Topic


def test_keywords_set_fields_and_the_schema_the_rest() -> None:
    request = MetadataRequest(topics=[MetadataRequest.Topic(name="t")])
    assert request.allow_auto_topic_creation is True
    assert request.topics[0].topic_id == bytes(16)
    assert FetchRequest().max_bytes == 2**31 - 1
    assert FetchRequest().replica_state == FetchRequest.ReplicaState(replica_id=-1)


def test_default_lists_and_structs_are_not_shared() -> None:
    MetadataRequest().topics.append(MetadataRequest.Topic())
    FetchRequest().replica_state.replica_id = 7
    assert MetadataRequest().topics == []
    assert FetchRequest().replica_state.replica_id == -1


def test_an_unknown_keyword_or_attribute_is_refused() -> None:
    with pytest.raises(TypeError, match=r"MetadataRequest has no field topic\b"):
        MetadataRequest(topic=[])
    with pytest.raises(AttributeError):
        MetadataRequest().topic = []


def test_classes_know_their_api() -> None:
    assert (MetadataRequest.API_KEY, MetadataRequest.KIND) == (3, "request")
    assert (OffsetCommitKey.API_KEY, OffsetCommitKey.KIND) == (1, "key")
    assert (range(14), 9) == (MetadataResponse.VERSIONS, MetadataResponse.FLEXIBLE_FROM)
    assert MetadataResponse.Topic.Partition.__qualname__ == "MetadataResponse.Topic.Partition"


def test_only_the_file_of_the_message_is_read() -> None:
    program = (
        "from ottla.wire import messages; from ottla.wire.messages import MetadataRequest;"
        "made = [name for name in vars(messages) if name.endswith(('Request', 'Response'))];"
        "assert made == ['MetadataRequest', 'MetadataResponse'], made"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_message_that_does_not_exist_is_an_attribute_error() -> None:
    for name in ("NoSuchRequest", "metadataRequest", "MetadataKey", "__path__", "Metadata"):
        with pytest.raises(AttributeError):
            getattr(messages, name)
    assert "MetadataRequest" in dir(messages)


def test_repr_tells_what_differs_from_the_default() -> None:
    request = ProduceRequest(acks=-1, topic_data=[ProduceRequest.TopicData(name="t")])
    assert repr(request) == (
        "ProduceRequest(acks=-1, topic_data=[ProduceRequest.TopicData(name='t')])"
    )
    partition = ProduceRequest.TopicData.PartitionData(records=bytes(1000))
    assert "<1000 bytes b'" in repr(partition)
    assert len(repr(partition)) < 200


def test_messages_are_equal_by_value_copied_and_pickled() -> None:
    message = MetadataResponse(topics=[MetadataResponse.Topic(name="t")])
    for same in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert same == message
    other = copy.deepcopy(message)
    other.topics[0].name = "u"
    assert other != message
    assert message != MetadataRequest()
    with pytest.raises(TypeError):
        hash(message)


def test_a_field_that_matters_is_refused_where_the_version_lacks_it() -> None:
    request = InitProducerIdRequest(producer_id=5)
    assert InitProducerIdRequest.decode(request.encode(3), 3) == request
    with pytest.raises(NotInThisVersion, match=r"InitProducerIdRequest\.producer_id in version 2"):
        request.encode(2)
    with pytest.raises(NotInThisVersion):
        HeartbeatRequest(group_instance_id="i").encode(2)


def test_an_ignorable_field_is_dropped_where_the_version_lacks_it() -> None:
    assert MetadataResponse(cluster_id="c").encode(1) == MetadataResponse().encode(1)


def test_null_is_refused_both_ways_where_the_schema_forbids_it() -> None:
    with pytest.raises(UnencodableMessage, match=r"HeartbeatRequest\.group_id"):
        HeartbeatRequest(group_id=None).encode(0)
    said = r"HeartbeatRequest\.group_id in version 0: the value is null"
    with pytest.raises(MalformedMessage, match=said):
        HeartbeatRequest.decode(b"\xff\xff\x00\x00\x00\x01\x00\x00", 0)
    with pytest.raises(UnencodableMessage, match=r"MetadataRequest\.topics"):
        MetadataRequest(topics=None).encode(0)
    with pytest.raises(MalformedMessage, match=r"MetadataRequest\.topics"):
        MetadataRequest.decode(b"\xff\xff\xff\xff", 0)
    assert MetadataRequest.decode(b"\xff\xff\xff\xff", 1).topics is None
    with pytest.raises(UnencodableMessage, match="element 1 is null"):
        MetadataRequest(topics=[MetadataRequest.Topic(name="a"), None]).encode(0)


def test_null_and_empty_arrays_differ() -> None:
    for version in (1, 9):
        for topics in (None, []):
            data = MetadataRequest(topics=topics).encode(version)
            assert MetadataRequest.decode(data, version).topics == topics


@pytest.mark.parametrize(
    "message",
    [
        HeartbeatRequest(generation_id=2**31),
        HeartbeatRequest(generation_id="1"),
        HeartbeatRequest(generation_id=1.5),
        HeartbeatRequest(generation_id=2**70),
        HeartbeatRequest(group_id=b"bytes"),
        HeartbeatRequest(group_id="x" * 40_000),
        CreateTopicsRequest(topics="text"),
        CreateTopicsRequest(topics=[MetadataRequest.Topic()]),
        CreateTopicsRequest(topics=[CreateTopicsRequest.Topic(replication_factor=2**15)]),
        CreateTopicsRequest(topics=7),
        MetadataRequest(topics=[MetadataRequest.Topic(topic_id=b"short")]),
        ProduceRequest(topic_data=[{"name": "t"}]),
    ],
    ids=repr,
)
def test_a_value_that_its_field_cannot_hold_names_the_field(message: messages.Message) -> None:
    version = min(4, message.VERSIONS.stop - 1) if message.API_KEY != 3 else 12
    with pytest.raises(UnencodableMessage, match=rf"{type(message).__name__}.*in version"):
        message.encode(version)


@pytest.mark.parametrize(("number", "value"), [
    (2**31, 2**31), (-(2**63), -(2**63)), (-(2**63) - 1, None), (2**5000, None),
])
def test_a_number_out_of_range_says_for_a_user_what_its_field_holds(
    number: int, value: int | None
) -> None:
    most = 2**31 - 1
    for encode in (
        HeartbeatRequest(generation_id=number).encode,
        lambda version: EncodedInParts(
            HeartbeatRequest(generation_id=number), version).encode_part(99),
    ):
        with pytest.raises(NumberOutOfRange) as raised:
            encode(4)
        wrong = raised.value
        assert (wrong.field, wrong.value, wrong.lowest, wrong.highest) == (
            "generation_id", value, -most - 1, most)
        assert wrong.sentence == (
            f"generation id: {value or 'the number'} is not between {-most - 1} and {most}")


@pytest.mark.parametrize("message", [
    AlterClientQuotasRequest(entries=[QUOTA(ops=[QUOTA.Op(value=10**400)])]),
    CreateTopicsRequest(topics=[TOPIC(assignments=[TOPIC.Assignment(broker_ids=range(10**30))])]),
])
def test_an_overflow_that_is_not_of_a_fields_number_has_no_limits_of_a_field(
    message: messages.Message,
) -> None:
    def in_parts(version: int) -> None:
        EncodedInParts(message, version).encode_part(99)

    for encode in (message.encode, in_parts):
        with pytest.raises(UnencodableMessage, match=r"in version 1: .*too large") as raised:
            encode(1)
        assert type(raised.value) is UnencodableMessage


def test_a_tuple_is_an_array_too_and_any_buffer_is_bytes() -> None:
    partition = ProduceRequest.TopicData.PartitionData(records=memoryview(b"abc"))
    request = ProduceRequest(
        topic_data=(ProduceRequest.TopicData(name="t", partition_data=(partition,)),)
    )
    decoded = ProduceRequest.decode(memoryview(request.encode(9)), 9)
    assert decoded.topic_data[0].partition_data[0].records == b"abc"


def test_versions_outside_of_the_schema_are_refused() -> None:
    for version in (-1, 14, 2**31 - 1):
        with pytest.raises(UnsupportedVersion, match="MetadataRequest exists in versions 0-13"):
            MetadataRequest().encode(version)
        with pytest.raises(UnsupportedVersion):
            MetadataRequest.decode(b"", version)


def test_text_that_is_no_utf8_is_read_as_kafka_reads_it_and_never_written() -> None:
    data = b"\x00\x03a\xff\xfe" + bytes(4) + b"\x00\x00"
    request = HeartbeatRequest.decode(data, 0)
    assert request.group_id == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}"
    named_by_a_path = HeartbeatRequest(group_id=os.fsdecode(b"a\xff"), member_id="")
    assert HeartbeatRequest.decode(named_by_a_path.encode(0), 0).group_id == "a?"


def test_the_longest_text_is_read() -> None:
    request = HeartbeatRequest(group_id="g" * 32_767, member_id="m")
    assert HeartbeatRequest.decode(request.encode(0), 0) == request


def test_text_that_would_grow_beyond_what_the_protocol_allows_is_refused() -> None:
    data = b"\x7f\xff" + 32_767 * b"\xff" + bytes(4) + b"\x00\x00"
    with pytest.raises(MalformedMessage, match="32767 bytes is not valid UTF-8"):
        HeartbeatRequest.decode(data, 0)


def test_tagged_fields_are_written_only_when_they_differ_and_in_order() -> None:
    empty = ApiVersionsResponse().encode(3)
    assert empty.endswith(b"\x00")
    filled = ApiVersionsResponse(
        zk_migration_ready=True,
        finalized_features_epoch=5,
        supported_features=[ApiVersionsResponse.SupportedFeature(name="f", max_version=1)],
    ).encode(3)
    tags = filled[len(empty) - 1 :]
    assert tags == (
        b"\x03"
        b"\x00\x08\x02\x02f\x00\x00\x00\x01\x00"
        b"\x01\x08" + (5).to_bytes(8, "big") + b"\x03\x01\x01"
    )


def test_a_long_tagged_field_has_a_long_size_before_it() -> None:
    request = FetchRequest(cluster_id="c" * 300)
    data = request.encode(12)
    assert b"\x01\x00\xae\x02\xad\x02" + b"c" * 300 in data
    assert FetchRequest.decode(data, 12) == request


def test_unknown_tags_are_skipped_and_a_wrong_size_is_malformed() -> None:
    plain = HeartbeatRequest(group_id="g").encode(4)
    assert plain[-1] == 0
    extended = plain[:-1] + b"\x02\x07\x03abc\x64\x00"
    assert HeartbeatRequest.decode(extended, 4) == HeartbeatRequest(group_id="g")
    endless = b"\xff\xff\xff\xff\x0f"
    for tags in (b"\x01", b"\x01\x07\x03ab", endless, b"\x01\x07" + endless):
        with pytest.raises(MalformedMessage):
            HeartbeatRequest.decode(plain[:-1] + tags, 4)
    fetch = FetchRequest(cluster_id="abc").encode(12)
    known = b"\x01\x00\x04\x04abc"
    assert fetch.endswith(known)
    for wrong in (b"\x01\x00\x03\x04abc", b"\x01\x00\x05\x04abc\x00"):
        with pytest.raises(MalformedMessage):
            FetchRequest.decode(fetch.removesuffix(known) + wrong, 12)


def test_a_nullable_struct_is_one_signed_byte() -> None:
    none = DescribeTopicPartitionsRequest(cursor=None).encode(0)
    assert none.endswith(b"\xff\x00")
    cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=1)
    request = DescribeTopicPartitionsRequest(cursor=cursor)
    assert request.encode(0).endswith(b"\x01\x02t\x00\x00\x00\x01\x00\x00")
    assert DescribeTopicPartitionsRequest.decode(request.encode(0), 0) == request
    zero = request.encode(0).replace(b"\x01\x02t", b"\x00\x02t")
    assert DescribeTopicPartitionsRequest.decode(zero, 0) == request, "only -1 is null"
    assignment = ConsumerGroupHeartbeatResponse.Assignment()
    response = ConsumerGroupHeartbeatResponse(assignment=assignment)
    assert ConsumerGroupHeartbeatResponse.decode(response.encode(0), 0) == response


def test_a_tagged_nullable_struct_has_zero_for_null() -> None:
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    data = value.encode(0)
    assert data.endswith(b"\x01\x00\x01\x00")
    assert ConsumerGroupMemberMetadataValue.decode(data, 0) == value


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, 4, -2])
def test_a_count_that_the_bytes_cannot_hold_allocates_nothing(count: int) -> None:
    data = count.to_bytes(4, "big", signed=True) + bytes(4)
    with pytest.raises(MalformedMessage, match=f"an array has {count} elements"):
        MetadataRequest.decode(data, 0)


def test_no_element_is_so_small_that_few_bytes_claim_many() -> None:
    with pytest.raises(MalformedMessage):
        ListOffsetsRequest.decode(bytes(4) + b"\x00" + b"\xff\xff\xff\x7f" * 3, 2)
    with pytest.raises(MalformedMessage):
        OffsetFetchResponse.decode(b"\x00\x00\x00\x00\xff\xff\xff\xff\x0f" + bytes(100), 8)


def test_an_encode_error_leaves_no_half_message_behind() -> None:
    request = HeartbeatRequest(group_id="g", member_id=None)
    with pytest.raises(UnencodableMessage):
        request.encode(0)
    request.member_id = "m"
    assert HeartbeatRequest.decode(request.encode(0), 0) == request
    del request.member_id
    with pytest.raises(UnencodableMessage, match="deleted"):
        request.encode(0)
