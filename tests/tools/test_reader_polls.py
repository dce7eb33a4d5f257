"""How long a reader waits in one poll of kafka-python."""

from __future__ import annotations

from typing import Any

import pytest

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
