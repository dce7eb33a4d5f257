"""The answers of several brokers are merged; an answer of the wrong broker is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.errors import ClientError
from ottla.tools.cli.why import by_text, of_broker, together


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
