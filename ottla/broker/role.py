"""The role of a broker: standalone, or a member of a cluster. Both roles have the same interface.

`Alone` decides everything itself. `Clustered` (cluster/clustered_start.py) asks the controller and
the other brokers. Parts call their `Role` without checking which of the two it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.broker.cluster.elections import Ends, Key
    from ottla.broker.cluster.metadata_log import Follower
    from ottla.broker.coordination.coordinators import Coordinators
    from ottla.broker.coordination.marker_sender import MarkerSender
    from ottla.broker.coordination.transaction_verifier import TransactionVerifier
    from ottla.broker.request_context import RequestContext
    from ottla.broker.settings.config import BrokerConfig
    from ottla.replication.controller.features import Levels
    from ottla.replication.metadata import BrokerImage, MetadataImage
    from ottla.replication.replicas import Replicas
    from ottla.replication.throttle import Throttle
    from ottla.wire.structs import Message


class Role(Protocol):
    """What the parts of a broker need from its cluster."""

    @property
    def replicated(self) -> bool:
        """Whether another broker may take over partitions that this one leads."""

    @property
    def listener(self) -> str | None:
        """The listener for connections between brokers; None if there is none."""

    @property
    def keeps_metadata(self) -> bool:
        """Whether the metadata log is in one of this broker's own log directories."""

    @property
    def leader_throttle(self) -> Throttle | None:
        """The throttle of followers' reads from this broker; None if there are no followers."""

    @property
    def unclean_elections(self) -> int:
        """How many out-of-sync replicas this broker has elected as leaders."""

    def decides(self) -> bool:
        """Whether this broker makes the controller's decisions."""

    async def forward(self, context: RequestContext, body: bytes) -> Message:
        """Have the controller serve a client's request; returns its response."""

    async def after_all(self, context: RequestContext, response: Message) -> Message:
        """Return `response`, which was decided here. If it says that this broker is no longer the
        controller, return the next controller's response instead."""

    async def ask(self, request: Message, version: int, timeout_seconds: float = 30.0) -> Any:
        """The controller's response to this broker's request. Raises RequestTimedOut."""

    async def caught_up(self) -> None:
        """Return once this broker's image contains what the controller has decided."""

    async def log_ends(
        self, image: MetadataImage, wanted: Mapping[Key, tuple[int, ...]]
    ) -> Ends | None:
        """The log ends that replicas report; `wanted` has, for each partition, the node ids to ask.
        None if there are no other replicas."""

    async def metadata_offsets(self, nodes: Iterable[int], seconds: float) -> dict[int, int]:
        """The offset up to which each of these brokers has read the metadata; -1 for a broker that
        does not answer."""

    def has_lost_its_term(self, image: MetadataImage) -> bool:
        """Whether the image still names this broker as the controller although its term has
        ended."""

    def controller_id(self, image: MetadataImage) -> int:
        """The controller's node id, -1 if it is not known."""

    def brokers(self, image: MetadataImage) -> Iterator[BrokerImage]:
        """The brokers that serve clients."""

    def attainable_factor(self, wanted: int, image: MetadataImage) -> int:
        """The replication factor that a new topic gets if `wanted` is configured."""

    def without_leader(self, counted: int, replicas: Replicas) -> int:
        """The number of partitions without a leader. `counted` is how many the image shows; the
        image of a single broker does not show the partitions of failed log directories."""

    def checkpoint_ms(self, config: BrokerConfig) -> int:
        """How often recovery points and high watermarks are written."""

    def supported_features(self) -> Mapping[int, Levels] | None:
        """The feature levels that each broker supports; None if there is only this broker."""

    def verifier(self, coordinators: Coordinators) -> TransactionVerifier | None:
        """The object that asks coordinators on other brokers whether a transactional batch may be
        appended; None if all coordinators are on this broker."""

    def marker_sender(self) -> MarkerSender | None:
        """The sender of markers to other leaders; None if all partitions are led here."""

    def compare_space(self) -> None:
        """Stop fetching partitions whose log directories are full, and resume when there is
        space."""

    def fetch_requests(self) -> dict[int, int]:
        """The number of fetch requests to each leader."""

    def followers(self) -> Iterable[Follower]:
        """The role's callbacks for new metadata images. They use the replicas, so they must be
        called after `replicas.follow`."""

    async def leave(self) -> None:
        """Hand over leadership before the broker stops."""

    def stop_following(self) -> None:
        """Stop fetching. Also stop proposing in-sync sets and reporting directories."""

    async def stop(self) -> None:
        """Leave the cluster, after everything else has stopped."""

    def forget_run(self, path: str) -> None:
        """A log directory has failed: remove the file in it that describes this run
        (`log/storage/run_record`), so that the next start does not trust the logs in it."""

    async def failure_reported(self) -> None:
        """Return once the other brokers know which log directories have failed."""

    def status(self, image: MetadataImage) -> dict[str, Any]:
        """What the status page says about the cluster."""

    def metrics(self) -> Iterator[str]:
        """The metrics of the session with ZooKeeper."""


