"""The parts of a broker that each coordinator uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.broker.threads.flusher import Flusher
    from ottla.broker.threads.workers import Workers
    from ottla.broker.upkeep.scrubber import DoubtedSegments
    from ottla.log.files.clock import Clock
    from ottla.replication.replicas import Replicas


class CoordinatorParts(NamedTuple):
    """The parts that read, append to and flush the partitions of an internal topic."""

    node_id: int
    clock: Clock
    replicas: Replicas
    flusher: Flusher
    workers: Workers
    doubted: DoubtedSegments
