"""The answers to requests about a group that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.groups.classic.messages import Leaving, Sync
from ottla.groups.consumer.heartbeat import Heartbeat
from ottla.groups.errors import GroupIdNotFound, IllegalGeneration, UnknownMember
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.wire.errors import ErrorCode
from tests.groups.bench import Workbench


def committing(
    generation: int, version: int, transactional: bool = False
) -> Callable[..., Any]:
    offsets = [OffsetToCommit("t", 0, 5, -1, "")]
    member_id = "m" if generation >= 0 else ""
    request = Commit(
        "g", offsets, member_id, None, generation, version=version, transactional=transactional)
    return lambda s, r: s.commit(request, r)


@pytest.mark.parametrize(("operation", "refusal"), [
    (lambda s, r: s.sync(Sync("g", 1, "m"), lambda _: None, r),
     UnknownMember),
    (lambda s, r: s.heartbeat("g", 1, "m", None, 0), UnknownMember),
    (lambda s, r: s.leave("g", [Leaving("m")], r), UnknownMember),
    (lambda s, r: s.beat(Heartbeat("g", "m", 3), r), GroupIdNotFound),
    (lambda s, r: s.beat(Heartbeat("g", "m", -1), r), GroupIdNotFound),
    (committing(3, 8), IllegalGeneration),
    (committing(0, 9), GroupIdNotFound),
    (committing(0, 5, transactional=True), IllegalGeneration),
    (committing(0, 6, transactional=True), GroupIdNotFound),
], ids=[
    "sync", "heartbeat", "leave", "beat", "leave by a beat", "commit", "commit since 9",
    "commit in a transaction", "commit in a transaction since 6",
])
def test_a_member_of_no_group_is_refused_and_makes_none(
    operation: Callable[..., Any], refusal: type[Exception]
) -> None:
    bench = Workbench()
    assert isinstance(bench.ask(operation), refusal)
    assert not bench.shard().groups and not bench.records


def test_an_offset_of_nobody_makes_a_group_of_offsets() -> None:
    bench = Workbench()
    assert bench.ask(committing(-1, 9)) == [ErrorCode.NONE]
    assert list(bench.shard().groups) == ["g"]
