"""What a handler may use: the broker's parts, and the request's own circumstances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.broker.dispatch import RequestContext as RequestContext
from ottla.broker.producer_ids import ProducerIds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.authorizer import Authorizer
    from ottla.broker.config import BrokerConfig
    from ottla.broker.flusher import Flusher
    from ottla.broker.metadata_log import MetadataLog
    from ottla.broker.workers import Workers
    from ottla.log.clock import Clock
    from ottla.replication.metadata import MetadataImage
    from ottla.replication.replicas import Replicas


@dataclass(slots=True)
class BrokerContext:
    """The parts of one running broker, built by server.py and handed to every handler."""

    node_id: int
    config: BrokerConfig
    clock: Clock
    replicas: Replicas
    flusher: Flusher
    metadata_log: MetadataLog
    workers: Workers
    coordinators: Any = None
    authorizer: Authorizer | None = None
    guard: Callable[[Any, RequestContext], Any] | None = None
    """Asks the authorizer about a request before its handler gets it (guard/gate.py)."""
    producer_ids: ProducerIds = field(init=False)

    def __post_init__(self) -> None:
        self.producer_ids = ProducerIds(self.metadata_log)

    @property
    def image(self) -> MetadataImage:
        """The cluster as of now; immutable, so a handler may keep it over an await."""
        return self.metadata_log.image
