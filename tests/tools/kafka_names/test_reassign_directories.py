"""kafka-reassign-partitions puts a replica into a log directory of the broker that it moves to."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.errors import ClientError
from ottla.tools.admin import partitions
from ottla.tools.kafka_names import reassign_partitions
from ottla.tools.kafka_names.reassignment_plan import Item
from ottla.wire.errors import ErrorCode

PLAN = {("t", 0): Item([1, 2], ["any", "/b"]), ("t", 1): Item([2], ["/a"])}


def answering(monkeypatch: pytest.MonkeyPatch, *codes: dict[tuple[str, int], int]) -> list[Any]:
    """Makes broker 2 answer with these codes, one dictionary for each request; the last one is
    repeated. Returns the list of requests."""
    asked: list[Any] = []
    left = list(codes)

    def move(cluster: object, broker: int, wanted: Any) -> dict[tuple[str, int], int]:
        asked.append((broker, dict(wanted)))
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(partitions, "move_directories", move)
    monkeypatch.setattr(reassign_partitions, "AGAIN_SECONDS", 0)
    return asked


def start(seconds: float = 60) -> None:
    cluster: Any = None
    reassign_partitions.move_directories(cluster, PLAN, seconds)


def test_a_replica_that_is_on_its_way_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    early = ErrorCode.REPLICA_NOT_AVAILABLE
    asked = answering(
        monkeypatch, {("t", 0): early, ("t", 1): early}, {("t", 0): early, ("t", 1): 0},
        {("t", 0): 0},
    )
    start()
    both = {("t", 0): "/b", ("t", 1): "/a"}
    assert asked == [(2, both), (2, both), (2, {("t", 0): "/b"})]
    assert capsys.readouterr().out.splitlines() == [
        "Successfully started log directory move for: t-1-2",
        "Successfully started log directory move for: t-0-2",
    ]


def test_it_is_not_waited_for_without_end_and_other_errors_end_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early = ErrorCode.REPLICA_NOT_AVAILABLE
    answering(monkeypatch, {("t", 0): early, ("t", 1): early})
    with pytest.raises(ClientError, match=r"moves could be started for t-0-2,t-1-2$"):
        start(seconds=0)
    asked = answering(monkeypatch, {("t", 0): ErrorCode.LOG_DIR_NOT_FOUND, ("t", 1): 0})
    with pytest.raises(ClientError, match=r"Failed to move t-0 .* broker 2"):
        start()
    assert len(asked) == 1
