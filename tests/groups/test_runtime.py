"""What the runtime promises whatever happens to the log."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.groups.errors import NotCoordinator
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.groups.routing import java_hash, partition_for
from ottla.wire.errors import ErrorCode, NotLeaderOrFollower, ProtocolError, StorageFailed
from tests.groups.bench import Workbench


def commit(bench: Workbench, offset: int, answers: list[Any], group: str = "g") -> None:
    request = Commit(group, [OffsetToCommit("t", 0, offset, -1, "")])
    bench.runtime.change(group, lambda s, r: s.commit(request, r), answers.append)


def fetch(bench: Workbench, answers: list[Any]) -> None:
    bench.runtime.change("g", lambda s, r: s.fetch_offsets("g", None, False), answers.append)


def test_nobody_learns_of_an_offset_that_is_not_committed() -> None:
    bench, answers = Workbench(), []
    bench.hold_commits = True
    commit(bench, 5, answers)
    fetch(bench, answers)
    assert answers == []
    bench.commit_all()
    assert answers[0] == [ErrorCode.NONE]
    assert answers[1][0].value.offset == 5


def test_commits_are_answered_in_their_order_each_with_its_own_append() -> None:
    bench, answers = Workbench(), []
    bench.hold_commits = True
    for offset in range(3):
        commit(bench, offset, answers)
    first, *others = bench.uncommitted
    first(None)
    assert len(answers) == 1
    for done in others:
        done(None)
    assert len(answers) == 3


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (NotLeaderOrFollower("moved"), ErrorCode.NOT_COORDINATOR),
        (StorageFailed("full"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_refused_append_changes_nothing(refusal: ProtocolError, code: ErrorCode) -> None:
    bench, answers = Workbench(), []
    bench.refusal = refusal
    commit(bench, 5, answers)
    assert answers[0].code is code
    bench.refusal = None
    fetch(bench, answers)
    assert answers[1] == []


def test_a_failure_of_ours_is_told_and_does_not_break_what_comes_after() -> None:
    bench, answers = Workbench(), []
    bench.refusal = ValueError("a name that no record can hold")
    with pytest.raises(ValueError, match="no record"):
        commit(bench, 5, answers)
    assert answers[0].code is ErrorCode.UNKNOWN_SERVER_ERROR
    bench.refusal = None
    commit(bench, 6, answers)
    assert answers[1] == [ErrorCode.NONE]


def test_a_lost_commit_sends_everybody_to_the_next_coordinator() -> None:
    bench, answers = Workbench(), []
    bench.hold_commits = True
    commit(bench, 5, answers)
    commit(bench, 6, answers)
    bench.uncommitted[0](NotLeaderOrFollower("another broker leads"))
    assert [answer.code for answer in answers] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR,
    ]
    with pytest.raises(NotCoordinator):
        bench.runtime.shard("g")


def test_groups_live_where_java_puts_them() -> None:
    hashes = {"": 0, "a": 97, "test-group": 627841412, "\u00e4\U0001f600": 1992007}
    assert {text: java_hash(text) for text in hashes} == hashes
    assert all(0 <= partition_for(f"group-{number}", 50) < 50 for number in range(1000))
    assert partition_for("polygenelubricants", 50) == 0  # its hash is the smallest integer
