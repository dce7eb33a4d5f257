"""OffsetCommit, OffsetFetch, OffsetDelete: the positions of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ottla.broker.api.refusals import refused_topics
from ottla.broker.context import RequestContext
from ottla.broker.coordination.answers import answer_later, answer_of
from ottla.broker.dispatch import handles
from ottla.broker.network.promises import LateReply
from ottla.broker.security.access import GROUP_REFUSED, TOPIC_REFUSED
from ottla.broker.security.decisions import by_item
from ottla.groups.offset_requests import Commit, FetchedOffset, OffsetToCommit
from ottla.replication.controller.access import Operation
from ottla.replication.metadata import MetadataImage, TopicImage
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

NO_ID = bytes(16)


@handles(ApiKey.OFFSET_COMMIT, versions=range(0, 11), access=by_item)
def offset_commit(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | LateReply:
    """Commit offsets of partitions that exist; each of the others gets an error.

    READ of the group and of each topic.
    """
    image, version, access = context.broker.image, context.version, context.access
    made = OffsetCommitResponse.Topic
    if not access.group(Operation.READ, request.group_id):
        return OffsetCommitResponse(topics=refused_topics(made, request.topics, GROUP_REFUSED))
    topics, refused = access.split(
        request.topics, lambda topic: access.topic_item(Operation.READ, topic)
    )
    refusals = refused_topics(made, refused, TOPIC_REFUSED)
    response = OffsetCommitResponse(topics=[])
    offsets: list[OffsetToCommit] = []
    answers: list[OffsetCommitResponse.Topic.Partition] = []
    for topic in topics:
        answered, name, count, topic_id = _answered_topic(topic, image, version)
        if not topic.partitions and name in image.topics:
            continue                                    # Kafka leaves these out
        response.topics.append(answered)
        for each in topic.partitions:
            index = each.partition_index
            answer = OffsetCommitResponse.Topic.Partition(partition_index=index)
            answered.partitions.append(answer)
            if not 0 <= index < count:
                answer.error_code = int(
                    ErrorCode.UNKNOWN_TOPIC_ID
                    if version >= 10 and name not in image.topics
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                continue
            answers.append(answer)
            offsets.append(
                OffsetToCommit(
                    name,
                    index,
                    each.committed_offset,
                    each.committed_leader_epoch if version >= 6 else -1,
                    each.committed_metadata or "",
                    topic_id,
                )
            )
    if not offsets and response.topics:
        response.topics += refusals
        return response
    response.topics += refusals
    commit = _commit(request, offsets, version)

    def respond(reply: list[ErrorCode] | ProtocolError) -> OffsetCommitResponse:
        if isinstance(reply, ProtocolError):
            reply = [commit_code(reply.code)] * len(answers)
        for answer, code in zip(answers, reply, strict=True):
            if code:
                answer.error_code = int(code)
        return response

    return answer_later(
        context.broker.coordinators.groups.runtime.gather,
        request.group_id,
        lambda shard, result: shard.commit(commit, result),
        respond,
    )


def _answered_topic(
    topic: OffsetCommitRequest.Topic, image: MetadataImage, version: int
) -> tuple[OffsetCommitResponse.Topic, str, int, bytes]:
    """The topic's part of the response, with its name, number of partitions and id."""
    if version >= 10:
        known = image.topic_by_id(topic.topic_id)
        answered = OffsetCommitResponse.Topic(topic_id=topic.topic_id, partitions=[])
    else:
        known = image.topics.get(topic.name)
        answered = OffsetCommitResponse.Topic(name=topic.name, partitions=[])
    if known is None:
        return answered, topic.name, 0, NO_ID
    return answered, known.name, len(known.partitions), known.topic_id


def _commit(
    request: OffsetCommitRequest, offsets: list[OffsetToCommit], version: int
) -> Commit:
    return Commit(
        request.group_id,
        offsets,
        request.member_id if version >= 1 else "",
        request.group_instance_id,
        request.generation_id_or_member_epoch if version >= 1 else -1,
        request.retention_time_ms if 2 <= version <= 4 else -1,
        version,
    )


def commit_code(code: ErrorCode) -> ErrorCode:
    """Translate errors of the log into codes that a committing client understands."""
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    return code


