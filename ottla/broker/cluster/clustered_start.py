"""Makes a server one of several: its session with ZooKeeper, and its connections to
the other brokers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.broker.cluster.directory_reports import DirectoryReports
from ottla.broker.cluster.elections import Elections, LogEnds
from ottla.broker.cluster.isr_changes import IsrChanges
from ottla.broker.cluster.member import Member
from ottla.broker.network.poller import BrokerLoop
from ottla.broker.peers.envelopes import Forwarding
from ottla.broker.peers.network import Network
from ottla.broker.peers.peers import Peers
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
    from ottla.broker.security.listener_security import ListenerSecurity


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


def connect_peers(
    broker: BrokerContext,
    member: Member,
    isr_changes: IsrChanges,
    network: Network | None,
    security: Callable[[], ListenerSecurity],
    loop: BrokerLoop,
) -> None:
    """Give a member's broker its connections to the others; `security` returns that of the
    inter-broker listener."""
    listener = broker.config.inter_broker_listener()
    broker.member = member
    broker.inter_broker_listener = listener
    broker.peers = Peers(
        member.node_id, lambda: member.metadata.image, listener,
        network or SecuredNetwork(loop, broker.workers, security, f"broker-{member.node_id}"), loop,
    )
    broker.forwarding = member.forwarding = Forwarding(
        broker.peers,
        controller_id=lambda: member.metadata.image.controller_id,
        deciding=lambda: member.metadata.is_controller,
        caught_up=member.caught_up,
    )
    config = broker.config
    broker.leader_throttle = Throttle(
        "leader", config.node_id, lambda: config.leader_replication_throttled_rate, broker.clock
    )
    broker.follower_throttle = Throttle(
        "follower", config.node_id, lambda: config.follower_replication_throttled_rate,
        broker.clock,
    )
    for throttle in (broker.leader_throttle, broker.follower_throttle):
        throttle.follow(MetadataImage.empty(), member.metadata.image)
        member.metadata.subscribe(throttle.follow)
    broker.fetchers = ReplicaFetchers(
        config, broker.peers, broker.checkpoints, broker.follower_throttle
    )
    broker.replicas.roles_changed = broker.fetchers.changed
    isr_changes.start(broker, lambda: member.broker_epoch)
    broker.directory_reports = DirectoryReports(broker, lambda: member.broker_epoch, loop)
    broker.replicas.offline_changed = broker.directory_reports.look
    broker.log_ends = LogEnds(broker.peers, broker.replicas, member.node_id)
    member.controller.elections = Elections(
        member.metadata, broker.log_ends,
        TopicConfig(broker.config.topic_defaults()).unclean_leader_election_enable, loop,
    )
    # Before the replicas: fetches for newly followed partitions carry the newest epoch.
    member.metadata.subscribe(broker.fetchers.follow)
    member.metadata.subscribe(broker.peers.follow)
    broker.peers.on_refused = member.controller.refused
    member.controller.brokers_changed = broker.peers.keep
