"""What a pass drops of transactions: aborted records at once, markers a pass later."""

from __future__ import annotations

from ottla.log.compaction.transactions import CleanedTransactions
from ottla.log.files.transaction_index import AbortedTransaction


def aborted(producer_id: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id, first, last, last + 1)


def test_the_batches_of_an_aborted_transaction_are_dropped_and_its_marker_stays() -> None:
    entry = aborted(1, 10, 20)
    pass_ = CleanedTransactions([entry])
    assert not pass_.batch(1, 5, 9), "the transaction before it"
    assert pass_.batch(1, 10, 11)
    assert not pass_.batch(2, 12, 13), "another producer's"
    assert pass_.batch(1, 18, 19)
    assert not pass_.marker(1, 20, False)
    assert pass_.kept == [entry]
    assert not pass_.batch(1, 21, 22), "its next transaction"


def test_a_batch_that_reaches_the_first_offset_is_of_the_transaction() -> None:
    pass_ = CleanedTransactions([aborted(1, 10, 20)])
    assert pass_.batch(1, 8, 10)


def test_a_batch_that_ends_before_it_is_not() -> None:
    pass_ = CleanedTransactions([aborted(1, 10, 20)])
    assert not pass_.batch(1, 8, 9)


def test_a_batch_of_which_the_marker_was_dropped_is_of_the_next_transaction() -> None:
    pass_ = CleanedTransactions([aborted(1, 10, 20)])
    assert pass_.batch(1, 10, 20)
    assert not pass_.batch(1, 21, 22)
    assert pass_.marker(1, 23, False), "nothing of that one is left"


def test_an_abort_marker_is_dropped_once_no_batch_is_left() -> None:
    pass_ = CleanedTransactions([aborted(1, 10, 20), aborted(2, 12, 21)])
    assert pass_.marker(1, 20, False) and pass_.kept == []
    assert pass_.marker(3, 20, False), "one that no index knows"
    assert pass_.batch(2, 20, 20)
    assert not pass_.marker(2, 21, False)


def test_a_commit_marker_is_dropped_once_no_batch_is_left() -> None:
    pass_ = CleanedTransactions([])
    assert pass_.marker(1, 3, True)
    assert not pass_.batch(1, 4, 5)
    assert not pass_.marker(1, 6, True)
    assert pass_.marker(1, 7, True), "the next transaction had no batch"
    assert pass_.kept == []


def test_a_commit_marker_does_not_end_what_was_aborted() -> None:
    pass_ = CleanedTransactions([aborted(1, 10, 20)])
    assert pass_.batch(1, 10, 11)
    assert pass_.marker(2, 12, True)
    assert pass_.batch(1, 13, 13)
    assert not pass_.marker(1, 20, False)


def test_a_pass_that_begins_late_skips_what_has_ended() -> None:
    first, second = aborted(1, 10, 20), aborted(1, 30, 40)
    pass_ = CleanedTransactions([second, first])
    assert not pass_.batch(1, 25, 29)
    assert pass_.batch(1, 30, 31)
    assert not pass_.marker(1, 40, False)
    assert pass_.kept == [second]
    pass_ = CleanedTransactions([second, first])
    assert pass_.batch(1, 20, 20), "it ends where the pass begins"
    assert not pass_.marker(1, 20, False)
    assert pass_.batch(1, 35, 35)


def test_two_transactions_of_a_producer_follow_each_other() -> None:
    first, second = aborted(1, 10, 12), aborted(1, 13, 15)
    pass_ = CleanedTransactions([first, second])
    assert pass_.batch(1, 10, 11) and not pass_.marker(1, 12, False)
    assert pass_.batch(1, 13, 14) and not pass_.marker(1, 15, False)
    assert pass_.kept == [first, second]
