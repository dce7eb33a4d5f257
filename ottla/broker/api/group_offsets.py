"""OffsetCommit, OffsetFetch, OffsetDelete: the committed offsets of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ottla.broker.api.refusals import refused_topics
from ottla.broker.audit import Act
from ottla.broker.coordination.answers import answer_later, answer_of, begin_answer
from ottla.broker.dispatch import arrival, handles
from ottla.broker.network.promises import LateReply
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import GROUP_REFUSED, TOPIC_REFUSED, Access
from ottla.broker.security.decisions import by_item
from ottla.broker.threads.slices import Slices, in_parts
from ottla.groups.history.group_history import OFFSETS_SET
from ottla.groups.history.rings import event
from ottla.groups.offset_requests import Commit, FetchedOffset, OffsetToCommit, Setter
from ottla.groups.result import Result
from ottla.groups.shard import OFFSETS_AT_ONCE, Shard
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

NO_ID, NOT_COORDINATOR = bytes(16), ErrorCode.NOT_COORDINATOR


@handles(ApiKey.OFFSET_COMMIT, access=by_item)
def offset_commit(
    request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | LateReply | Coroutine[Any, Any, OffsetCommitResponse]:
    """Commit offsets; a partition that does not exist gets an error.

    Requires READ on the group and on each topic.
    """
    count = 0
    for topic in request.topics:
        count += len(topic.partitions)
    setter = _setter(request, context)
    if count > OFFSETS_AT_ONCE:
        return _commit_in_parts(request, context, setter)
    return _commit_part(request, context, setter, is_whole=True)


def _commit_part(
    request: OffsetCommitRequest, context: RequestContext, setter: Setter | None, is_whole: bool
) -> OffsetCommitResponse | LateReply:
    """Commit the offsets of a whole request, or of a part of it, in one turn of the event
    loop."""
    broker, version, topics = context.broker, context.version, request.topics
    image = broker.image
    refusals: list[OffsetCommitResponse.Topic] = []
    if broker.authorizer is not None:       # build lists only if needed: commits are frequent
        if not context.access.group(Operation.READ, request.group_id):
            return OffsetCommitResponse(topics=_refused_commit(topics, GROUP_REFUSED))
        topics, refused = _split(context.access, topics)
        refusals = _refused_commit(refused, TOPIC_REFUSED)
    response = OffsetCommitResponse(topics=[])
    offsets: list[OffsetToCommit] = []
    answers: list[OffsetCommitResponse.Topic.Partition] = []
    for topic in topics:
        answered, name, count, topic_id = _answered_topic(topic, image, version)
        if not topic.partitions and name in image.topics:
            continue                    # as in Kafka, a topic without partitions is left out
        response.topics.append(answered)
        for each in topic.partitions:
            index = each.partition_index
            answer = OffsetCommitResponse.Topic.Partition(partition_index=index)
            answered.partitions.append(answer)
            if not 0 <= index < count:
                unknown_id = version >= 10 and name not in image.topics
                answer.error_code = int(
                    ErrorCode.UNKNOWN_TOPIC_ID if unknown_id
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
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
    commit = _commit(request, offsets, context, setter)

    def respond(reply: list[ErrorCode] | ProtocolError) -> OffsetCommitResponse:
        if isinstance(reply, ProtocolError):
            reply = [commit_code(reply.code)] * len(answers)
        if setter is not None:
            setter.topics.update(
                each.topic for each, code in zip(offsets, reply, strict=True) if not code)
        for answer, code in zip(answers, reply, strict=True):
            if code:
                answer.error_code = int(code)
        if setter is not None and is_whole:
            _tell(setter, response, request, context)
        return response

    return answer_later(
        broker.coordinators.groups.runtime.gather,
        request.group_id,
        lambda shard, result: shard.commit(commit, result),
        respond,
    )


def _setter(request: OffsetCommitRequest, context: RequestContext) -> Setter | None:
    """The client if it commits without being a member, otherwise None."""
    if context.version >= 1 and (request.member_id or request.generation_id_or_member_epoch >= 0):
        return None
    client = context.client
    return Setter(client.principal, client.client_id, client.host)


def _tell(
    setter: Setter, response: OffsetCommitResponse, request: OffsetCommitRequest,
    context: RequestContext,
) -> None:
    """Add an event to the group's history: a client has set offsets without being a member. Also
    write it to the audit log, unless the client has set offsets of the same topics a short time ago
    (`note_set`)."""
    if not setter.topics:
        return
    broker = context.broker
    runtime = broker.coordinators.groups.runtime
    fields = {
        "user": setter.user, "client": setter.client, "host": setter.host,
        "back": setter.back or None, "topics": tuple(sorted(setter.topics)),
    }
    happened = event(broker.clock.now_ms(), runtime.tick_ms(), OFFSETS_SET, fields)
    if runtime.history.note_set(request.group_id, happened):
        Act(request, context).ended(response)


async def _commit_in_parts(
    request: OffsetCommitRequest, context: RequestContext, setter: Setter | None
) -> OffsetCommitResponse:
    """Commit offsets that are too many for one turn of the event loop. If the client closes its
    connection meanwhile, all offsets are still committed, and `_tell` is still called."""
    parts = asyncio.get_running_loop().create_task(_committed_parts(request, context, setter))
    return await asyncio.shield(parts)


async def _committed_parts(
    request: OffsetCommitRequest, context: RequestContext, setter: Setter | None
) -> OffsetCommitResponse:
    """Commit the offsets in parts, one part in each turn of the event loop."""
    waiting = []
    for topic in request.topics:
        for partitions in in_parts(topic.partitions, OFFSETS_AT_ONCE) if topic.partitions else [[]]:
            part = OffsetCommitRequest(
                group_id=request.group_id,
                generation_id_or_member_epoch=request.generation_id_or_member_epoch,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id,
                retention_time_ms=request.retention_time_ms,
                topics=[
                    OffsetCommitRequest.Topic(
                        name=topic.name, topic_id=topic.topic_id, partitions=list(partitions)
                    )
                ],
            )
            waiting.append(arrival(_commit_part(part, context, setter, is_whole=False)))
            await asyncio.sleep(0)
    response = OffsetCommitResponse(topics=[])
    for answer in await asyncio.gather(*waiting):
        for topic in answer.topics:
            last = response.topics[-1] if response.topics else None
            if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
                last.partitions += topic.partitions
            else:
                response.topics.append(topic)
    if setter is not None:
        _tell(setter, response, request, context)
    return response


def _split(
    access: Access, topics: list[OffsetCommitRequest.Topic]
) -> tuple[list[OffsetCommitRequest.Topic], list[OffsetCommitRequest.Topic]]:
    """Split the topics into those to which the client may commit, and those to which it may not."""
    return access.split(topics, lambda topic: access.topic_item(Operation.READ, topic))


def _refused_commit(
    topics: list[OffsetCommitRequest.Topic], code: int
) -> list[OffsetCommitResponse.Topic]:
    return refused_topics(OffsetCommitResponse.Topic, topics, code)


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
    request: OffsetCommitRequest, offsets: list[OffsetToCommit], context: RequestContext,
    setter: Setter | None,
) -> Commit:
    version = context.version
    member_id = request.member_id if version >= 1 else ""
    generation = request.generation_id_or_member_epoch if version >= 1 else -1
    return Commit(
        request.group_id,
        offsets,
        member_id,
        request.group_instance_id,
        generation,
        request.retention_time_ms if 2 <= version <= 4 else -1,
        version,
        setter=setter,
    )


def commit_code(code: ErrorCode) -> ErrorCode:
    """Translate errors of the log into codes that a committing client understands."""
    if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR):
        return ErrorCode.NOT_COORDINATOR
    return code


def _fetch_code(code: ErrorCode) -> ErrorCode:
    """Translate errors into codes for OffsetFetch. Older Java clients give up after
    COORDINATOR_NOT_AVAILABLE, so this code becomes NOT_COORDINATOR."""
    return NOT_COORDINATOR if code is ErrorCode.COORDINATOR_NOT_AVAILABLE else commit_code(code)


@handles(ApiKey.OFFSET_FETCH, access=by_item)
async def offset_fetch(
    request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    """Report committed offsets of one group or, from version 8 on, of several groups.

    Requires DESCRIBE on the group and on each topic. A request for all topics returns the topics
    that the client may describe.
    """
    stable, access = request.require_stable, context.access
    if context.version >= 8:
        asked, refused = await access.divide(
            request.groups, lambda group: access.group(Operation.DESCRIBE, group.group_id)
        )
        slices = Slices()
        begun = [await _begin_group(each, stable, context, slices) for each in asked]
        begun.reverse()             # pop() then frees each group as soon as it is finished
        groups = [await _finish_group(begun.pop(), context, slices) for _ in asked]
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
    """Return an entry with an authorization error for each topic. In these entries, partitions have
    no committed offset (-1)."""
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
        topics, refused = await access.divide(
            topics, lambda topic: access.topic(Operation.DESCRIBE, topic.name)
        )
    wanted, slices = _wanted(topics), Slices()
    response = OffsetFetchResponse(topics=[])
    try:
        reads = await _begin_reads(
            request.group_id, wanted, request.require_stable, None, -1, context, slices
        )
        offsets = await _finish_reads(reads, wanted is None, context, slices)
    except ProtocolError as error:
        # Versions 0 and 1 have error codes only in partitions.
        code = _fetch_code(error.code)
        response.error_code = int(code)
        offsets = [
            FetchedOffset(topic, index, None, code) for topic, index in wanted or ()
        ] if context.version < 2 else []
    made = OffsetFetchResponse.Topic
    if topics is None:
        seen = access.quiet
        by_topic = [
            each for each in _by_topic(offsets).items() if seen.topic(Operation.DESCRIBE, each[0])
        ]
    elif response.error_code and context.version >= 2:
        by_topic = []
    else:
        each = iter(offsets)
        by_topic = [
            (topic.name, _next(each, topic.partition_indexes)) for topic in topics
        ]
    response.topics = [
        made(
            name=name,
            partitions=[_partition(made.Partition, each) async for each in slices.each(partitions)],
        )
        for name, partitions in by_topic
    ] + _without_offsets(made, refused)
    return response


def _next(offsets: Iterator[FetchedOffset], indexes: list[int]) -> list[FetchedOffset]:
    """Take the next results, one for each index. Results are matched to topics by their order,
    since a request may name a topic more than once."""
    return [next(offsets) for _ in indexes]


@dataclass(slots=True)
class _Asked:
    """One group of a request: the requested partitions, and the reads in progress."""

    group_id: str
    wanted: list[tuple[str, int]] | None = None
    named: list[tuple[str, list[int]]] = field(default_factory=list)
    unknown: list[OffsetFetchRequest.Group.Topic] = field(default_factory=list)
    refused: list[OffsetFetchRequest.Group.Topic] = field(default_factory=list)
    reads: list[asyncio.Future[list[FetchedOffset]]] = field(default_factory=list)
    error: ProtocolError | None = None


async def _begin_group(
    group: OffsetFetchRequest.Group, stable: bool, context: RequestContext, slices: Slices
) -> _Asked:
    """Begin the reads of one group. A read may have to wait for pending commits. The caller begins
    the reads of all groups before it awaits any read, so that the reads wait at the same time."""
    image, access, answer = context.broker.image, context.access, _Asked(group.group_id)
    by_id = context.version >= 10
    if group.topics is not None:
        asked, answer.refused = await access.divide(
            group.topics, lambda topic: access.topic_item(Operation.DESCRIBE, topic)
        )
        for topic in asked:
            known = image.topic_by_id(topic.topic_id) if by_id else None
            if by_id and known is None:
                answer.unknown.append(topic)
                continue
            name = topic.name if known is None else known.name
            answer.named.append((name, topic.partition_indexes))
        answer.wanted = [(name, index) for name, indexes in answer.named for index in indexes]
    try:
        member = (group.member_id, group.member_epoch) if context.version >= 9 else (None, -1)
        answer.reads = await _begin_reads(
            group.group_id, answer.wanted, stable, *member, context, slices
        )
    except ProtocolError as error:
        answer.error = error.kept()
    return answer


async def _finish_group(
    asked: _Asked, context: RequestContext, slices: Slices
) -> OffsetFetchResponse.Group:
    made = OffsetFetchResponse.Group
    answer = made(group_id=asked.group_id, topics=[])
    image, access = context.broker.image, context.access
    by_id = context.version >= 10
    try:
        if asked.error is not None:
            raise asked.error
        offsets = await _finish_reads(asked.reads, asked.wanted is None, context, slices)
    except ProtocolError as error:
        answer.error_code = int(_fetch_code(error.code))
        return answer
    each, seen = iter(offsets), access.quiet
    for name, partitions in (
        [each for each in _by_topic(offsets).items() if seen.topic(Operation.DESCRIBE, each[0])]
        if asked.wanted is None
        else [(name, _next(each, indexes)) for name, indexes in asked.named]
    ):
        known = image.topics.get(name)
        if by_id and known is None:
            continue  # the topic was deleted, so its id is not known
        topic_answer = made.Topic(
            partitions=[
                _partition(made.Topic.Partition, each) async for each in slices.each(partitions)
            ]
        )
        if by_id and known is not None:
            topic_answer.topic_id = known.topic_id
        else:
            topic_answer.name = name
        answer.topics.append(topic_answer)
    for topic in asked.unknown:
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
    answer.topics += _without_offsets(made.Topic, asked.refused)
    return answer


async def _begin_reads(
    group_id: str,
    wanted: Sequence[tuple[str, int]] | None,
    stable: bool,
    member_id: str | None,
    member_epoch: int,
    context: RequestContext,
    slices: Slices,
) -> list[asyncio.Future[list[FetchedOffset]]]:
    """Begin to read the `wanted` offsets of a group, or all offsets if `wanted` is None. Raises
    ProtocolError."""
    groups = context.broker.coordinators.groups
    if wanted is None:
        wanted = groups.runtime.shard(group_id).fetchable(group_id, stable)

    def read(
        part: Sequence[tuple[str, int]], shard: Shard, result: Result
    ) -> list[FetchedOffset]:
        if stable:
            # Confirm that this broker still coordinates the group. A former coordinator may lack a
            # transaction's commit. It would return an older offset, from which a transactional
            # consumer would process records twice.
            shard.confirm(group_id, result)
        return shard.fetch_offsets(group_id, part, stable, member_id, member_epoch)

    # A request without partitions still checks the member.
    parts = in_parts(wanted, OFFSETS_AT_ONCE) if wanted else [wanted]
    return [
        begin_answer(groups, group_id, partial(read, part)) async for part in slices.each(parts)
    ]


async def _finish_reads(
    reads: list[asyncio.Future[list[FetchedOffset]]],
    all_of_group: bool,
    context: RequestContext,
    slices: Slices,
) -> list[FetchedOffset]:
    """Wait for the reads; returns the offsets. Raises ProtocolError."""
    offsets: list[FetchedOffset] = []
    topics = context.broker.image.topics
    for part in await asyncio.gather(*reads) if len(reads) > 1 else [await reads[0]]:
        if slices.over:
            await slices.pause()
        for each in part:
            if _is_current(each, topics):
                # No value and no error code: no offset is committed. In a request for all offsets,
                # such a partition had only a pending commit when the read began, and this commit
                # has failed since. Leave the partition out.
                if each.value is not None or each.code or not all_of_group:
                    offsets.append(each)
            elif not all_of_group:
                offsets.append(each._replace(value=None))
    return offsets


def _is_current(offset: FetchedOffset, topics: Mapping[str, TopicImage]) -> bool:
    """Whether an offset belongs to an existing topic, not to a deleted one of the same name.

    Offsets of a deleted topic remain if the broker crashes before it has written their tombstones.
    """
    if offset.value is None:
        return True
    known = topics.get(offset.topic)
    return known is not None and offset.value.topic_id in (NO_ID, known.topic_id)


def _wanted(topics: Iterable[OffsetFetchRequest.Topic] | None) -> list[tuple[str, int]] | None:
    if topics is None:
        return None
    return [(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _by_topic(offsets: Iterable[FetchedOffset]) -> dict[str, list[FetchedOffset]]:
    topics: dict[str, list[FetchedOffset]] = {}
    for each in offsets:
        topics.setdefault(each.topic, []).append(each)
    return topics


def _partition(made: type[Any], offset: FetchedOffset) -> Any:
    value = offset.value
    if value is None:
        return made(
            partition_index=offset.partition,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=int(offset.code),
        )
    return made(
        partition_index=offset.partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=0,
    )


def _delete_part(
    group_id: str, part: Sequence[tuple[str, int]], shard: Shard, result: Result
) -> list[ErrorCode]:
    return shard.delete_offsets(group_id, part, result)


@handles(ApiKey.OFFSET_DELETE, access=by_item)
async def offset_delete(
    request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse:
    """Delete offsets of topics to which no member is subscribed (KIP-496).

    Requires DELETE on the group and READ on each topic.
    """
    topics, access, slices = context.broker.image.topics, context.access, Slices()
    access.need_group(Operation.DELETE, request.group_id)
    asked, refused = await access.divide(
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
        async for each in slices.each(topic.partitions):
            answer = made.Partition(partition_index=each.partition_index)
            answered.partitions.append(answer)
            if known is None or not 0 <= each.partition_index < len(known.partitions):
                answer.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                wanted.append((topic.name, each.partition_index))
                answers.append(answer)
    codes = []
    for part in in_parts(wanted, OFFSETS_AT_ONCE) if wanted else [wanted]:
        codes += await answer_of(
            context.broker.coordinators.groups,
            request.group_id,
            partial(_delete_part, request.group_id, part),
        )
    for answer, code in zip(answers, codes, strict=True):
        answer.error_code = int(code)
    response.topics += refused_topics(made, refused, TOPIC_REFUSED)
    return response


