"""The newest recorded generation of a classic group, and the assignments of its leader.

    sync g own got    a SyncGroup of generation g was answered with the assignment `got`, or had no
                      certain answer (None); `own` are the assignments in a leader's request
    in g              an OffsetCommit of generation g has succeeded, or JoinGroup has answered g

A successful Heartbeat proves nothing: as in Kafka, a coordinator that is loading answers every
Heartbeat without an error.

A generation is recorded in the log together with its assignments. A generation that JoinGroup has
answered may not be recorded yet. Then the next coordinator may not know it, and may begin a
generation with the same number and another leader.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ottla.wire.messages import (
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)
from tests.simulation.histories.history import Call
from tests.simulation.histories.search import Operation

SYNC, IN = "sync", "in"

Generation = tuple[int, frozenset[bytes]]
"""The number of a generation, and its assignments."""
NO_GENERATION: Generation = (0, frozenset())


def step(state: Generation, what: tuple[Any, ...]) -> Generation | None:
    """The next state, or None if the operation is impossible in this state."""
    newest, assigned = state
    kind, generation, *rest = what
    if generation < newest:
        return None
    if kind == IN:
        return state
    own, got = rest
    if generation > newest:
        assigned = own                      # a leader's first SyncGroup records its assignments
    if not assigned or (got is not None and got not in assigned):
        return None
    return generation, assigned


def histories(calls: list[Call]) -> dict[str, list[Operation]]:
    """The operations of each group."""
    found: dict[str, list[Operation]] = defaultdict(list)
    classic = {
        call.request.group_id for call in calls if isinstance(call.request, JoinGroupRequest)
    }
    for call in calls:
        done = _done(call)
        if done is not None and call.request.group_id in classic:
            found[call.request.group_id].append(done)
    return found


def _done(call: Call) -> Operation | None:
    """What a request and its answer say about the generation; None if they say nothing."""
    request, answer = call.request, call.answer
    if isinstance(request, SyncGroupRequest):
        own = frozenset(each.assignment for each in request.assignments)
        code = None if answer is None else answer.error_code
        got = answer.assignment if code == 0 else None
        done = call.did(code, SYNC, request.generation_id, own, got)
        return None if done is None or (done.is_lost and not own) else done
    if answer is None:
        return None
    if isinstance(request, OffsetCommitRequest):
        generation, code = request.generation_id_or_member_epoch, _code_of(answer)
    elif isinstance(request, JoinGroupRequest):
        generation, code = answer.generation_id, answer.error_code
    else:
        return None
    return call.did(0, IN, generation) if code == 0 and generation >= 0 else None


def _code_of(answer: Any) -> int:
    """The error code of an answer to an OffsetCommit of one partition."""
    return int(answer.topics[0].partitions[0].error_code)
