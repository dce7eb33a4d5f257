"""Tests which answers about a group's committed offset the check accepts, and which it refuses."""

from __future__ import annotations

from typing import Any

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from tests.simulation.histories.committed_offsets import NO_OFFSET, NONE, histories, step
from tests.simulation.histories.history import Call, History
from tests.simulation.histories.search import linearize

P, Q = (7, 0), (8, 0)
KEY = "g", "t", 0


class Told(History):
    """A history written by hand. Each request is answered before the next one is sent, unless the
    test says otherwise."""

    def told(self, request: Any, response: Any) -> None:
        self.answer(self.asked(request), response)

    def asked(self, request: Any) -> Call:
        call = self.ask(request)
        assert call is not None
        return call

    def commit(self, offset: int) -> None:
        self.told(commit(offset), answer_to_commit(0))

    def read(self, offset: int, stable: bool = True) -> None:
        self.told(fetch(stable), answer_to_fetch(offset))

    def hold(self, producer: tuple[int, int], offset: int) -> None:
        made = TxnOffsetCommitResponse.Topic
        self.told(hold(producer, offset), TxnOffsetCommitResponse(topics=[
            made(name="t", partitions=[made.Partition(partition_index=0)])
        ]))

    def end(self, producer: tuple[int, int], commits: bool) -> None:
        self.told(end(producer, commits), EndTxnResponse())

    def delete(self) -> None:
        made = OffsetDeleteRequest.Topic, OffsetDeleteResponse.Topic
        self.told(
            OffsetDeleteRequest(group_id="g", topics=[
                made[0](name="t", partitions=[made[0].Partition(partition_index=0)])
            ]),
            OffsetDeleteResponse(topics=[
                made[1](name="t", partitions=[made[1].Partition(partition_index=0)])
            ]),
        )

    def initialise(self, epoch: int) -> None:
        self.told(
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000),
            InitProducerIdResponse(producer_id=7, producer_epoch=epoch),
        )

    def holds(self, stable_only: bool = False, expires: bool = False) -> bool:
        """Whether some order of the requests explains the answers about the offset."""
        found = histories(self.calls, {b"i" * 16: "t"}, stable_only, expires)
        return linearize(found[KEY], NO_OFFSET, step).order is not None


def commit(offset: int) -> OffsetCommitRequest:
    made = OffsetCommitRequest.Topic
    return OffsetCommitRequest(group_id="g", topics=[made(name="t", partitions=[
        made.Partition(partition_index=0, committed_offset=offset)
    ])])


def answer_to_commit(code: int) -> OffsetCommitResponse:
    made = OffsetCommitResponse.Topic
    return OffsetCommitResponse(topics=[made(name="t", partitions=[
        made.Partition(partition_index=0, error_code=code)
    ])])


def fetch(stable: bool = True) -> OffsetFetchRequest:
    made = OffsetFetchRequest.Group
    return OffsetFetchRequest(groups=[made(group_id="g", topics=[
        made.Topic(name="t", partition_indexes=[0])
    ])], require_stable=stable)


def answer_to_fetch(offset: int, code: int = 0) -> OffsetFetchResponse:
    made = OffsetFetchResponse.Group
    return OffsetFetchResponse(groups=[made(group_id="g", topics=[
        made.Topic(name="t", partitions=[made.Topic.Partition(
            partition_index=0, committed_offset=offset, error_code=code, metadata="",
        )])
    ])])


def hold(producer: tuple[int, int], offset: int) -> TxnOffsetCommitRequest:
    made = TxnOffsetCommitRequest.Topic
    return TxnOffsetCommitRequest(
        transactional_id="x", group_id="g", producer_id=producer[0], producer_epoch=producer[1],
        topics=[made(name="t", partitions=[
            made.Partition(partition_index=0, committed_offset=offset)
        ])],
    )


def end(producer: tuple[int, int], commits: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id="x", producer_id=producer[0], producer_epoch=producer[1],
        committed=commits,
    )


def test_what_was_committed_is_read_until_something_else_is() -> None:
    told = Told()
    told.read(NONE)
    told.commit(5)
    told.read(5)
    told.commit(3)
    told.read(3)
    assert told.holds()


def test_a_lost_commit_is_found() -> None:
    told = Told()
    told.commit(5)
    told.commit(6)
    told.read(5)
    assert not told.holds()
    told = Told()
    told.commit(5)
    told.read(NONE)
    assert not told.holds()


def test_a_stale_read_is_found_also_of_a_commit_whose_answer_was_lost() -> None:
    told = Told()
    told.commit(5)
    told.asked(commit(6))
    told.read(6)
    assert told.holds()
    told.read(5)
    assert not told.holds()


