"""Finds out whether a reader gets no records because its brokers refuse to serve them.

If a Fetch is refused with a retriable error, librdkafka repeats the Fetch and does not report the
error. (Examples: a disk has failed; the leader of a partition is being elected.) So a reader that
gets no records sends a Fetch to the brokers itself.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError
from ottla.tools.admin.topics import leaders
from ottla.tools.stream.batches import FETCH_MAX, fetch_request
from ottla.wire.errors import ErrorCode, name_of

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place

STALL_SECONDS = 5.0
"""A refusal is reported after this time without records, once two Fetches in a row were refused. A
single refusal may come from an election in progress."""
QUIET_SECONDS_MAX = 60.0
"""The longest interval between two Fetches that only look for a refusal."""


class Refusals:
    """What the brokers of one reader refuse."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster
        self._since = self._due_at = 0.0
        self._told = False
        self.text = ""
        """The refusal of the last Fetch; "" if the Fetch was not refused."""

    def begin(self, now: float) -> None:
        """Called when records have arrived, or reading begins."""
        self._since, self._due_at, self._told = now, now + STALL_SECONDS / 2, False
        self.text = ""

    def look(self, positions: Mapping[Place, int], now: float) -> None:
        """Called while no record arrives. Sends the Fetches when they are due, and reports a
        refusal once."""
        if now < self._due_at:
            return
        before, refused = self.text, self._first_refused(positions)
        self.text = "" if refused is None else refused[1]
        self._due_at = now + (
            STALL_SECONDS / 2 if refused else min(now - self._since, QUIET_SECONDS_MAX))
        if refused is None:
            self._told = False
        elif before and not self._told:
            self._told = True
            print(f"{self.text}; waiting. `ottla topic why {refused[0]}` shows what is wrong with"
                  " the topic", file=sys.stderr, flush=True)

    def reason(self) -> str:
        """The last refusal as the end of an error's text; "" if there is none."""
        return f": {self.text}" if self.text else ""

    def _first_refused(self, positions: Mapping[Place, int]) -> tuple[str, str] | None:
        """The topic of the first partition that is not served, and a text about the partition. None
        if all are served, or if the brokers cannot be reached, which librdkafka reports."""
        by_leader: dict[int, list[Place]] = defaultdict(list)
        try:
            led = leaders(self._cluster, sorted({topic for topic, _ in positions}))
            for place, offset in sorted(positions.items()):
                if offset >= 0 and place in led:
                    by_leader[led[place]].append(place)
            for node, places in sorted(by_leader.items()):
                if node < 0:
                    return places[0][0], f"{places[0][0]}-{places[0][1]} has no leader"
                for topic, index, code in self._codes(node, places, positions):
                    # After OFFSET_OUT_OF_RANGE, librdkafka resets the offset and continues.
                    if code not in (0, ErrorCode.OFFSET_OUT_OF_RANGE):
                        return topic, (
                            f"broker {node} serves no records of {topic}-{index}: {name_of(code)}")
        except ClientError:
            pass
        return None

    def _codes(
        self, node: int, places: list[Place], positions: Mapping[Place, int]
    ) -> list[tuple[str, int, int]]:
        """The error code of each partition, from a Fetch that is answered at once."""
        found = []
        for wanted in sorted({topic for topic, _ in places}):
            offsets = [(index, positions[wanted, index]) for topic, index in places
                       if topic == wanted]
            answer = self._cluster.node(node, wait=False).call(
                fetch_request(wanted, offsets, partition_bytes=1, wait_ms=0, min_bytes=0),
                at_most=FETCH_MAX)
            found += [
                (topic.topic, part.partition_index, part.error_code or answer.error_code)
                for topic in answer.responses for part in topic.partitions
            ]
        return found
