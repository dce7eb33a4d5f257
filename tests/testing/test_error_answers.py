"""The proxy answers real requests of every API and version with an error."""

from __future__ import annotations

import pytest

from ottla.testing.error_answers import READS_WITH_MORE, NoErrorToGive, error_answer, mark
from ottla.wire.apis import APIS
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader
from ottla.wire.messages import (
    CreateTopicsRequest,
    DescribeGroupsRequest,
    FetchRequest,
    OffsetFetchRequest,
    ProduceRequest,
)
from tests.golden.frames import files, frames

CODE = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("file_name", files())
def test_every_recorded_request_has_an_answer_with_the_error(file_name: str) -> None:
    answered = without = 0
    for frame in frames(file_name):
        api = APIS.get(frame.key)
        if api is None or frame.direction != "request" or frame.body_version is not None:
            continue
        if frame.version not in api.request.VERSIONS or frame.key in READS_WITH_MORE:
            continue
        _, at = RequestHeader.decode(frame.frame)
        request = api.request.decode(frame.frame[at : len(frame.frame) - frame.trailing_bytes],
                                     frame.version)
        try:
            answer = error_answer(frame.key, frame.version, request, CODE)
        except NoErrorToGive:
            without += 1                # the request has no item that could be refused
            continue
        decoded = api.response.decode(answer.encode(frame.version), frame.version)
        assert mark(decoded, frame.version, CODE)
        answered += 1
    assert answered >= without, f"{without} of {answered + without} requests have no answer"


def test_each_partition_of_a_produce_request_is_refused_by_name() -> None:
    partition = ProduceRequest.TopicData.PartitionData
    request = ProduceRequest(acks=1, topic_data=[
        ProduceRequest.TopicData(name="a", partition_data=[partition(index=3), partition(index=5)]),
        ProduceRequest.TopicData(name="b", partition_data=[partition(index=0)]),
    ])
    answer = error_answer(0, 9, request, CODE)
    assert [
        (topic.name, part.index, part.error_code)
        for topic in answer.responses for part in topic.partition_responses
    ] == [("a", 3, CODE), ("a", 5, CODE), ("b", 0, CODE)]


def test_names_and_numbers_in_plain_arrays_come_back_too() -> None:
    groups = error_answer(15, 5, DescribeGroupsRequest(groups=["g", "h"]), CODE).groups
    assert [(group.group_id, group.error_code) for group in groups] == [("g", CODE), ("h", CODE)]
    asked = OffsetFetchRequest.Group
    request = OffsetFetchRequest(groups=[
        asked(group_id="g", topics=[asked.Topic(name="t", partition_indexes=[1, 2])])
    ])
    [group] = error_answer(9, 8, request, CODE).groups
    assert (group.group_id, group.error_code, group.topics[0].name) == ("g", CODE, "t")
    assert [part.partition_index for part in group.topics[0].partitions] == [1, 2]


def test_a_request_that_names_nothing_has_no_answer_with_an_error() -> None:
    with pytest.raises(NoErrorToGive, match="CreateTopics version 5 have no error field"):
        error_answer(19, 5, CreateTopicsRequest(topics=[]), CODE)


def test_a_refused_fetch_has_no_records_and_no_end_that_a_consumer_takes_for_real() -> None:
    """`records` is empty, not null: librdkafka cannot read null, and then sends thousands of
    Fetches a second."""
    kind = FetchRequest.Topic
    request = FetchRequest(topics=[kind(topic="t", partitions=[kind.Partition(partition=2)])])
    [[part]] = [topic.partitions for topic in error_answer(1, 11, request, CODE).responses]
    assert (part.partition_index, part.error_code) == (2, CODE)
    assert (part.records, part.high_watermark) == (b"", -1)