class Alone:
    """The role of a broker without a cluster."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.replicated, self.keeps_metadata, self.unclean_elections = False, True, 0
        self.listener: str | None = None
        self.leader_throttle: Throttle | None = None

    def decides(self) -> bool:
        """A standalone broker makes all decisions."""
        return True

    async def metadata_offsets(self, nodes: Iterable[int], seconds: float) -> dict[int, int]:
        """Return no offsets: there are no other brokers."""
        return {}

    def has_lost_its_term(self, image: MetadataImage) -> bool:
        """Return False: a standalone broker has no term as the controller."""
        return False

    async def forward(self, context: RequestContext, body: bytes) -> Message:
        """Not called, since `decides` is true."""
        raise AssertionError("a standalone broker has forwarded a request")

    async def after_all(self, context: RequestContext, response: Message) -> Message:
        """Return the response: there is no other controller."""
        return response

    async def ask(self, request: Message, version: int, timeout_seconds: float = 30.0) -> Any:
        """Not called, since this broker decides itself."""
        raise AssertionError("a standalone broker has asked a controller")

    async def caught_up(self) -> None:
        """Return at once: the image already contains every decision."""

    async def log_ends(
        self, image: MetadataImage, wanted: Mapping[Key, tuple[int, ...]]
    ) -> Ends | None:
        """Return None: there are no other replicas."""
        return None

    def controller_id(self, image: MetadataImage) -> int:
        """Return this broker's id."""
        return self.node_id

    def brokers(self, image: MetadataImage) -> Iterator[BrokerImage]:
        """Return this broker, once it is registered."""
        return (each for each in image.brokers.values() if each.node_id == self.node_id)

    def attainable_factor(self, wanted: int, image: MetadataImage) -> int:
        """Limit the factor to the number of brokers, since no other brokers will join."""
        return min(wanted, max(len(image.brokers), 1))

    def without_leader(self, counted: int, replicas: Replicas) -> int:
        """Return the number of partitions in failed log directories, which the image does not
        show."""
        return len(replicas.offline)

    def checkpoint_ms(self, config: BrokerConfig) -> int:
        """The interval for recovery points."""
        return config.log_flush_offset_checkpoint_interval_ms

    def supported_features(self) -> Mapping[int, Levels] | None:
        """Return None: only this broker's levels matter."""
        return None

    def verifier(self, coordinators: Coordinators) -> TransactionVerifier | None:
        """Return None: all coordinators are on this broker."""
        return None

    def marker_sender(self) -> MarkerSender | None:
        """Return None: this broker leads all partitions."""
        return None

    def compare_space(self) -> None:
        """A standalone broker fetches nothing."""

    def fetch_requests(self) -> dict[int, int]:
        """A standalone broker fetches nothing."""
        return {}

    def followers(self) -> Iterable[Follower]:
        """Return no callbacks: this role has no parts that follow the metadata."""
        return ()

    async def leave(self) -> None:
        """Do nothing: no other broker could lead."""

    def stop_following(self) -> None:
        """Do nothing: a standalone broker follows no other broker."""

    async def stop(self) -> None:
        """Do nothing: there is no cluster to leave."""

    def forget_run(self, path: str) -> None:
        """Do nothing: a standalone broker keeps no records of its runs."""

    async def failure_reported(self) -> None:
        """Return at once: there is no other broker to inform."""

    def status(self, image: MetadataImage) -> dict[str, Any]:
        """Return nothing: there is no cluster to describe."""
        return {}

    def metrics(self) -> Iterator[str]:
        """Return no metrics: there is no session with ZooKeeper."""
        return iter(())
