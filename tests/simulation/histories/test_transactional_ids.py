"""Tests which answers about a transactional id the check accepts: epochs, fencing, and commits or
aborts."""

from __future__ import annotations

from typing import Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.simulation.histories.history import Call, History
from tests.simulation.histories.search import linearize
from tests.simulation.histories.transactional_ids import NEW, histories, step_of

Producer = tuple[int, int]
NOBODY = -1, -1


class Told(History):
    """A history written by hand."""

    def told(self, request: Any, response: Any) -> None:
        self.answer(self.asked(request), response)

    def asked(self, request: Any) -> Call:
        call = self.ask(request)
        assert call is not None
        return call

    def initialise(self, given: Producer, named: Producer = NOBODY) -> None:
        self.told(init(named), InitProducerIdResponse(
            producer_id=given[0], producer_epoch=given[1]
        ))

    def use(self, producer: Producer, code: int = 0) -> None:
        self.told(add(producer), added(code))

    def end(self, producer: Producer, commits: bool, given: Producer = NOBODY) -> None:
        self.told(end(producer, commits), EndTxnResponse(
            producer_id=given[0], producer_epoch=given[1]
        ))

    def holds(self, expires: bool = False) -> bool:
        (operations,) = histories(self.calls).values()
        return linearize(operations, NEW, step_of(expires)).order is not None


def init(named: Producer = NOBODY) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id="x", transaction_timeout_ms=1000, producer_id=named[0],
        producer_epoch=named[1],
    )


def add(producer: Producer) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id="x", producer_id=producer[0], producer_epoch=producer[1], group_id="g"
    )


def added(code: int) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)


def end(producer: Producer, commits: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id="x", producer_id=producer[0], producer_epoch=producer[1],
        committed=commits,
    )


def begun() -> Told:
    told = Told()
    told.initialise((7, 0))
    return told


def test_epochs_rise_and_skip_those_that_the_coordinator_took_for_itself() -> None:
    told = begun()
    told.initialise((7, 1))
    told.initialise((7, 4))
    assert told.holds()
    told.initialise((7, 4))
    assert not told.holds()


def test_two_processes_at_once_get_two_epochs() -> None:
    for second, possible in ((2, True), (1, False)):
        told = begun()
        calls = told.asked(init()), told.asked(init())
        told.answer(calls[1], InitProducerIdResponse(producer_id=7, producer_epoch=1))
        told.answer(calls[0], InitProducerIdResponse(producer_id=7, producer_epoch=second))
        assert told.holds() == possible


def test_who_names_its_epoch_gets_the_next_one_and_the_same_if_it_repeats_that() -> None:
    told = begun()
    told.initialise((7, 1), named=(7, 0))
    told.initialise((7, 1), named=(7, 0))
    told.initialise((7, 2), named=(7, 1))
    assert told.holds()
    told.initialise((7, 1), named=(7, 0))
    assert not told.holds()


def test_who_was_replaced_does_not_get_the_epoch_of_the_other_one() -> None:
    told = begun()
    told.initialise((7, 1))
    told.initialise((7, 1), named=(7, 0))
    assert not told.holds()


def test_nothing_succeeds_with_the_epoch_that_was_replaced() -> None:
    for request, response in (
        (add((7, 0)), added(0)),
        (end((7, 0), True), EndTxnResponse()),
        (end((7, 0), False), EndTxnResponse(producer_id=7, producer_epoch=1)),
    ):
        told = begun()
        told.use((7, 0))
        told.initialise((7, 2))
        assert told.holds()
        told.told(request, response)
        assert not told.holds()


def test_what_was_asked_before_the_fence_may_be_answered_after_it() -> None:
    told = begun()
    call = told.asked(add((7, 0)))
    told.initialise((7, 1))
    told.answer(call, added(0))
    assert told.holds()


def test_a_refusal_of_who_was_replaced_is_no_success() -> None:
    told = begun()
    told.initialise((7, 1))
    told.use((7, 0), ErrorCode.PRODUCER_FENCED)
    told.use((7, 1))
    assert told.holds()


def test_a_transaction_is_committed_or_aborted_once() -> None:
    told = begun()
    told.use((7, 0))
    told.end((7, 0), True)
    told.end((7, 0), True)
    assert told.holds()
    told.end((7, 0), False)
    assert not told.holds()


def test_so_it_is_with_an_epoch_for_each_transaction() -> None:
    told = begun()
    told.end((7, 0), True, (7, 1))
    told.end((7, 0), True, (7, 1))
    assert told.holds()
    told.end((7, 0), False, (7, 1))
    assert not told.holds()


def test_the_next_transaction_of_an_epoch_is_decided_anew() -> None:
    told = begun()
    told.use((7, 0))
    told.end((7, 0), True)
    told.use((7, 0))
    told.end((7, 0), False)
    assert told.holds()


def test_a_use_without_an_answer_may_have_begun_it() -> None:
    told = begun()
    told.use((7, 0))
    told.end((7, 0), True)
    told.asked(add((7, 0)))
    told.end((7, 0), False)
    assert told.holds()


def test_nothing_is_committed_that_was_not_begun() -> None:
    told = begun()
    told.end((7, 0), True)
    assert not told.holds()


def test_an_end_is_not_repeated_once_its_successor_has_begun() -> None:
    told = begun()
    told.end((7, 0), True, (7, 1))
    told.use((7, 1))
    assert told.holds()
    told.end((7, 0), True, (7, 1))
    assert not told.holds()


def test_an_id_is_forgotten_only_where_ids_expire_and_no_producer_id_comes_back() -> None:
    told = begun()
    told.initialise((9, 0))
    assert told.holds(expires=True)
    assert not told.holds()
    told.initialise((7, 1))
    assert not told.holds(expires=True)


def test_a_refused_partition_begins_nothing() -> None:
    made, result = AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
    for code, possible in ((0, True), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False)):
        told = begun()
        told.told(
            made(
                v3_and_below_transactional_id="x", v3_and_below_producer_id=7,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[made.Topic(name="t", partitions=[0])],
            ),
            result(results_by_topic_v3_and_below=[result.TopicResult(
                name="t", results_by_partition=[
                    result.TopicResult.ResultsByPartition(
                        partition_index=0, partition_error_code=code
                    )
                ],
            )]),
        )
        told.end((7, 0), True)
        assert told.holds() == possible
