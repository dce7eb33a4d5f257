"""The answers of several brokers are merged; an answer of the wrong broker is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.errors import ClientError
from ottla.tools.admin import topics
from ottla.tools.admin.topics import Partition, Topic
from ottla.tools.cli import why
from ottla.tools.cli.why import by_text, of_broker, together
from tests.tools.cli.ottla_command import Ottla


def answer(broker: int, leads: bool, **event: Any) -> dict[str, Any]:
    left = {"at_ms": 5, "partition": 0, "kind": "left_isr", "broker": 3, "partition_epoch": 9,
            "leader_epoch": 4, **event}
    return {
        "topic": "t", "broker": broker, "events": [left],
        "partitions": [{"partition": 0, "led_here": leads, "now": [broker]}],
    }


@pytest.mark.parametrize("order", [1, -1])
def test_a_partition_is_told_by_its_leader_and_an_event_once_by_who_knows_most(order: int) -> None:
    found = together([answer(2, False), answer(1, True, behind=7)][::order])
    (partition,), (event,) = found["partitions"], found["events"]
    assert partition["now"] == [1] and event["behind"] == 7


def test_the_answer_of_another_broker_is_refused() -> None:
    assert of_broker(answer(2, True), 2, 2)["broker"] == 2
    with pytest.raises(ClientError, match="broker 1 answered instead of broker 2"):
        of_broker(answer(1, True), 2, 1)


def test_partitions_with_the_same_sentence_share_a_line() -> None:
    found = [(0, "a"), (2, "a"), (0, "b"), (1, "a"), (5, "a"), (4, "c"), (5, "a")]
    assert list(by_text(found)) == [
        ("partitions 0-2,5", "a"), ("partition 0", "b"), ("partition 4", "c")]


def test_a_partition_whose_brokers_are_all_stopped_is_told_too(
    ottla: Ottla, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker has a replica of it, so the answers of all brokers lack it."""
    gone = Partition(1, -1, 3, [8, 9], [9, 8])
    for parts in ([Partition(0, 0, 0, [0], [0]), gone], [gone]):
        stopped = Topic("t", bytes(16), False, parts)
        monkeypatch.setattr(topics, "describe", lambda *_, found=stopped: [found])
        monkeypatch.setattr(why, "http_address", lambda *_: "http://there")
        monkeypatch.setattr(why, "asked", lambda *_: answer(0, True) | {
            "events": [], "partitions": [{"partition": 0, "led_here": True, "now": []}]})
        assert ottla.ok("topic why t") == (
            f"topic t: {len(parts)} partition{'s' * (len(parts) > 1)}\nnow:\n"
            "  partition 1: there is no leader, so nothing can be read or written: no broker with a"
            " replica is running (replicas: 8 and 9); the partition gets a leader when one of"
            " brokers 9 and 8 is back\nwhat happened:\n  nothing is known\n")
