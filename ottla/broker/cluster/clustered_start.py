"""Makes a broker a member of a cluster: its session with ZooKeeper, and its connections to the
other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.cluster.cluster_session import ClusterSession, begin_session, own_min_isr
from ottla.broker.cluster.controller import Controller
from ottla.broker.cluster.directory_reports import DirectoryReports
from ottla.broker.cluster.elections import Elections, LogEnds
from ottla.broker.cluster.hand_over import hand_over
from ottla.broker.cluster.isr_changes import IsrChanges
from ottla.broker.cluster.member import Member
from ottla.broker.cluster.registrar import Registrar
from ottla.broker.cluster.run_records import RunRecords
from ottla.broker.network.poller import BrokerLoop
from ottla.broker.peers.envelopes import Forwarding
from ottla.broker.peers.network import Network
from ottla.broker.peers.peers import Peers, PeerUnavailable
from ottla.broker.peers.replica_fetchers import ReplicaFetchers
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.topic import TopicConfig
from ottla.log.files.disk import Disk
from ottla.log.storage.log_directory import StorageRefused
from ottla.replication.cluster_store import ClusterRefused
from ottla.replication.coordination import Coordination, CoordinationError, SessionState
from ottla.replication.election import Election
from ottla.replication.metadata import MetadataImage
from ottla.replication.records import UnreadableMetadata
from ottla.replication.replicas import Replicas
from ottla.replication.throttle import Throttle
from ottla.wire.environment import pip_install

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.cluster.metadata_log import Follower
    from ottla.broker.coordination.coordinators import Coordinators
    from ottla.broker.coordination.marker_sender import MarkerSender
    from ottla.broker.coordination.transaction_verifier import TransactionVerifier
    from ottla.broker.history.partition_history import PartitionHistory
    from ottla.broker.threads.flusher import Flusher
    from ottla.broker.upkeep.checkpoint_writer import Checkpoints
    from ottla.broker.upkeep.scrubber import DoubtedSegments
    from ottla.log.files.clock import Clock
    from ottla.log.storage.storage import Storage
    from ottla.replication.controller.features import Levels
    from ottla.replication.metadata import BrokerImage


def zookeeper(config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> Coordination:
    """A session with the ensemble that `zookeeper.connect` names, not connected yet."""
    try:
        from ottla.replication.zookeeper import ZooKeeper
    except ImportError as error:
        raise StorageRefused(
            f"zookeeper.connect needs the package kazoo: {pip_install('kazoo')}"
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
    config: BrokerConfig, coordination: Coordination, disk: Disk, failed: Callable[[str], None],
    loop: asyncio.AbstractEventLoop,
) -> ClusterSession:
    """Begin the session with the cluster, before any log directory is opened. `failed` is called
    with the reason when the broker has to end.

    Raises StorageRefused with the reason.
    """
    try:
        return await begin_session(config, coordination, disk, failed, loop)
    except (CoordinationError, ClusterRefused, UnreadableMetadata) as error:
        raise StorageRefused(str(error)) from error


class Clustered:
    """The role of a broker in a cluster: implements `broker.role.Role` with these parts."""

    def __init__(
        self, side: PeerSide, member: Member, ends: LogEnds, reports: DirectoryReports
    ) -> None:
        self.member, self.peers, self.forwarding = member, side.peers, side.forwarding
        self.config, self.session = side.config, side.session
        self.replicated, self.keeps_metadata = True, False
        self.listener: str | None = side.listener
        self.fetchers, self.ends = side.fetchers, ends
        self.leader_throttle: Throttle | None = side.leader_throttle
        self.isr_changes, self.reports, self.history = side.isr_changes, reports, side.history
        self.decides, self.forward, self.after_all = (
            self.forwarding.deciding, self.forwarding.forward, self.forwarding.after_all)
        self.ask, self.log_ends = self.forwarding.ask, ends.ask
        self.caught_up, self.compare_space = self.session.caught_up, self.fetchers.look_at_space

    @property
    def unclean_elections(self) -> int:
        """The number of unclean elections that this broker has noticed as the controller."""
        return self.member.controller.unclean_elections

    async def metadata_offsets(self, nodes: Iterable[int], seconds: float) -> dict[int, int]:
        """Ask these nodes in parallel how far they have read the metadata. The result for a node
        that does not answer is -1."""

        async def ask(node_id: int) -> int:
            try:
                return await self.peers.metadata_offset(node_id, seconds)
            except PeerUnavailable:
                return -1

        return dict(zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True))

    def has_lost_its_term(self, image: MetadataImage) -> bool:
        """Whether the image still names this broker as the controller although its term has
        ended."""
        return image.controller_id == self.session.node_id and self.session.metadata.term is None

    def controller_id(self, image: MetadataImage) -> int:
        """The controller that the image names."""
        return image.controller_id

    def brokers(self, image: MetadataImage) -> Iterator[BrokerImage]:
        """All registered brokers."""
        return iter(image.brokers.values())

    def followers(self) -> Iterable[Follower]:
        """The role's callbacks for new metadata images: those of the partitions' history and of the
        reports of failed directories."""
        return self.history.follow, self.reports.follow

    async def leave(self) -> None:
        """Hand over leadership, if controlled.shutdown.enable is set."""
        if self.config.controlled_shutdown_enable:
            await hand_over(self.session, self.forwarding)

    def stop_following(self) -> None:
        """Stop fetching, proposing in-sync sets, and reporting directories."""
        self.fetchers.close()
        self.isr_changes.close()
        self.reports.close()

    async def stop(self) -> None:
        """Close the connections and end the session. Until the session ends, no other broker can
        register with this id."""
        self.peers.close()
        await self.member.stop()

    def forget_run(self, path: str) -> None:
        """A log directory has failed: remove the file in it that describes this run, so that the
        next start does not trust the logs in it."""
        self.member.runs.forget(path)

    async def failure_reported(self) -> None:
        """Return once the controller knows which log directories have failed. Return at once if
        this broker is not registered."""
        if self.session.broker_epoch >= 0:
            await self.reports.settled()

    def attainable_factor(self, wanted: int, image: MetadataImage) -> int:
        """The wanted factor, even if fewer brokers are live, since the missing brokers will return.
        A topic that is created with fewer replicas would not get the others later, and could be
        lost with one machine (KIP-115)."""
        return wanted

    def without_leader(self, counted: int, replicas: Replicas) -> int:
        """Return `counted`, the number of partitions that have no leader in the image. Nothing is
        added, since the image takes failed log directories into account."""
        return counted

    def checkpoint_ms(self, config: BrokerConfig) -> int:
        """The shorter of the two checkpoint intervals."""
        return min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.replica_high_watermark_checkpoint_interval_ms,
        )

    def supported_features(self) -> Mapping[int, Levels] | None:
        """The levels that each registered broker supports."""
        return self.member.controller.features

    def verifier(self, coordinators: Coordinators) -> TransactionVerifier | None:
        """A verifier that asks coordinators on other brokers."""
        from ottla.broker.coordination.transaction_verifier import TransactionVerifier

        return TransactionVerifier(
            self.session.node_id, self.session.metadata, coordinators, self.peers
        )

    def marker_sender(self) -> MarkerSender | None:
        """A sender that asks other leaders to write markers."""
        from ottla.broker.coordination.marker_sender import MarkerSender

        return MarkerSender(self.session.metadata, self.peers)

    def fetch_requests(self) -> dict[int, int]:
        """The number of fetch requests sent to each leader."""
        return {node_id: source.fetcher.plan.requests
                for node_id, source in self.fetchers.sources.items()}

    def status(self, image: MetadataImage) -> dict[str, Any]:
        """The controller's id, this broker's epoch, and the state of its session with ZooKeeper."""
        return {
            "controller_id": image.controller_id,
            "broker_epoch": self.session.broker_epoch,
            "zookeeper": self.session.coordination.state.value,
        }

    def metrics(self) -> Iterator[str]:
        """How often the session changed, and how long ZooKeeper took to answer."""
        from ottla.broker.http.cluster_metrics import session_metrics

        return session_metrics(self.session)


class PeerSide:
    """The parts of a member that deal with the other brokers. They are made before the partitions,
    which call them."""

    def __init__(
        self, config: BrokerConfig, session: ClusterSession, clock: Clock, flusher: Flusher,
        checkpoints: Checkpoints, history: PartitionHistory, network: Network, loop: BrokerLoop,
    ) -> None:
        metadata = session.metadata
        self.config, self.session, self.history, self.loop = config, session, history, loop
        self.listener = config.inter_broker_listener()
        self.peers = Peers(
            session.node_id, lambda: metadata.image, self.listener, network, loop,
            lambda node_id: self.controller.refused(node_id),   # set by `role`
        )
        self.forwarding = Forwarding(
            self.peers,
            controller_id=lambda: metadata.image.controller_id,
            deciding=lambda: metadata.is_controller,
            connected=lambda: session.coordination.state is SessionState.CONNECTED,
            caught_up=session.caught_up,
        )
        self.leader_throttle = Throttle(
            "leader", config.node_id, lambda: config.leader_replication_throttled_rate, clock
        )
        follower_throttle = Throttle(
            "follower", config.node_id, lambda: config.follower_replication_throttled_rate, clock
        )
        for throttle in (self.leader_throttle, follower_throttle):
            throttle.follow(MetadataImage.empty(), metadata.image)
            metadata.subscribe(throttle.follow)
        self.fetchers = ReplicaFetchers(config, self.peers, checkpoints, follower_throttle)
        self.isr_changes = IsrChanges(
            config.node_id, config.replica_lag_time_max_ms, metadata, flusher, self.forwarding,
            self.fetchers, lambda: session.broker_epoch, history.asks_for_removal, loop,
        )
        # Subscribe before the replicas do: fetches for new partitions then carry the broker epoch
        # of this broker's newest registration.
        metadata.subscribe(self.fetchers.follow)
        metadata.subscribe(self.peers.follow)

    def replicas(self, storage: Storage) -> Replicas:
        """The partitions of a member."""
        config = self.config
        return Replicas(
            config.node_id, storage, config.topic_log_config, config.ottla_acks_all_flush,
            self.session.incarnation, self.isr_changes, self.fetchers.changed,
        )

    def role(self, replicas: Replicas, doubted: DoubtedSegments, disk: Disk) -> Clustered:
        """Make the role of a member with these partitions. From now on, this broker sends requests
        about in-sync sets and failed directories to the controller."""
        config, session, loop = self.config, self.session, self.loop
        reports = DirectoryReports(
            session.node_id, session.metadata, replicas, self.fetchers, self.forwarding,
            lambda: session.broker_epoch, loop,
        )
        # `reports` and `isr_changes` use the partitions, and the partitions call them.
        replicas.offline_changed = reports.look
        self.isr_changes.start(replicas, doubted.want)
        ends = LogEnds(self.peers, replicas, session.node_id)
        seconds = float(config.leader_imbalance_check_interval_seconds)
        self.controller = Controller(
            session.coordination, session.metadata,
            Election(session.coordination, session.node_id, session.incarnation),
            Elections(
                session.metadata, ends,
                TopicConfig(config.topic_defaults()).unclean_leader_election_enable, loop,
            ),
            own_min_isr(config), seconds if config.auto_leader_rebalance_enable else None,
            self.peers.keep, loop,
        )
        runs = RunRecords(disk, config.ottla_acks_all_flush)
        registrar = Registrar(config, disk, session, self.controller, runs, loop)
        return Clustered(self, Member(session, self.controller, registrar, runs), ends, reports)
