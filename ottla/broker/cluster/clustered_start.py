"""Makes a server one of several: its session with ZooKeeper, and its connections to
the other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.cluster.directory_reports import DirectoryReports
from ottla.broker.cluster.elections import Elections, LogEnds
from ottla.broker.cluster.isr_changes import IsrChanges
from ottla.broker.cluster.member import Member
from ottla.broker.network.poller import BrokerLoop
from ottla.broker.peers.envelopes import Forwarding
from ottla.broker.peers.network import Network
from ottla.broker.peers.peers import Peers, PeerUnavailable
from ottla.broker.peers.replica_fetchers import ReplicaFetchers
from ottla.broker.peers.secured_network import SecuredNetwork
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.topic import TopicConfig
from ottla.log.files.disk import Disk
from ottla.log.storage.log_directory import StorageRefused
from ottla.replication.cluster_store import ClusterRefused
from ottla.replication.coordination import Coordination, CoordinationError
from ottla.replication.metadata import MetadataImage
from ottla.replication.records import UnreadableMetadata
from ottla.replication.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.context import BrokerContext
    from ottla.broker.coordination.coordinators import Coordinators
    from ottla.broker.coordination.marker_sender import MarkerSender
    from ottla.broker.coordination.transaction_verifier import TransactionVerifier
    from ottla.broker.security.listener_security import ListenerSecurity
    from ottla.replication.controller.features import Levels
    from ottla.replication.metadata import BrokerImage
    from ottla.replication.replicas import Replicas


def zookeeper(config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> Coordination:
    """A session with the ensemble that `zookeeper.connect` names, not connected yet."""
    try:
        from ottla.replication.zookeeper import ZooKeeper
    except ImportError as error:
        raise StorageRefused(
            "zookeeper.connect needs the package kazoo: pip install kazoo"
        ) from error
    tls = None
    if config.zookeeper_ssl_client_enable:
        from ottla.broker.security.tls.zookeeper import zookeeper_contexts

        tls = zookeeper_contexts(config.static)
    return ZooKeeper(
        config.zookeeper_connect,
        config.zookeeper_session_timeout_ms,
        config.zookeeper_connection_timeout_ms,
        loop,
        tls,
    )


async def join(
    config: BrokerConfig, coordination: Coordination, disk: Disk, loop: asyncio.AbstractEventLoop
) -> Member:
    """Join the cluster, as far as that is possible before the log directories are open.

    Raises StorageRefused with what is wrong.
    """
    try:
        return await Member.join(config, coordination, disk, loop)
    except (CoordinationError, ClusterRefused, UnreadableMetadata) as error:
        raise StorageRefused(str(error)) from error


def begin_isr_changes(config: BrokerConfig, loop: BrokerLoop) -> IsrChanges:
    """The ClusterSide of this broker's partitions; `connect_peers` starts it."""
    return IsrChanges(config.node_id, config.replica_lag_time_max_ms, loop)