def test_a_commit_that_was_refused_is_never_read_one_that_failed_may_be() -> None:
    refused, failed = ErrorCode.ILLEGAL_GENERATION, ErrorCode.NOT_COORDINATOR
    for code, possible in ((refused, False), (failed, True)):
        told = Told()
        told.told(commit(5), answer_to_commit(code))
        told.read(5)
        assert told.holds() == possible, code


def test_two_commits_at_once_are_in_one_order_for_every_reader() -> None:
    for last, possible in ((6, True), (5, False)):
        told = Told()
        calls = told.asked(commit(5)), told.asked(commit(6))
        told.read(5)
        told.read(6)
        for call in calls:
            told.answer(call, answer_to_commit(0))
        told.read(last)
        assert told.holds() == possible


def test_the_offset_of_a_transaction_is_read_once_that_is_committed_and_not_if_it_is_not() -> None:
    for commits in (True, False):
        told = Told()
        told.commit(1)
        told.hold(P, 5)
        told.read(1)
        told.end(P, commits)
        told.read(5 if commits else 1)
        assert told.holds()
        told.read(1 if commits else 5)
        assert not told.holds()


def test_an_offset_that_is_read_before_its_transaction_is_asked_to_end_is_found() -> None:
    told = Told()
    told.hold(P, 5)
    told.read(5)
    told.end(P, True)
    assert not told.holds()


def test_of_two_commits_the_later_one_wins_whenever_the_transaction_of_the_first_ends() -> None:
    told = Told()
    told.hold(P, 5)
    told.commit(6)
    told.end(P, True)
    told.read(6)
    assert told.holds()
    told.read(5)
    assert not told.holds()


def test_so_it_is_with_the_offsets_of_two_transactions() -> None:
    for last, possible in ((6, True), (5, False)):
        told = Told()
        told.hold(P, 5)
        told.hold(Q, 6)
        told.end(Q, True)
        told.read(6)
        told.end(P, True)
        told.read(last)
        assert told.holds() == possible


def test_a_deletion_takes_along_what_open_transactions_hold() -> None:
    for last, possible in ((NONE, True), (5, False)):
        told = Told()
        told.hold(P, 5)
        told.delete()
        told.end(P, True)
        told.read(last)
        assert told.holds() == possible


def test_so_does_that_of_the_group_and_of_the_topic() -> None:
    groups = DeleteGroupsRequest(groups_names=["g"])
    topics = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(topic_id=b"i" * 16)])
    done = DeleteGroupsResponse.Result(group_id="g")
    gone = DeleteTopicsResponse.Response(name="t")
    for request, response in (
        (groups, DeleteGroupsResponse(results=[done])),
        (topics, DeleteTopicsResponse(responses=[gone])),
    ):
        told = Told()
        told.commit(4)
        told.hold(P, 5)
        told.told(request, response)
        told.read(NONE)
        assert told.holds()
        told.end(P, True)
        told.read(5)
        assert not told.holds()


def test_a_split_decision_is_found_an_end_without_an_answer_is_one_or_the_other() -> None:
    told = Told()
    told.commit(1)
    told.hold(P, 5)
    told.asked(end(P, True))
    told.read(5)
    assert told.holds()
    told.read(1)
    assert not told.holds()


def test_an_end_without_an_answer_is_decided_once_another_one_has_the_transactional_id() -> None:
    for seen, possible in ((1, False), (5, True)):
        told = Told()
        told.commit(1)
        told.hold(P, 5)
        told.asked(end(P, True))
        told.initialise(1)
        told.read(seen)
        told.read(5)
        assert told.holds() == possible


def test_the_next_transaction_of_an_epoch_does_not_commit_what_the_one_before_has_aborted() -> None:
    told = Told()
    told.hold(P, 5)
    told.end(P, False)
    told.end(P, True)
    told.read(5)
    assert not told.holds()


def test_an_answer_that_an_offset_is_not_stable_tells_nothing() -> None:
    told = Told()
    told.hold(P, 5)
    told.told(fetch(), answer_to_fetch(NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT))
    told.commit(6)
    told.told(fetch(), answer_to_fetch(NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT))
    assert told.holds()


def test_with_stable_only_other_reads_may_return_an_older_offset() -> None:
    for stable in (True, False):
        told = Told()
        told.commit(5)
        told.commit(6)
        told.read(5, stable)
        told.commit(7)
        assert told.holds(stable_only=True) == (not stable)
        assert not told.holds()


def test_where_offsets_expire_none_may_be_left_but_an_old_one_does_not_come_back() -> None:
    told = Told()
    told.commit(5)
    told.read(NONE)
    assert told.holds(expires=True)
    assert not told.holds()
    told.read(5)
    assert not told.holds(expires=True)
