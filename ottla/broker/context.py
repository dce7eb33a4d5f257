"""The parts of a broker, which every handler may use."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING

from ottla.broker.cluster.departed import DepartedBrokers
from ottla.broker.cluster.producer_id_blocks import ProducerIds
from ottla.broker.coordination.coordinator_parts import CoordinatorParts
from ottla.broker.coordination.coordinators import Coordinators
from ottla.broker.kept_answers import KeptAnswers
from ottla.broker.network.counts import Counts
from ottla.broker.notes import Notes
from ottla.broker.quotas.connection_rates import ConnectionRates
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.telemetry.client_telemetry import ClientTelemetry

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection

    from ottla.broker.cluster.metadata_log import Metadata
    from ottla.broker.history.histories import Histories
    from ottla.broker.network.cold_reads import ColdReads
    from ottla.broker.role import Role
    from ottla.broker.security.authorizer import Authorizer
    from ottla.broker.security.secured_listeners import SecuredListeners
    from ottla.broker.security.token_secrets import TokenSecrets
    from ottla.broker.settings.config import BrokerConfig
    from ottla.broker.threads.flusher import Flusher
    from ottla.broker.threads.workers import Workers
    from ottla.broker.upkeep.checkpoint_writer import Checkpoints
    from ottla.broker.upkeep.directory_moves import Moving
    from ottla.broker.upkeep.scrubber import DoubtedSegments
    from ottla.log.files.clock import Clock
    from ottla.replication.metadata import MetadataImage
    from ottla.replication.replicas import Replicas

REQUEST_ELEMENTS_MIN = 50_000
"""How many array elements a request may contain if no partitions exist; each existing partition
adds four."""


@dataclass(slots=True, eq=False, repr=False)
class BrokerContext:
    """The parts of one running broker, built by server.py. Every handler gets this object."""

    node_id: int
    config: BrokerConfig
    clock: Clock
    replicas: Replicas
    flusher: Flusher
    metadata_log: Metadata
    workers: Workers
    cold_reads: ColdReads
    moving: Moving
    checkpoints: Checkpoints
    doubted: DoubtedSegments
    role: Role
    histories: Histories
    security: SecuredListeners
    authorizer: Authorizer | None
    token_secrets: TokenSecrets | None
    loop: InitVar[asyncio.AbstractEventLoop]
    coordinators: Coordinators = field(init=False)
    client_telemetry: ClientTelemetry = field(init=False)
    counts: Counts = field(default_factory=Counts)
    quotas: Quotas = field(init=False)
    connection_rates: ConnectionRates = field(init=False)
    request_elements_max: int = REQUEST_ELEMENTS_MIN
    producer_ids: ProducerIds = field(init=False)
    departed: DepartedBrokers = field(init=False)
    notes: Notes = field(init=False)
    kept: KeptAnswers = field(default_factory=KeptAnswers)
    creating: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """The internal topics that are being created."""

    def __post_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.producer_ids = ProducerIds(self.node_id, self.metadata_log, self.role)
        self.notes = Notes(self.clock.monotonic)
        self.client_telemetry = ClientTelemetry(self.clock)
        config = self.config
        self.departed = DepartedBrokers(self.clock, config.ottla_unavailable_broker_listed_ms)
        self.connection_rates = ConnectionRates(config)
        self.quotas = Quotas(
            self.clock, config.quota_window_num, config.quota_window_size_seconds,
            config.controller_quota_window_num, config.controller_quota_window_size_seconds,
        )
        # The coordinators come last, as they use the other parts.
        parts = CoordinatorParts(
            self.node_id, self.clock, self.replicas, self.flusher, self.workers, self.doubted
        )
        self.coordinators = Coordinators(
            parts, config, self.role, self.metadata_log, self.authorizer is not None, loop
        )

    def follow(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        """Update the list of departed brokers and the limit on array elements in one request. A
        decoded element takes many times the memory of its bytes on the wire, and no sensible
        request names many more items than exist."""
        self.departed.follow(old, new)
        for name in topics:
            for image, sign in ((old, -1), (new, 1)):
                if name in image.topics:
                    self.request_elements_max += 4 * sign * len(image.topics[name].partitions)

    @property
    def image(self) -> MetadataImage:
        """The current metadata; immutable, so a handler may keep it across an await."""
        return self.metadata_log.image