class Clustered:
    """The role of a broker in a cluster: what `broker.role.Role` asks, by these parts."""

    def __init__(
        self, member: Member, listener: str, peers: Peers, forwarding: Forwarding,
        fetchers: ReplicaFetchers, leader_throttle: Throttle, ends: LogEnds,
        isr_changes: IsrChanges, reports: DirectoryReports,
    ) -> None:
        self.member, self.peers, self.forwarding = member, peers, forwarding
        self.replicated = True
        self.listener: str | None = listener
        self.fetchers, self.ends = fetchers, ends
        self.leader_throttle: Throttle | None = leader_throttle
        self.isr_changes, self.reports = isr_changes, reports
        self.decides, self.forward, self.after_all = (
            forwarding.deciding, forwarding.forward, forwarding.after_all)
        self.ask, self.log_ends, self.caught_up = forwarding.ask, ends.ask, member.caught_up
        self.compare_space = fetchers.look_at_space

    @property
    def unclean_elections(self) -> int:
        """Leaders elected here that were not in sync."""
        return self.member.controller.unclean_elections

    async def metadata_offsets(self, nodes: Iterable[int], seconds: float) -> dict[int, int]:
        """As each of them answers, all asked at once."""

        async def ask(node_id: int) -> int:
            try:
                return await self.peers.metadata_offset(node_id, seconds)
            except PeerUnavailable:
                return -1

        return dict(zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True))

    def has_lost_its_term(self, image: MetadataImage) -> bool:
        """Whether the image still has this broker as the controller, without a term."""
        return image.controller_id == self.member.node_id and self.member.metadata.term is None

    def controller_id(self, image: MetadataImage) -> int:
        """The one of the image."""
        return image.controller_id

    def brokers(self, image: MetadataImage) -> Iterator[BrokerImage]:
        """All that are registered."""
        return iter(image.brokers.values())

    async def leave(self) -> None:
        """Hand over leadership, as far as the setting wants that."""
        if self.member.config.controlled_shutdown_enable:
            await self.member.leave()

    def stop_following(self) -> None:
        """Fetch, propose and report nothing more."""
        self.fetchers.close()
        self.isr_changes.close()
        self.reports.close()

    async def stop(self) -> None:
        """Give up the connections and the session, while which no other broker can have this id."""
        self.peers.close()
        await self.member.stop()

    def forget_run(self, path: str) -> None:
        """A log directory has failed: its record of this run vouches for nothing any more."""
        self.member.forget_run(path)

    async def failure_reported(self) -> None:
        """Return once the others know which log directories have failed, or nobody can tell them.
        """
        if self.member.broker_epoch >= 0:
            await self.reports.settled()

    def attainable_factor(self, wanted: int, image: MetadataImage) -> int:
        """What is wanted. Brokers that are missing will come: a topic that was created without them
        would keep too few replicas, and be lost with one machine (KIP-115)."""
        return wanted

    def without_leader(self, counted: int, replicas: Replicas) -> int:
        """As counted: the image knows of failed log directories."""
        return counted

    def checkpoint_ms(self, config: BrokerConfig) -> int:
        """As often as either of them needs it."""
        return min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.replica_high_watermark_checkpoint_interval_ms,
        )

    def supported_features(self) -> Mapping[int, Levels] | None:
        """The levels that brokers have registered."""
        return self.member.controller.features

    def verifier(self, coordinators: Coordinators) -> TransactionVerifier | None:
        """One that asks the coordinators."""
        from ottla.broker.coordination.transaction_verifier import TransactionVerifier

        return TransactionVerifier(
            self.member.node_id, self.member.metadata, coordinators, self.peers
        )

    def marker_sender(self) -> MarkerSender | None:
        """One that asks the leaders."""
        from ottla.broker.coordination.marker_sender import MarkerSender

        return MarkerSender(self.member.metadata, self.peers)

    def fetch_requests(self) -> dict[int, int]:
        """The requests that were sent to each leader."""
        return {node_id: source.fetcher.plan.requests
                for node_id, source in self.fetchers.sources.items()}

    def status(self, image: MetadataImage) -> dict[str, Any]:
        """The controller, this broker's epoch, its session with ZooKeeper."""
        return {
            "controller_id": image.controller_id,
            "broker_epoch": self.member.broker_epoch,
            "zookeeper": self.member.coordination.state.value,
        }

    def metrics(self) -> Iterator[str]:
        """How often the session changed, and how long ZooKeeper took to answer."""
        from ottla.broker.http.cluster_metrics import session_metrics

        return session_metrics(self.member)


def connect_peers(
    broker: BrokerContext,
    member: Member,
    isr_changes: IsrChanges,
    network: Network | None,
    security: Callable[[], ListenerSecurity],
    loop: BrokerLoop,
) -> Clustered:
    """Give a member's broker its connections to the others; `security` returns that of the
    inter-broker listener. Returns its role, which the broker has from now on."""
    config, metadata, replicas = broker.config, member.metadata, broker.replicas
    listener = config.inter_broker_listener()
    peers = Peers(
        member.node_id, lambda: metadata.image, listener,
        network or SecuredNetwork(loop, broker.workers, security, f"broker-{member.node_id}"), loop,
        member.controller.refused,
    )
    forwarding = member.forwarding = Forwarding(
        peers,
        controller_id=lambda: metadata.image.controller_id,
        deciding=lambda: metadata.is_controller,
        caught_up=member.caught_up,
    )
    leader_throttle = Throttle(
        "leader", config.node_id, lambda: config.leader_replication_throttled_rate, broker.clock
    )
    follower_throttle = Throttle(
        "follower", config.node_id, lambda: config.follower_replication_throttled_rate,
        broker.clock,
    )
    for throttle in (leader_throttle, follower_throttle):
        throttle.follow(MetadataImage.empty(), metadata.image)
        metadata.subscribe(throttle.follow)
    fetchers = ReplicaFetchers(config, peers, broker.checkpoints, follower_throttle)
    ends = LogEnds(peers, replicas, member.node_id)
    role = broker.role = Clustered(
        member, listener, peers, forwarding, fetchers, leader_throttle, ends,
        isr_changes,
        DirectoryReports(
            member.node_id, metadata, replicas, fetchers, forwarding,
            lambda: member.broker_epoch, loop,
        ),
    )
    replicas.roles_changed = fetchers.changed
    replicas.offline_changed = role.reports.look
    isr_changes.start(
        metadata, replicas, broker.flusher, forwarding, fetchers, lambda: member.broker_epoch,
        broker.check, broker.histories.partitions.asks_for_removal,
    )
    member.controller.elections = Elections(
        metadata, ends, TopicConfig(config.topic_defaults()).unclean_leader_election_enable, loop,
    )
    # Before the replicas: fetches for newly followed partitions carry the newest epoch.
    metadata.subscribe(fetchers.follow)
    metadata.subscribe(peers.follow)
    member.controller.brokers_changed = peers.keep
    return role
