"""A transactional id: its owner, and how each of its transactions was decided.

    init named given      InitProducerId has returned the producer id and epoch `given`; `named` are
                          the id and epoch in the request
    use p                 the producer p adds something to its transaction; the first use opens it
    end p commits next    EndTxn has committed or aborted p's transaction; `next` are the id and
                          epoch in the answer (KIP-890), None in the first protocol, in which many
                          transactions have the same epoch

A coordinator that aborts a transaction increases the epoch, and no answer shows this. So the real
epoch may be higher than the epoch of the state, but never lower.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)
from tests.simulation.histories.committed_offsets import END, Producer
from tests.simulation.histories.history import Call
from tests.simulation.histories.search import Operation

INIT, USE = "init", "use"
OF_ONE_PRODUCER = (
    AddOffsetsToTxnRequest, EndTxnRequest, InitProducerIdRequest, TxnOffsetCommitRequest,
)


class Transactions(NamedTuple):
    """The state of a transactional id."""

    owner: Producer = (-1, -1)
    before: int = -1
    """The epoch in the request with which the owner got its epoch: InitProducerId, or EndTxn
    (KIP-890). A repeated InitProducerId with this epoch gets the same answer."""
    is_open: bool = False
    decided: tuple[Producer, bool] | None = None
    """The producer whose transaction ended last, and whether it was committed. None after the next
    transaction was opened, or after InitProducerId was answered."""
    former: frozenset[int] = frozenset()
    """Producer ids that the transactional id had before."""


NEW = Transactions()


def step_of(expires: bool) -> Callable[[Transactions, tuple[Any, ...]], Transactions | None]:
    """The step function of a transactional id. `expires`: the coordinator may forget the id after a
    while."""

    def step(state: Transactions, what: tuple[Any, ...]) -> Transactions | None:
        kind, *rest = what
        if kind == INIT:
            return _initialised(state, expires, *rest)
        if kind == USE:
            (producer,) = rest
            fits = producer == state.owner
            return state._replace(is_open=True, decided=None) if fits else None
        return _ended(state, *rest)

    return step


def _initialised(
    state: Transactions, expires: bool, named: Producer, given: Producer
) -> Transactions | None:
    (owner_id, owner_epoch), (producer_id, epoch) = state.owner, given
    if producer_id != owner_id:
        if producer_id in state.former or not (expires or state is NEW):
            return None
        former = state.former | {owner_id}
        return Transactions(given, former=former)
    if named[0] < 0:                                # a new process gets a new epoch
        return Transactions(given, former=state.former) if epoch > owner_epoch else None
    repeats = named[1] == state.before and epoch == owner_epoch
    fits = named == state.owner or (repeats and named[0] == owner_id)
    return Transactions(given, named[1], former=state.former) if (
        fits and epoch == named[1] + 1
    ) else None


def _ended(
    state: Transactions, producer: Producer, commits: bool, given: Producer | None
) -> Transactions | None:
    if given is None:
        repeats = state.decided == (producer, commits)
        if producer != state.owner or not (state.is_open or repeats):
            return None
        return state._replace(is_open=False, decided=(producer, commits))
    if producer != state.owner:
        return state if state.decided == (producer, commits) and given == state.owner else None
    if given != (producer[0], producer[1] + 1):
        return None
    return Transactions(given, producer[1], False, (producer, commits), state.former)


def histories(calls: list[Call]) -> dict[str, list[Operation]]:
    """For each transactional id, the operations on it. Unanswered requests are left out, because
    they need not have been executed, and could only make later answers impossible. Exceptions are
    unanswered requests that may have opened a transaction."""
    found: dict[str, list[Operation]] = defaultdict(list)
    for call in calls:
        name, done = _done(call)
        if name is not None and done is not None and (done.what[0] == USE or not done.is_lost):
            found[name].append(done)
    return found


def _done(call: Call) -> tuple[str | None, Operation | None]:
    """The transactional id of a request, and its operation."""
    request, answer = call.request, call.answer
    if isinstance(request, AddPartitionsToTxnRequest):
        codes = None if answer is None else {
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below for part in topic.results_by_partition
        }
        producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        return request.v3_and_below_transactional_id, call.did(_worst(codes), USE, producer)
    if not isinstance(request, OF_ONE_PRODUCER):
        return None, None
    name, producer = request.transactional_id, (request.producer_id, request.producer_epoch)
    if isinstance(request, TxnOffsetCommitRequest):
        codes = None if answer is None else {
            part.error_code for topic in answer.topics for part in topic.partitions
        }
        return name, call.did(_worst(codes), USE, producer)
    code = None if answer is None else answer.error_code
    if isinstance(request, AddOffsetsToTxnRequest):
        return name, call.did(code, USE, producer)
    given = (answer.producer_id, answer.producer_epoch) if code == 0 else None
    if isinstance(request, InitProducerIdRequest):
        return name, call.did(code, INIT, producer, given)
    given = None if given == (-1, -1) else given
    return name, call.did(code, END, producer, request.committed, given)


def _worst(codes: set[int] | None) -> int | None:
    """One error code for a request about several partitions, which adds all of them or none. None
    if there was no answer."""
    return None if codes is None else next((each for each in codes if each), 0)
