"""Builds the broker's parts, starts them in order, and stops them."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.cluster.bootstrap import take_bootstrap
from ottla.broker.cluster.feature_levels import default_levels
from ottla.broker.cluster.metadata_log import Metadata, MetadataLog
from ottla.broker.context import BrokerContext
from ottla.broker.failures import DirectoryFailures, Failure
from ottla.broker.history.histories import Histories
from ottla.broker.listener_set import ListenerSet
from ottla.broker.network.cold_reads import ColdReads
from ottla.broker.network.poller import BrokerLoop
from ottla.broker.role import Alone, Role
from ottla.broker.security.secured_listeners import SecuredListeners
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings_reload import reload
from ottla.broker.start.found_partitions import FoundPartitions
from ottla.broker.start.log_directories import (
    open_storage,
    refuse_foreign_logs,
    refuse_logs_without_metadata,
)
from ottla.broker.threads.flusher import Flusher
from ottla.broker.threads.workers import Workers
from ottla.broker.upkeep.checkpoint_writer import Checkpoints, high_watermarks
from ottla.broker.upkeep.compactor import LogCleaner
from ottla.broker.upkeep.directory_moves import Moving
from ottla.broker.upkeep.due_flushes import DueFlushes
from ottla.broker.upkeep.expiry import expire_producers, expire_tokens
from ottla.broker.upkeep.file_removal import FileRemoval
from ottla.broker.upkeep.housekeeping import Housekeeping, PeriodicWork
from ottla.broker.upkeep.put_off_logs import reopen_logs
from ottla.broker.upkeep.retention import Retention
from ottla.broker.upkeep.scrubber import DoubtedSegments, Scrubber
from ottla.broker.upkeep.space_watch import SpaceWatch
from ottla.broker.upkeep.upkeep_thread import UpkeepThread
from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.storage.storage import Hooks
from ottla.replication.controller.features import finalise_features
from ottla.replication.metadata import MetadataImage
from ottla.replication.replicas import Replicas
from ottla.replication.standalone import TOPIC as METADATA
from ottla.replication.standalone import StandaloneStore, raise_leader_epochs
from ottla.wire.errors import StorageFailed

if TYPE_CHECKING:
    from ottla.broker.cluster.cluster_session import ClusterSession
    from ottla.broker.cluster.clustered_start import PeerSide
    from ottla.broker.cluster.member import Member
    from ottla.broker.http.server import HttpServer
    from ottla.broker.listener import Listener
    from ottla.broker.peers.network import Network
    from ottla.broker.security.authorizer import Authorizer
    from ottla.broker.security.token_secrets import TokenSecrets
    from ottla.log.storage.storage import Storage
    from ottla.replication.coordination import Coordination

log = logging.getLogger("ottla.server")


class Server:
    """One broker. `start` returns when the broker serves; `stop` returns when all data are on
    disk."""

    storage: Storage
    metadata_log: Metadata
    replicas: Replicas
    broker: BrokerContext

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk | None = None,
        clock: Clock | None = None,
        network: Network | None = None,
        coordination: Coordination | None = None,
    ) -> None:
        """Must be called on the loop on which the server will run. `network` (connections to other
        brokers) and `coordination` (a ZooKeeper session) are only used in a cluster."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, BrokerLoop):
            raise TypeError(f"a Server runs on a BrokerLoop, not on a {type(loop).__name__}")
        self.config, self.loop = config, loop
        self.network, self.coordination = network, coordination
        self.disk = disk or Disk()
        self.clock = clock or Clock()
        self.ending = Failure(loop)
        self.directory_failures: DirectoryFailures | None = None
        self.directory_full = asyncio.Event()
        self.listener_set = ListenerSet(config, SecuredListeners(config, self.clock))
        self.session: ClusterSession | None = None
        self.member: Member | None = None
        self.housekeeping: Housekeeping | None = None
        self.http: HttpServer | None = None

    @property
    def failure(self) -> asyncio.Future[str]:
        """A future of the reason why the broker has to end; it is done once there is a reason."""
        return self.ending.reason

    @property
    def listeners(self) -> list[Listener]:
        """The listeners that are open."""
        return self.listener_set.opened

    def give_up_start(self) -> None:
        """Handle a stop that was requested during the start: end the waits for other brokers, since
        these waits have no time limit."""
        self.ending.fail("the broker was stopped before it served requests")

    # The start

    async def start(self) -> None:
        """Open the logs, replay the metadata, then listen."""
        if not self.config.zookeeper_connect:
            await self._open_alone()
            await self._serve()
            return
        session = self.session = await self._join()
        try:
            self._open_as_member(session)
            await self._serve()
        except BaseException:
            await (self.member or session).stop()
            raise

    async def _open_alone(self) -> None:
        refuse_foreign_logs(self.config, self.disk)
        self.storage = open_storage(self.config, self.disk, self.clock, self._hooks())
        store = StandaloneStore.open(self.storage, self.clock)
        metadata = self.metadata_log = MetadataLog(store, self.loop)
        refuse_logs_without_metadata(self.storage, metadata.image)
        await take_bootstrap(self.config.log_directories()[0], metadata)
        await self._begin_epochs()

    async def _join(self) -> ClusterSession:
        from ottla.broker.cluster.clustered_start import join, zookeeper

        coordination = self.coordination or zookeeper(self.config, self.loop)
        return await self.ending.unless_it_fails(
            join(self.config, coordination, self.disk, self.ending.fail, self.loop)
        )

    def _open_as_member(self, session: ClusterSession) -> None:
        self.storage = open_storage(
            self.config, self.disk, self.clock, self._hooks(), session.cluster_id
        )
        self.metadata_log = session.metadata
        refuse_logs_without_metadata(self.storage, self.metadata_log.image)

    def _hooks(self) -> Hooks:
        return Hooks(
            self._directory_failed, self.directory_full.set, self.config.is_cordoned
        )

    def _directory_failed(self, path: str, reason: str) -> None:
        """Handle the failure of a log directory. While the storage is being opened, the failure is
        only logged, since no other part depends on the directory yet."""
        if self.directory_failures is None:
            log.error("log directory %s failed: %s", path, reason)
        else:
            self.directory_failures.directory_failed(path, reason)

    async def _begin_epochs(self) -> None:
        """Begin a new leader epoch of all partitions. Kafka, too, does so at each start, even if
        the last stop was clean.

        This is how consumers detect that a power failure removed records which they have read
        (KIP-320).
        """
        try:
            await self.metadata_log.decide(raise_leader_epochs)
        except StorageFailed as error:
            home = self.storage.homes[METADATA, 0]
            if home.offline is not None:
                raise
            # With a full disk the broker still has to serve, so that clients can free space.
            log.error("the leader epochs could not be raised at this start: %s. Consumers may not"
                      " notice if a power failure has removed records", error)

    async def _serve(self) -> None:
        self.config.follow(MetadataImage.empty(), self.metadata_log.image, ())
        self._build()
        self._take_up_partitions()
        self._subscribe()
        try:
            await self._open_doors()
        except BaseException:
            # Stop cleanly: the partitions are recovered now, and the next start then need not
            # recover them again.
            await self.stop()
            raise
        self._coordinate()
        self.housekeeping = self._keep_house()
        if self.config.ottla_http_listener:
            await self._open_http(self.config.ottla_http_listener)

    def _build(self) -> None:
        """Make the parts of the broker, each after the parts that it uses."""
        config, storage, loop = self.config, self.storage, self.loop
        self.flusher, self.workers, self.cold_reads = Flusher(loop), Workers(loop), ColdReads(loop)
        self.upkeep_thread = UpkeepThread(loop)
        self.checkpoints = Checkpoints(storage, loop)
        self.moving = Moving(storage, self.checkpoints, config, loop)
        histories = Histories(config.node_id, self.clock)
        peers = None if self.session is None else self._connect_peers(self.session, histories)
        replicas = self.replicas = (
            Replicas(config.node_id, storage, config.topic_log_config, config.ottla_acks_all_flush)
            if peers is None else peers.replicas(storage)
        )
        self.scrubber = Scrubber(config, self.clock, replicas, storage, self.upkeep_thread.run)
        self.doubted = DoubtedSegments(self.scrubber, loop)
        role: Role
        if peers is None:
            role = Alone(config.node_id)
        else:
            role = clustered = peers.role(replicas, self.doubted, self.disk)
            self.member = clustered.member
        self.broker = BrokerContext(
            config.node_id, config, self.clock, replicas, self.flusher, self.metadata_log,
            self.workers, self.cold_reads, self.moving, self.checkpoints, self.doubted, role,
            histories, self.listener_set.security, self._authorizer(), self._token_secrets(), loop,
        )
        self.coordinators = self.broker.coordinators
        self.directory_failures = DirectoryFailures(
            storage, replicas, self.coordinators, role, self.ending
        )
        self.found_partitions = FoundPartitions(config, storage, replicas, self.metadata_log)

    def _connect_peers(self, session: ClusterSession, histories: Histories) -> PeerSide:
        from ottla.broker.cluster.clustered_start import PeerSide
        from ottla.broker.peers.secured_network import SecuredNetwork

        config, security = self.config, self.listener_set.security
        network = self.network or SecuredNetwork(
            self.loop, self.workers, lambda: security[config.inter_broker_listener()],
            f"broker-{config.node_id}",
        )
        return PeerSide(
            config, session, self.clock, self.flusher, self.checkpoints, histories.partitions,
            network, self.loop,
        )

    def _authorizer(self) -> Authorizer | None:
        """The authorizer of requests; None if authorizer.class.name is not set."""
        config = self.config
        if not config.authorizer_class_name:
            return None
        from ottla.broker.security.authorizer import Authorizer

        authorizer = Authorizer(config.super_user_names, config.allow_everyone_if_no_acl_found)
        authorizer.follow(MetadataImage.empty(), self.metadata_log.image)
        self.metadata_log.subscribe(authorizer.follow)
        return authorizer

    def _token_secrets(self) -> TokenSecrets | None:
        """The secrets of delegation tokens; None if delegation.token.secret.key is not set, or is
        empty: everybody could derive the secrets from an empty key."""
        key = self.config.delegation_token_secret_key
        if not key:
            return None
        from ottla.broker.security.token_secrets import TokenSecrets

        return TokenSecrets(key)

    def _take_up_partitions(self) -> None:
        """Recover the partitions that the image assigns to this broker; no client is served yet."""
        storage, image = self.storage, self.metadata_log.image
        self.broker.follow(MetadataImage.empty(), image, image.topics)
        if self.broker.role.replicated:
            self.found_partitions.note_missing()
        self.found_partitions.recover()
        for _ in self.replicas.follow(MetadataImage.empty(), image, image.topics):
            pass
        self.found_partitions.put_strays_aside()
        storage.started = True

    def _subscribe(self) -> None:
        """Subscribe the parts to the metadata: the settings first, since partitions depend on
        them."""
        quotas = [self.broker.quotas.follow, self.broker.connection_rates.follow]
        for follow in quotas:
            follow(MetadataImage.empty(), self.metadata_log.image)
        for follower in (
            self.config.follow, self.broker.follow, self.listener_set.follow, *quotas,
            self.replicas.follow, *self.broker.role.followers(),
        ):
            self.metadata_log.subscribe(follower)

    async def _open_doors(self) -> None:
        """Listen, then register: from then on this broker leads partitions."""
        config, metadata = self.config, self.metadata_log
        if isinstance(metadata, MetadataLog):
            await metadata.decide(finalise_features, default_levels())
        self.listener_set.open(self.broker, self.loop)
        addresses = self.listener_set.addresses()
        if isinstance(metadata, MetadataLog):
            await metadata.register_broker(config.node_id, addresses, config.broker_rack)
        elif self.member is not None:
            await self.ending.unless_it_fails(self._register(self.member, addresses))
            self.broker.producer_ids.keep_ahead()
        self.found_partitions.forget_cuts()

    async def _register(self, member: Member, addresses: list[tuple[str, str, int]]) -> None:
        logs = await self.found_partitions.report(member.session.adopts, self.workers)
        await member.registrar.register(addresses, logs)

    def _coordinate(self) -> None:
        """Load groups and transactions. Clients are served already, since loading 10,000 groups
        takes 0.3 s.
        """
        image = self.metadata_log.image
        self.metadata_log.subscribe(self.coordinators.follow)
        self.coordinators.follow(MetadataImage.empty(), image, image.topics.keys())

    def _keep_house(self) -> Housekeeping:
        """Begin the periodic work; each part gets only the objects that it uses."""
        config, clock, replicas = self.config, self.clock, self.replicas
        metadata, role, in_thread = self.metadata_log, self.broker.role, self.upkeep_thread.run
        doubt = self.doubted.doubt
        retention = Retention(replicas, self.storage, self.workers, doubt)
        removal = FileRemoval(self.storage, in_thread)

        async def make_room() -> None:
            await retention.apply()
            await removal.make_room()

        work = PeriodicWork(
            write_checkpoints=lambda: self.checkpoints.write(high_watermarks(replicas)),
            flushes=DueFlushes(replicas, self.flusher, clock, in_thread),
            retention=retention,
            removal=removal,
            space=SpaceWatch(self.storage, replicas, role, clock, in_thread, make_room),
            cleaner=LogCleaner(
                config, clock, replicas, self.storage, self.workers, self.checkpoints, in_thread,
                doubt,
            ),
            scrubber=self.scrubber,
            expire_producers=partial(expire_producers, replicas),
            expire_tokens=(
                None if self.broker.token_secrets is None
                else partial(expire_tokens, role, metadata, clock)
            ),
            reopen_logs=partial(reopen_logs, replicas, metadata, self.coordinators),
            warn_of_certificates=self.listener_set.security.warn,
        )
        checkpoint_seconds = role.checkpoint_ms(config) / 1000
        return Housekeeping(work, config, checkpoint_seconds, self.directory_full, self.loop)

    async def _open_http(self, address: str) -> None:
        from ottla.broker.http.monitor import Monitor
        from ottla.broker.http.server import HttpServer

        host, port = self.listener_set.advertised(self.listeners[0])
        self.http = HttpServer(Monitor(self.broker, self.listeners, f"{host}:{port}", self.loop))
        try:
            await self.http.start(address)
        except OSError:
            await self.stop()
            raise
        log.info(
            "metrics, health and status: HTTP on %s:%d",
            address.rpartition(":")[0] or "*", self.http.port,
        )

    # Reload and stop

    async def reload(self) -> None:
        """Read the properties again and apply those that may change at run time (SIGHUP)."""
        await reload(self.config, self.metadata_log.image, self.listener_set, self.replicas)

    async def stop(self) -> None:
        """Hand over leadership, stop accepting, close the connections, write all data to disk."""
        role = self.broker.role
        await role.leave()
        role.stop_following()
        if self.http is not None:
            self.http.close()
        self.listener_set.close()
        for task in self.broker.creating.values():
            task.cancel()
        if self.housekeeping is not None:
            self.housekeeping.close()
        self.doubted.close()
        self.upkeep_thread.close()
        if self.broker.authorizer is not None:
            self.broker.authorizer.denials.close()
        self.moving.close()
        self.broker.producer_ids.close()
        self.coordinators.close()
        await self.metadata_log.settle()
        self.workers.close()
        self.cold_reads.close()
        self.flusher.close()
        self.metadata_log.close()
        self.checkpoints.close()
        self.storage.close(high_watermarks(self.replicas))
        # This comes last: while the session lives, no other broker can register with this id.
        await role.stop()
