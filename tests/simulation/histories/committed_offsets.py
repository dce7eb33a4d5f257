"""A group's offset of one partition, as a register that commits write and OffsetFetch reads.

    commit v        v is committed, and replaces the offsets that open transactions hold
    hold p v        the open transaction of the producer p holds v: readers do not see v yet
    end p commits   p's transaction ends; if `commits` is true, the offset that it holds is
                    committed, unless a later commit replaced it
    clear           nothing is committed or held: the offset, its group or its topic was deleted
    read v          an OffsetFetch has answered v
    expire          an OffsetFetch has answered that there is no offset, in a run in which offsets
                    expire
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ottla.wire.messages import (
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)
from tests.simulation.histories.history import Call
from tests.simulation.histories.search import NEVER, Operation

COMMIT, HOLD, END, CLEAR, READ, EXPIRE = "commit", "hold", "end", "clear", "read", "expire"
NONE = -1

Key = tuple[str, str, int]
"""Group, topic's name, partition's index."""
Producer = tuple[int, int]
"""Id and epoch."""
Offset = tuple[int, tuple[tuple[Producer, int], ...]]
"""The committed offset, and the offsets that open transactions hold, in the order of the log."""
NO_OFFSET: Offset = (NONE, ())


def step(state: Offset, what: tuple[Any, ...]) -> Offset | None:
    """The next state, or None if the operation is impossible in this state."""
    committed, held = state
    kind, *rest = what
    if kind == READ:
        return state if rest == [committed] else None
    if kind == COMMIT:
        return rest[0], ()
    if kind == CLEAR:
        return NO_OFFSET
    if kind == EXPIRE:
        return NONE, held
    if kind == HOLD:
        producer, offset = rest
        return committed, (*_without(held, producer), (producer, offset))
    producer, commits = rest
    for at, (holder, offset) in enumerate(held):
        if holder == producer:
            # Offsets held earlier are older in the log: they lose whenever their transaction ends.
            return (offset, held[at + 1 :]) if commits else (committed, _without(held, producer))
    return state


def _without(
    held: Iterable[tuple[Producer, int]], producer: Producer
) -> tuple[tuple[Producer, int], ...]:
    return tuple(each for each in held if each[0] != producer)


def histories(
    calls: list[Call], names: Mapping[bytes, str], stable_only: bool, expires: bool
) -> dict[Key, list[Operation]]:
    """For each offset, the operations on it. If `stable_only`, reads that do not ask for stable
    offsets are left out. README.md says when these may return an older offset. If `expires`,
    offsets may expire in this run."""
    found: dict[Key, list[Operation]] = defaultdict(list)
    holds: dict[Producer, set[Key]] = defaultdict(set)
    for call in calls:
        for key, operation in _of_one(call, stable_only, expires):
            if operation is not None:
                found[key].append(operation)
                if operation.what[0] == HOLD:
                    holds[operation.what[1]].add(key)
    for call in calls:
        concerned, operation = _of_many(call, calls, names)
        if operation is not None:
            producer = operation.what[1] if operation.what[0] == END else None
            for key in found if producer is None else holds[producer]:
                if concerned(key):
                    found[key].append(operation)
    return {key: _relevant(operations) for key, operations in found.items()}


def _of_one(
    call: Call, stable_only: bool, expires: bool
) -> Iterator[tuple[Key, Operation | None]]:
    """The operations of a request that names single offsets."""
    request, answer = call.request, call.answer
    if isinstance(request, OffsetFetchRequest):
        if answer is None or (stable_only and not request.require_stable):
            return
        for group in answer.groups:
            for topic in group.topics:
                for part in topic.partitions:
                    offset, code = part.committed_offset, group.error_code or part.error_code
                    what = (EXPIRE,) if expires and offset == NONE else (READ, offset)
                    if code == 0:
                        yield (
                            (group.group_id, topic.name, part.partition_index), call.did(0, *what)
                        )
        return
    if not isinstance(request, OffsetCommitRequest | TxnOffsetCommitRequest | OffsetDeleteRequest):
        return
    codes = {} if answer is None else {
        (topic.name, part.partition_index): part.error_code
        for topic in answer.topics for part in topic.partitions
    }
    whole = getattr(answer, "error_code", 0)
    for topic in request.topics:
        for part in topic.partitions:
            code = whole or codes.get((topic.name, part.partition_index))
            if isinstance(request, OffsetDeleteRequest):
                done = call.did(code, CLEAR)
            elif isinstance(request, OffsetCommitRequest):
                done = call.did(code, COMMIT, part.committed_offset)
            else:
                producer = request.producer_id, request.producer_epoch
                done = call.did(code, HOLD, producer, part.committed_offset)
            yield (request.group_id, topic.name, part.partition_index), done


def _of_many(
    call: Call, calls: list[Call], names: Mapping[bytes, str]
) -> tuple[Callable[[Key], bool], Operation | None]:
    """The operation of a request that concerns several offsets, and a function that says whether it
    concerns an offset."""
    request, answer = call.request, call.answer
    if isinstance(request, DeleteGroupsRequest):
        (group,) = request.groups_names
        code = None if answer is None else answer.results[0].error_code
        return lambda key: key[0] == group, call.did(code, CLEAR)
    if isinstance(request, DeleteTopicsRequest):
        (name,) = request.topic_names or [
            each.name or names.get(each.topic_id) for each in request.topics
        ]
        code = None if answer is None else answer.responses[0].error_code
        return lambda key: key[1] == name, call.did(code, CLEAR)
    if isinstance(request, EndTxnRequest):
        code = None if answer is None else answer.error_code
        producer = request.producer_id, request.producer_epoch
        done = call.did(code, END, producer, request.committed)
        if done is not None and done.is_lost:
            until = _replaced_at(call, calls)
            done = Operation(done.asked, NEVER, done.what, until)
        return lambda key: True, done
    return lambda key: False, None


def _replaced_at(end: Call, calls: list[Call]) -> float:
    """The time of the first answer to an InitProducerId that was sent after this EndTxn, for the
    same transactional id. By then the transaction had been committed or aborted."""
    return min((
        call.answered for call in calls
        if call.asked > end.asked and isinstance(call.request, InitProducerIdRequest)
        and call.request.transactional_id == end.request.transactional_id
        and call.answer is not None and call.answer.error_code == 0
    ), default=NEVER)


def _relevant(operations: list[Operation]) -> list[Operation]:
    """The operations without the unanswered writes of offsets that nobody has read. These writes
    explain no answer, and need not have been executed."""
    read = {each.what[1] for each in operations if each.what[0] == READ}
    return [
        each for each in operations
        if not (each.is_lost and each.what[0] in (COMMIT, HOLD) and each.what[-1] not in read)
    ]
