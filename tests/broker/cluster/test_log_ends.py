"""The controller asks replicas for the ends of their logs before some elections."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.broker.cluster.elections import LogEnds
from ottla.replication.controller.elections import LogEnd
from ottla.wire.errors import StorageFailed


class Replica:
    """A replica on the controller; its disk may refuse to read the log's files."""

    def __init__(self, readable: bool) -> None:
        self.log, self.can_be_read = SimpleNamespace(readable=True), readable

    def own_end(self) -> tuple[int, int]:
        if not self.can_be_read:
            raise StorageFailed("it cannot be read")
        return 3, 40


def test_a_log_that_cannot_be_read_keeps_no_other_partition_from_its_election() -> None:
    here = {("lost", 0): Replica(False), ("t", 0): Replica(True)}
    replicas: Any = SimpleNamespace(partition=lambda *key: here[key])
    image: Any = SimpleNamespace(brokers={1: SimpleNamespace(epoch=7)})
    peers: Any = None
    ends = asyncio.run(LogEnds(peers, replicas, 1).ask(image, dict.fromkeys(here, (1,))))
    assert ends == {("lost", 0): {}, ("t", 0): {1: LogEnd(7, 3, 40)}}
