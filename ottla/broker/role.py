"""What a broker is: alone, or one of a cluster. Both answer the same questions.

`Alone` decides everything itself. `Clustered` (clustered_start.py) asks the controller and the
other brokers. A part that has a `Role` calls it, and does not ask which of the two it is.
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
    """The questions that the parts of a broker have about its cluster."""

    @property
    def replicated(self) -> bool:
        """Whether another broker may take over what this one leads."""

    @property
    def listener(self) -> str | None:
        """The listener for connections between brokers; None if there is none."""

    @property
    def keeps_metadata(self) -> bool:
        """Whether the metadata are a log in one of this broker's own directories."""

    @property
    def leader_throttle(self) -> Throttle | None:
        """The limit on what followers read here; None if there are no followers."""

    @property
    def unclean_elections(self) -> int:
        """Leaders elected here that were not in sync."""

    def decides(self) -> bool:
        """Whether this broker decides what the controller decides."""

    async def forward(self, context: RequestContext, body: bytes) -> Message:
        """Have the controller serve a client's request; returns its response."""

    async def after_all(self, context: RequestContext, response: Message) -> Message:
        """A response that was decided here; that of the next controller if it is another by now."""

    async def ask(self, request: Message, version: int, timeout_seconds: float = 30.0) -> Any:
        """The controller's response to this broker's request. Raises RequestTimedOut."""

    async def caught_up(self) -> None:
        """Return once the image here has what the controller has decided."""

    async def log_ends(
        self, image: MetadataImage, wanted: Mapping[Key, tuple[int, ...]]
    ) -> Ends | None:
        """Where replicas end, as they say; `wanted` are node ids by partition. None if there are no
        others."""

    async def metadata_offsets(self, nodes: Iterable[int], seconds: float) -> dict[int, int]:
        """How far these other brokers have read the metadata; -1 for those that do not answer."""

    def has_lost_its_term(self, image: MetadataImage) -> bool:
        """Whether this broker was the controller, and does not reach ZooKeeper."""

    def controller_id(self, image: MetadataImage) -> int:
        """The controller's node id, -1 if it is not known."""

    def brokers(self, image: MetadataImage) -> Iterator[BrokerImage]:
        """The brokers that serve."""

    def attainable_factor(self, wanted: int, image: MetadataImage) -> int:
        """The replication factor of a topic for which a setting wants this one."""

    def without_leader(self, counted: int, replicas: Replicas) -> int:
        """The number of partitions that nobody leads; `counted` of them are so by the image."""

    def checkpoint_ms(self, config: BrokerConfig) -> int:
        """How often recovery points and high watermarks are written."""

    def supported_features(self) -> Mapping[int, Levels] | None:
        """The levels of features that each broker supports; None if there is only this one."""

    def verifier(self, coordinators: Coordinators) -> TransactionVerifier | None:
        """What verifies transactions with their coordinators; None if all are here."""

    def marker_sender(self) -> MarkerSender | None:
        """What sends markers to the leaders of other partitions; None if all are led here."""

    def compare_space(self) -> None:
        """Have the fetchers compare what they do with the directories as they are now."""

    def fetch_requests(self) -> dict[int, int]:
        """The requests that were sent to each leader."""

    def followers(self) -> Iterable[Follower]:
        """What follows the image after the replicas, which they are about."""

    async def leave(self) -> None:
        """Hand over leadership before the broker stops."""

    def stop_following(self) -> None:
        """Fetch, propose and report nothing more."""

    async def stop(self) -> None:
        """Leave the cluster, after all else has stopped."""

    def forget_run(self, path: str) -> None:
        """A log directory has failed: its record of this run vouches for nothing any more."""

    async def failure_reported(self) -> None:
        """Return once the others know which log directories have failed."""

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
        """It decides everything."""
        return True

    async def metadata_offsets(self, nodes: Iterable[int], seconds: float) -> dict[int, int]:
        """There are no others."""
        return {}

    def has_lost_its_term(self, image: MetadataImage) -> bool:
        """It has no term."""
        return False

    async def forward(self, context: RequestContext, body: bytes) -> Message:
        """Nobody forwards what it decides itself."""
        raise AssertionError("a broker that is alone has forwarded a request")

    async def after_all(self, context: RequestContext, response: Message) -> Message:
        """No other controller comes."""
        return response

    async def ask(self, request: Message, version: int, timeout_seconds: float = 30.0) -> Any:
        """Nobody asks for what this broker decides itself."""
        raise AssertionError("a broker that is alone has asked a controller")

    async def caught_up(self) -> None:
        """What is decided is in the image at once."""

    async def log_ends(
        self, image: MetadataImage, wanted: Mapping[Key, tuple[int, ...]]
    ) -> Ends | None:
        """There are no other replicas."""
        return None

    def controller_id(self, image: MetadataImage) -> int:
        """Itself."""
        return self.node_id

    def brokers(self, image: MetadataImage) -> Iterator[BrokerImage]:
        """Itself, once it is registered."""
        return (each for each in image.brokers.values() if each.node_id == self.node_id)

    def attainable_factor(self, wanted: int, image: MetadataImage) -> int:
        """At most the number of brokers: no others will come."""
        return min(wanted, max(len(image.brokers), 1))

    def without_leader(self, counted: int, replicas: Replicas) -> int:
        """Those whose log directory has failed: the image does not say so."""
        return len(replicas.offline)

    def checkpoint_ms(self, config: BrokerConfig) -> int:
        """As often as recovery points need it."""
        return config.log_flush_offset_checkpoint_interval_ms

    def supported_features(self) -> Mapping[int, Levels] | None:
        """This broker's own levels count."""
        return None

    def verifier(self, coordinators: Coordinators) -> TransactionVerifier | None:
        """All coordinators are here."""
        return None

    def marker_sender(self) -> MarkerSender | None:
        """All partitions are led here."""
        return None

    def compare_space(self) -> None:
        """It fetches nothing."""

    def fetch_requests(self) -> dict[int, int]:
        """It fetches nothing."""
        return {}

    def followers(self) -> Iterable[Follower]:
        """Nothing more."""
        return ()

    async def leave(self) -> None:
        """There is nobody to lead instead."""

    def stop_following(self) -> None:
        """It follows nobody."""

    async def stop(self) -> None:
        """There is nothing to leave."""

    def forget_run(self, path: str) -> None:
        """There are no such records."""

    async def failure_reported(self) -> None:
        """There is nobody to tell."""

    def status(self, image: MetadataImage) -> dict[str, Any]:
        """There is nothing to say."""
        return {}

    def metrics(self) -> Iterator[str]:
        """There is no session."""
        return iter(())
