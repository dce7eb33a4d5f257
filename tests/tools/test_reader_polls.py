"""How long a reader waits in one poll of kafka-python, and when a member of a group may stop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from ottla.client.errors import ClientError
from ottla.tools.stream.reader import GROUP_POLL_MS, POLL_MS, Reading, poll


class Polled:
    """A consumer without records."""

    def __init__(self) -> None:
        self.waits: list[int] = []

    def poll(self, wait: int) -> dict[Any, Any]:
        self.waits.append(wait)
        return {}


@pytest.mark.parametrize(
    ("group", "idle_ms", "wait"),
    [("", None, POLL_MS), ("billing", None, GROUP_POLL_MS), ("", 9000, POLL_MS),
     ("billing", 9000, GROUP_POLL_MS), ("billing", 300, 300), ("", 0, 1)],
)  # fmt: skip
def test_a_member_of_a_group_may_join_within_one_poll_unless_it_is_to_end_sooner(
    group: str, idle_ms: int | None, wait: int
) -> None:
    consumer = Polled()
    wanted = Reading(group=group, idle_ms=idle_ms, stop=lambda: bool(consumer.waits))
    assert list(poll(consumer, wanted, {})) == []
    assert consumer.waits == [wait]


class Member:
    """A member of a group in which each poll takes five seconds, and what it gets from each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *polls: str) -> None:
        self.left, self.now, self.read = list(polls), 0.0, 0
        self.joined = False
        monkeypatch.setattr("ottla.tools.stream.reader.time.monotonic", lambda: self.now)

    def poll(self, wait: int) -> dict[Any, Any]:
        self.now += 5
        got = self.left.pop(0) if self.left else ""
        self.joined |= bool(got)
        if got != "record":
            return {}
        self.read += 1
        return {PLACE: [SimpleNamespace(topic="t", partition=0, offset=self.read - 1)]}

    def assignment(self) -> list[TopicPartition]:
        return [PLACE] if self.joined else []

    def position(self, place: TopicPartition) -> int:
        return self.read


PLACE = TopicPartition("t", 0)
WHOLE = {("t", 0): 2}


@pytest.mark.parametrize("polls", [
    ["record", "record"],
    ["", "", "joined", "record", "record"],             # its coordinator is being elected
    ["record", "", "", "record"],                       # the leader is
])
def test_a_member_of_a_group_reads_to_the_end_across_an_election(
    monkeypatch: pytest.MonkeyPatch, polls: list[str]
) -> None:
    consumer = Member(monkeypatch, *polls)
    wanted = Reading(group="g", idle_ms=5000, group_ends=WHOLE)
    assert len(list(poll(consumer, wanted, {}))) == 2
    assert consumer.now == 5 * len(polls) + 5


@pytest.mark.parametrize(("polls", "said"), [
    ([], "g: its coordinator did not let a member join"),
    (["record"], "g: t-0 has records before 2 that did not come"),
])
def test_a_member_of_a_group_that_cannot_read_to_the_end_says_so(
    monkeypatch: pytest.MonkeyPatch, polls: list[str], said: str
) -> None:
    consumer = Member(monkeypatch, *polls)
    with pytest.raises(ClientError, match=said):
        list(poll(consumer, Reading(group="g", idle_ms=5000, group_ends=WHOLE), {}))
    assert consumer.now <= 40


def test_a_member_of_a_group_that_gets_no_partition_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Member(monkeypatch, "joined")
    monkeypatch.setattr(consumer, "assignment", list)
    assert list(poll(consumer, Reading(group="g", idle_ms=5000, group_ends=WHOLE), {})) == []


def test_a_slow_taker_of_records_does_not_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Member(monkeypatch, "record", "record", "record")
    taken = 0
    for _ in poll(consumer, Reading(idle_ms=7000), {}):
        consumer.now += 60
        taken += 1
    assert taken == 3


def test_a_partition_that_falls_silent_before_its_end_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Member(monkeypatch, "record", *["", ""] * 10, "record")
    assert len(list(poll(consumer, Reading(ends=WHOLE), dict(WHOLE)))) == 2
    consumer = Member(monkeypatch, "record")
    with pytest.raises(ClientError, match="t-0 has records before 2 that did not come"):
        list(poll(consumer, Reading(ends=WHOLE), dict(WHOLE)))