@handles(ApiKey.OFFSET_FETCH, versions=range(0, 11), access=by_item)
async def offset_fetch(
    request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    """Report committed offsets: of one group below version 8, of several from there on.

    DESCRIBE of the group and of each topic; a request for all topics is answered with those.
    """
    stable, access = request.require_stable, context.access
    if context.version >= 8:
        asked, refused = access.split(
            request.groups, lambda group: access.group(Operation.DESCRIBE, group.group_id)
        )
        groups = await asyncio.gather(*(_fetch_group(each, stable, context) for each in asked))
        made_group = OffsetFetchResponse.Group
        groups += [
            made_group(group_id=each.group_id, topics=[], error_code=GROUP_REFUSED)
            for each in refused
        ]
        return OffsetFetchResponse(groups=groups)
    if not access.group(Operation.DESCRIBE, request.group_id):
        return _refused_group(request, context.version)
    return await _fetch_one_group(request, context)


def _refused_group(request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    if version >= 2:
        return OffsetFetchResponse(topics=[], error_code=GROUP_REFUSED)
    topics = request.topics or ()
    made = OffsetFetchResponse.Topic
    return OffsetFetchResponse(topics=refused_topics(made, topics, GROUP_REFUSED))


def _without_offsets(made: type[Any], topics: Iterable[Any]) -> list[Any]:
    """Refusals of topics, with the values that the partitions have without an offset."""
    answers = refused_topics(made, topics, TOPIC_REFUSED)
    for answer in answers:
        for each in answer.partitions:
            each.committed_offset, each.metadata = -1, ""
    return answers


async def _fetch_one_group(
    request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    access = context.access
    topics, refused = request.topics, list[OffsetFetchRequest.Topic]()
    if topics is not None:
        topics, refused = access.split(
            topics, lambda topic: access.topic(Operation.DESCRIBE, topic.name)
        )
    wanted = _wanted(topics)
    response = OffsetFetchResponse(topics=[])
    try:
        found = await _fetch(
            request.group_id, wanted, request.require_stable, None, -1, context
        )
    except ProtocolError as error:
        # Versions 0 and 1 have error codes in partitions only.
        response.error_code = int(error.code)
        found = [
            FetchedOffset(topic, index, None, error.code) for topic, index in wanted or ()
        ] if context.version < 2 else []
    made = OffsetFetchResponse.Topic
    if topics is None:
        by_topic = [
            each for each in _by_topic(found).items() if access.topic(Operation.DESCRIBE, each[0])
        ]
    elif response.error_code and context.version >= 2:
        by_topic = []
    else:
        each = iter(found)
        by_topic = [
            (topic.name, _next(each, topic.partition_indexes)) for topic in topics
        ]
    response.topics = [
        made(name=name, partitions=[_partition(made.Partition, each) for each in partitions])
        for name, partitions in by_topic
    ] + _without_offsets(made, refused)
    return response


def _next(found: Iterator[FetchedOffset], indexes: list[int]) -> list[FetchedOffset]:
    """The result for one topic of a request, which may name the topic more than once."""
    return [next(found) for _ in indexes]


async def _fetch_group(
    group: OffsetFetchRequest.Group, stable: bool, context: RequestContext
) -> OffsetFetchResponse.Group:
    made = OffsetFetchResponse.Group
    answer = made(group_id=group.group_id, topics=[])
    image, access = context.broker.image, context.access
    by_id = context.version >= 10
    refused: list[OffsetFetchRequest.Group.Topic] = []
    wanted: list[tuple[str, int]] | None = None
    named: list[tuple[str, list[int]]] = []
    unknown = []
    if group.topics is not None:
        asked, refused = access.split(
            group.topics, lambda topic: access.topic_item(Operation.DESCRIBE, topic)
        )
        for topic in asked:
            known = image.topic_by_id(topic.topic_id) if by_id else None
            if by_id and known is None:
                unknown.append(topic)
                continue
            named.append((topic.name if known is None else known.name, topic.partition_indexes))
        wanted = [(name, index) for name, indexes in named for index in indexes]
    try:
        member = (group.member_id, group.member_epoch) if context.version >= 9 else (None, -1)
        found = await _fetch(group.group_id, wanted, stable, *member, context)
    except ProtocolError as error:
        answer.error_code = int(error.code)
        return answer
    each = iter(found)
    for name, partitions in (
        [each for each in _by_topic(found).items() if access.topic(Operation.DESCRIBE, each[0])]
        if wanted is None
        else [(name, _next(each, indexes)) for name, indexes in named]
    ):
        known = image.topics.get(name)
        if by_id and known is None:
            continue  # a deleted topic has no id to be reported with
        topic_answer = made.Topic(
            partitions=[_partition(made.Topic.Partition, each) for each in partitions]
        )
        if by_id and known is not None:
            topic_answer.topic_id = known.topic_id
        else:
            topic_answer.name = name
        answer.topics.append(topic_answer)
    for topic in unknown:
        nothing = [
            FetchedOffset("", index, None, ErrorCode.UNKNOWN_TOPIC_ID)
            for index in topic.partition_indexes
        ]
        answer.topics.append(
            made.Topic(
                topic_id=topic.topic_id,
                partitions=[_partition(made.Topic.Partition, each) for each in nothing],
            )
        )
    answer.topics += _without_offsets(made.Topic, refused)
    return answer


async def _fetch(
    group_id: str,
    wanted: list[tuple[str, int]] | None,
    stable: bool,
    member_id: str | None,
    member_epoch: int,
    context: RequestContext,
) -> list[FetchedOffset]:
    found: list[FetchedOffset] = await answer_of(
        context.broker.coordinators.groups,
        group_id,
        lambda shard, result: shard.fetch_offsets(
            group_id, wanted, stable, member_id, member_epoch
        ),
    )
    topics = context.broker.image.topics
    if wanted is None:
        return [each for each in found if _is_current(each, topics)]
    return [each if _is_current(each, topics) else each._replace(value=None) for each in found]


def _is_current(found: FetchedOffset, topics: Mapping[str, TopicImage]) -> bool:
    """Whether an offset belongs to the topic that currently has the name.

    A crash may happen between a topic's deletion and the tombstones of its offsets.
    """
    if found.value is None:
        return True
    known = topics.get(found.topic)
    return known is not None and found.value.topic_id in (NO_ID, known.topic_id)


def _wanted(topics: Iterable[OffsetFetchRequest.Topic] | None) -> list[tuple[str, int]] | None:
    if topics is None:
        return None
    return [(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _by_topic(found: Iterable[FetchedOffset]) -> dict[str, list[FetchedOffset]]:
    topics: dict[str, list[FetchedOffset]] = {}
    for each in found:
        topics.setdefault(each.topic, []).append(each)
    return topics


def _partition(made: type[Any], found: FetchedOffset) -> Any:
    value = found.value
    if value is None:
        return made(
            partition_index=found.partition,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=int(found.code),
        )
    return made(
        partition_index=found.partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=0,
    )


@handles(ApiKey.OFFSET_DELETE, versions=range(0, 1), access=by_item)
async def offset_delete(
    request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse:
    """Delete offsets of topics to which no member is subscribed (KIP-496).

    DELETE of the group, READ of each topic.
    """
    topics, access = context.broker.image.topics, context.access
    access.need_group(Operation.DELETE, request.group_id)
    asked, refused = access.split(
        request.topics, lambda topic: access.topic(Operation.READ, topic.name)
    )
    made = OffsetDeleteResponse.Topic
    response = OffsetDeleteResponse(topics=[])
    wanted: list[tuple[str, int]] = []
    answers = []
    for topic in asked:
        if not topic.partitions:
            continue
        known = topics.get(topic.name)
        answered = made(name=topic.name, partitions=[])
        response.topics.append(answered)
        for each in topic.partitions:
            answer = made.Partition(partition_index=each.partition_index)
            answered.partitions.append(answer)
            if known is None or not 0 <= each.partition_index < len(known.partitions):
                answer.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                wanted.append((topic.name, each.partition_index))
                answers.append(answer)
    codes = await answer_of(
        context.broker.coordinators.groups,
        request.group_id,
        lambda shard, result: shard.delete_offsets(request.group_id, wanted, result),
    )
    for answer, code in zip(answers, codes, strict=True):
        answer.error_code = int(code)
    response.topics += refused_topics(made, refused, TOPIC_REFUSED)
    return response


