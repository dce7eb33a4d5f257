"""Builds the broker's parts, starts them in order and stops them in the reverse order."""

from __future__ import annotations

import asyncio
import logging
import random
import resource
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.cluster.bootstrap import take_bootstrap
from ottla.broker.cluster.feature_levels import default_levels
from ottla.broker.cluster.metadata_log import Follower, Metadata, MetadataLog
from ottla.broker.connection_limits import ConnectionLimits
from ottla.broker.context import BrokerContext
from ottla.broker.coordination.coordinators import Coordinators
from ottla.broker.listener import Listener
from ottla.broker.network.cold_reads import ColdReads
from ottla.broker.network.poller import BrokerLoop
from ottla.broker.role import Alone
from ottla.broker.security.secured_listeners import SecuredListeners
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.listener_settings import is_secret
from ottla.broker.threads.flusher import Flusher
from ottla.broker.threads.slices import in_slices
from ottla.broker.threads.startup_threads import recover
from ottla.broker.threads.workers import Workers
from ottla.broker.upkeep.checkpoint_writer import Checkpoints
from ottla.broker.upkeep.directory_moves import Moving
from ottla.broker.upkeep.housekeeping import Housekeeping, high_watermarks
from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.partition.damage import forget_cuts
from ottla.log.storage.log_directory import StorageRefused
from ottla.log.storage.storage import Storage
from ottla.log.storage.strays import expire_strays, forget_other_topics, put_strays_aside
from ottla.replication.controller.elections import NONE
from ottla.replication.controller.features import finalise_features
from ottla.replication.metadata import MetadataImage
from ottla.replication.replicas import Replicas
from ottla.replication.standalone import TOPIC as METADATA
from ottla.replication.standalone import StandaloneStore, raise_leader_epochs
from ottla.wire.errors import StorageFailed

if TYPE_CHECKING:
    from ottla.broker.cluster.isr_changes import IsrChanges
    from ottla.broker.cluster.last_run import FoundLogs
    from ottla.broker.cluster.member import Member
    from ottla.broker.http.server import HttpServer
    from ottla.broker.peers.network import Network
    from ottla.log.files.checkpoints import Partition
    from ottla.log.storage.log_directory import LogDirectory
    from ottla.replication.coordination import Coordination
    from ottla.replication.metadata import Held

log = logging.getLogger("ottla.server")

Result = TypeVar("Result")

MIN_OPEN_SEGMENTS = 10

REPORT_SECONDS = 5.0
"""How long a broker whose last log directory has failed tries to report it before it ends."""


class Server:
    """One broker. `start` returns when it serves; `stop` returns when all data are on disk."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk | None = None,
        clock: Clock | None = None,
        network: Network | None = None,
        coordination: Coordination | None = None,
    ) -> None:
        """The last two are for a cluster: connections to other brokers, and a ZooKeeper session."""
        self.config = config
        self.network, self.coordination = network, coordination
        self.member: Member | None = None
        self.missing: list[str] = []
        """Partitions of a cluster whose logs were in no log directory at the start."""
        self.vanished: dict[Partition, list[LogDirectory]] = {}
        """Those of them of which a log directory had records on the medium."""
        self.disk = disk or Disk()
        self.clock = clock or Clock()
        self.security = SecuredListeners(config, self.clock)
        self.listeners: list[Listener] = []
        self.failure: asyncio.Future[str] | None = None
        self.reporting: asyncio.Task[None] | None = None
        self.housekeeping: Housekeeping | None = None
        self.metadata_log: Metadata
        self.http: HttpServer | None = None

    async def start(self) -> None:
        """Open the logs, replay the metadata, then listen."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, BrokerLoop):
            raise TypeError(f"a Server runs on a BrokerLoop, not on a {type(loop).__name__}")
        self.failure = loop.create_future()
        if not self.config.zookeeper_connect:
            self.storage = self._open_storage()
            self.metadata_log = MetadataLog(StandaloneStore.open(self.storage, self.clock), loop)
            self._check_unknown_partitions()
            await take_bootstrap(self.config.log_directories()[0], self.metadata_log)
            await self._begin_epochs()
            await self._serve(loop)
            return
        member = self.member = await self._join(loop)
        try:
            self.storage = self._open_storage(member.cluster_id)
            self.metadata_log = member.metadata
            self._check_unknown_partitions()
            await self._serve(loop)
        except BaseException:
            await member.stop()
            raise

    async def _join(self, loop: BrokerLoop) -> Member:
        from ottla.broker.cluster.clustered_start import join, zookeeper

        coordination = self.coordination or zookeeper(self.config, loop)
        member = await self._unless_it_fails(
            join(self.config, coordination, self.disk, loop), loop
        )
        member.failed = self._fail
        return member

    def _fail(self, reason: str) -> None:
        """End the broker after a failure that it cannot survive."""
        if self.failure is not None and not self.failure.done():
            self.failure.set_result(reason)

    def give_up_start(self) -> None:
        """It was asked to stop: wait no longer for what a start may wait for without limit."""
        self._fail("it was asked to stop before it served")

    async def _unless_it_fails(
        self, work: Coroutine[Any, Any, Result], loop: asyncio.AbstractEventLoop
    ) -> Result:
        """Wait for others, however long they take. Raises StorageRefused with the reason if this
        broker has to end before; the work has ended then."""
        assert self.failure is not None
        task = loop.create_task(work)
        try:
            await asyncio.wait((task, self.failure), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waited_in_vain = not task.done()
            task.cancel()
            await asyncio.wait((task,))
        if waited_in_vain:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.info("giving up the start: %r", error)
            raise StorageRefused(self.failure.result())
        return await task

    def _open_storage(self, cluster_id: str | None = None) -> Storage:
        config = self.config
        return Storage.open(
            self.disk,
            self.clock,
            [str(path) for path in config.log_directories()],
            node_id=config.node_id,
            cluster_id=cluster_id,
            clustered=cluster_id is not None,
            open_segments_max=_open_segments_max(config.ottla_open_segments_max),
            forgotten=[each for each in config.ottla_forget_directories.split(",") if each],
            on_failure=lambda path, reason: log.error("log directory %s failed: %s", path, reason),
        )

    async def _serve(self, loop: BrokerLoop) -> None:
        config, member = self.config, self.member
        isr_changes: IsrChanges | None = None
        config.follow(MetadataImage.empty(), self.metadata_log.image, ())
        if member is not None:
            from ottla.broker.cluster.clustered_start import begin_isr_changes, connect_peers

            isr_changes = begin_isr_changes(config, loop)
        self.replicas = Replicas(
            config.node_id, self.storage, config.topic_log_config, config.ottla_acks_all_flush,
            member.incarnation if member is not None else None, isr_changes,
        )
        self.storage.on_failure = self._directory_failed
        self.storage.placement.is_cordoned = config.is_cordoned
        self.flusher, self.workers, self.cold_reads = Flusher(loop), Workers(loop), ColdReads(loop)
        self.checkpoints = Checkpoints(self.storage, loop)
        self.moving = Moving(self.storage, self.checkpoints, config, loop)
        self.broker = BrokerContext(
            config.node_id, config, self.clock, self.replicas, self.flusher, self.metadata_log,
            self.workers, self.cold_reads, self.moving, self.checkpoints, Alone(config.node_id),
        )
        following: list[Follower] = [self.replicas.follow]
        if member is not None:
            assert isr_changes is not None
            role = connect_peers(
                self.broker, member, isr_changes, self.network,
                lambda: self.security[config.inter_broker_listener()], loop,
            )
            following += [self.broker.histories.partitions.follow, role.reports.follow]
        self.broker.security = self.security
        self._authorize()
        if config.delegation_token_secret_key is not None:
            from ottla.broker.security.token_secrets import TokenSecrets

            self.broker.token_secrets = TokenSecrets(config.delegation_token_secret_key)
        self.coordinators = self.broker.coordinators = Coordinators(self.broker, loop)
        image = self.metadata_log.image
        self.broker.follow(MetadataImage.empty(), image, image.topics)
        if member is not None:
            self.missing = self._missing_logs(image)
        self._recover(image)
        for _ in self.replicas.follow(MetadataImage.empty(), image, image.topics):
            pass                        # no client is served yet
        self._put_strays_aside(image)
        self.storage.started = True
        # Settings first: partitions and coordinators depend on them.
        self.metadata_log.subscribe(config.follow)
        self.metadata_log.subscribe(self.broker.follow)
        self.metadata_log.subscribe(self._follow_with_listeners)
        for quotas in (self.broker.quotas, self.broker.connection_rates):
            quotas.follow(MetadataImage.empty(), image)
            self.metadata_log.subscribe(quotas.follow)
        for follow in following:
            self.metadata_log.subscribe(follow)
        try:
            await self._open_doors(loop)
        except BaseException:
            # Everything is recovered now: the next start need not do that again.
            await self.stop()
            raise
        # Clients reach the broker before its groups are loaded: 10,000 groups take 0.3 s.
        image = self.metadata_log.image
        self.metadata_log.subscribe(self.coordinators.follow)
        self.coordinators.follow(MetadataImage.empty(), image, image.topics.keys())
        self.housekeeping = Housekeeping(self.broker, self.storage, loop)
        if config.ottla_http_listener:
            await self._open_http(config.ottla_http_listener, loop)

    def _missing_logs(self, image: MetadataImage) -> list[str]:
        """The partitions with a replica here that no log directory has."""
        found = set().union(*(each.partitions for each in self.storage.directories))
        missing = []
        for key, topic_id, _ in self.replicas.wanted(image):
            if key not in found:
                missing.append(f"{key[0]}-{key[1]}")
                if homes := self.storage.placement.vanished(key, topic_id):
                    self.vanished[key] = homes
                    log.error(
                        "%s has no directory in %s, where it had records", missing[-1],
                        homes[0].path,
                    )
        return missing

    async def _register(self, member: Member, addresses: Sequence[tuple[str, str, int]]) -> None:
        held = await self._held_by_logs() if member.adopts else None
        await member.register(addresses, self._found_logs(self.metadata_log.image, held))

    def _found_logs(self, image: MetadataImage, held: Held | None) -> FoundLogs:
        """What this start has found in the log directories."""
        from ottla.broker.cluster.last_run import FoundLogs

        homes, directories = self.storage.homes, self.storage.directories
        node_id, begun = self.config.node_id, {*self.missing}
        wanted = {f"{key[0]}-{key[1]}": key for key, _, _ in self.replicas.wanted(image)}
        return FoundLogs(
            directories={each.directory_id: each.path for each in directories
                         if each.directory_id and each.offline is None},
            away=[each.directory_id for each in directories if each.directory_id and each.offline],
            missing=self.missing,
            homes={name: homes[key].path for name, key in wanted.items()
                   if key in homes and name not in begun},
            damaged=self._damaged_logs(image),
            offline={name for name, (topic, index) in wanted.items()
                     if node_id in (image.topics[topic].partitions[index].extra or NONE).offline},
            held=held,
        )

    async def _held_by_logs(self) -> Held:
        """What the logs have, for a broker that adopts a backup. Raises StorageRefused."""
        from ottla.broker.cluster.held_by_logs import held_by_logs

        for directory in self.storage.directories:
            if directory.offline is not None:
                raise StorageRefused(
                    f"{directory.offline}. This broker goes on with a restored ZooKeeper, and that"
                    " directory's logs may have leader epochs and producer ids which must not be"
                    " given again. Repair it, or if it is lost for good, take it out of log.dirs"
                )
        try:
            # All their headers are read, which takes minutes where there are terabytes.
            return await self.workers.run(partial(held_by_logs, self.disk, [*self.replicas]))
        except OSError as error:
            raise StorageRefused(
                f"the producer ids in the logs could not be read: {error}. Without them they would"
                " be given again"
            ) from error

    def _damaged_logs(self, image: MetadataImage) -> dict[str, bool]:
        """Those of several replicas whose logs end before damage, or are gone, and whether that was
        durable once. An only copy counts up to its damage."""
        found = {}
        for each in self.replicas:
            lost = each.log.damage is not None or (each.topic, each.index) in self.vanished
            copies = image.topics[each.topic].partitions[each.index].replicas
            if len(copies) > 1 and (lost or each.log.put_aside is not None):
                found[repr(each)] = lost
        return found

    def _recover(self, image: MetadataImage) -> None:
        threads = self.config.num_recovery_threads_per_data_dir
        began = self.clock.monotonic()
        recovered = recover(self.storage, self.replicas.wanted(image), threads)
        if recovered:
            log.info(
                "recovery: the last stop was not clean, logs checked: %d, in %.2f s",
                recovered, self.clock.monotonic() - began,
            )
        elif all(each.clean for each in self.storage.directories if each.offline is None):
            log.info("recovery: the last stop was clean, nothing had to be checked")
        else:
            log.info("recovery: no log had to be checked")

    async def _open_http(self, address: str, loop: BrokerLoop) -> None:
        from ottla.broker.http.monitor import Monitor
        from ottla.broker.http.server import HttpServer

        host, port = self.advertised(self.listeners[0])
        self.http = HttpServer(Monitor(self.broker, self.listeners, f"{host}:{port}", loop))
        try:
            await self.http.start(address)
        except OSError:
            await self.stop()
            raise
        log.info(
            "metrics, health and status: HTTP on %s:%d",
            address.rpartition(":")[0] or "*", self.http.port,
        )

    async def _begin_epochs(self) -> None:
        """Begin a new leader epoch of all partitions, as Kafka does at each start, clean or not.

        Consumers that have read records which a power failure removed detect it by this (KIP-320).
        """
        try:
            await self.metadata_log.decide(raise_leader_epochs)
        except StorageFailed as error:
            home = self.storage.homes[METADATA, 0]
            if home.offline is not None:
                raise
            # With a full disk the broker still has to serve, so that clients can free space.
            log.error("the leader epochs could not be raised at this start: %s", error)

    def _authorize(self) -> None:
        """Have every request checked by the authorizer, if there is one."""
        config = self.config
        if not config.authorizer_class_name:
            return
        from ottla.broker.security.authorizer import Authorizer

        authorizer = Authorizer(config.super_user_names, config.allow_everyone_if_no_acl_found)
        authorizer.follow(MetadataImage.empty(), self.metadata_log.image)
        self.metadata_log.subscribe(authorizer.follow)
        self.broker.authorizer = authorizer

    async def _open_doors(self, loop: BrokerLoop) -> None:
        metadata = self.metadata_log
        if isinstance(metadata, MetadataLog):
            await metadata.decide(finalise_features, default_levels())
        self._listen(loop)
        addresses = [(listener.name, *self.advertised(listener)) for listener in self.listeners]
        if isinstance(metadata, MetadataLog):
            await metadata.register_broker(self.config.node_id, addresses, self.config.broker_rack)
        elif self.member is not None:
            await self._unless_it_fails(self._register(self.member, addresses), loop)
            self.broker.producer_ids.keep_ahead()
        self._forget_cuts()

    def _forget_cuts(self) -> None:
        """Those who count on damaged logs know now of what starts have cut off, or not found. An
        only copy that is gone is missed at the next start, too."""
        for key, homes in self.vanished.items():
            for home in homes if key not in self.replicas.offline else ():
                home.recovery_points.pop(key, None)
        for partition in self.replicas:
            try:
                forget_cuts(partition.log)
            except OSError as error:
                log.error("the note about the cut of %r could not be removed: %s", partition, error)

    def _directory_failed(self, path: str, reason: str) -> None:
        """Keep serving from the other directories, unless none is left or the metadata's failed."""
        log.error("log directory %s is offline until a restart: %s", path, reason)
        self.broker.role.forget_run(path)
        self.replicas.note_failures()
        self.coordinators.let_go_of(self.replicas.offline)
        if all(directory.offline is not None for directory in self.storage.directories):
            self._fail_after_report(f"the last log directory has failed: {path}: {reason}")
        elif self.member is None and self.storage.homes[METADATA, 0].path == path:
            self._fail(f"the metadata's log directory has failed: {path}: {reason}")

    def _fail_after_report(self, reason: str) -> None:
        """End the broker; in a cluster once the others know of the failure. The run record may be
        there still, as a failed disk removes no file, and would vouch for what the disk has lost.
        """
        async def reported() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS):
                    await self.broker.role.failure_reported()
            self._fail(reason)

        self.reporting = asyncio.get_running_loop().create_task(reported())

    def _check_unknown_partitions(self) -> None:
        """Refuse to start a new cluster where records of an older one exist."""
        unknown = self.storage.unclaimed()
        if unknown and self.metadata_log.image.offset == 0:
            topic, index = unknown[0]
            raise StorageRefused(
                f"log.dirs holds {len(unknown)} partitions ({topic}-{index} among them) but no"
                " metadata of them. Is a log directory missing or not mounted? To begin anew,"
                " move them away."
            )

    def _put_strays_aside(self, image: MetadataImage) -> None:
        """Set aside partitions unknown to the metadata: a crash interrupted their deletion."""
        retention_ms = self.config.ottla_stray_retention_ms
        expire_strays(self.storage, retention_ms)
        topics = {topic.name: topic.topic_id for topic in image.topics.values()}
        forget_other_topics(self.storage, topics)
        try:
            unclaimed = self.storage.unclaimed()
            wanted = {key for key, _, _ in self.replicas.wanted(image)} if unclaimed else set()
            strays = put_strays_aside(self.storage, wanted)
        except OSError as error:
            log.error("a partition that belongs to no topic could not be put aside: %s", error)
            return
        if strays:
            kept = "for ever" if retention_ms < 0 else f"for {retention_ms} ms"
            log.warning(
                "%d directories of partitions belong to no topic, and are kept %s"
                " (ottla.stray.retention.ms): %s%s", len(strays), kept, ", ".join(strays[:10]),
                ", ..." * (len(strays) > 10),
            )

    def _listen(self, loop: BrokerLoop) -> None:
        from ottla.broker.api.records.fetch import FetchHandler
        from ottla.broker.api.records.produce import ProduceHandler
        from ottla.broker.api.records.transaction_gate import TransactionGate

        coordinators = self.coordinators
        gate = TransactionGate(
            self.broker, coordinators.check_batch, coordinators.add_batches, coordinators.verifier
        )
        produce_handler = ProduceHandler(self.broker, gate)
        limits = ConnectionLimits(self.config, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        fetch_handler = FetchHandler(
            self.broker, lambda: random.SystemRandom().randint(1, 2**31 - 1)
        )
        self._renew_security(self.metadata_log.image)
        self.security.introduce()
        for endpoint in self.config.endpoints():
            self.listeners.append(
                Listener(
                    endpoint.name, endpoint.host, endpoint.port,
                    self.broker, produce_handler, fetch_handler, limits, loop,
                    self.security[endpoint.name],
                )
            )

    def _follow_with_listeners(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str]
    ) -> None:
        if old.configs.get(("broker", str(self.config.node_id))) is not new.configs.get(
            ("broker", str(self.config.node_id))
        ):
            self._renew_security(new)
        if old.configs is not new.configs and self.listeners:
            self.listeners[0].limits.changed()

    def _renew_security(self, image: MetadataImage) -> bool:
        """Have new connections use the current settings and certificate files; whether they differ
        from those before."""
        try:
            changed = self.security.renew(self.config.security_texts(image))
        except SettingsError as error:
            log.error("the listeners keep their previous certificates and mechanisms: %s", error)
            return True
        for listener in self.listeners:
            listener.security = self.security[listener.name]
        self.security.warn()
        return changed

    def advertised(self, listener: Listener) -> tuple[str, int]:
        """The host and port advertised to clients of a listener."""
        return self.config.advertised(listener.name, listener.port)

    async def reload(self) -> None:
        """Read the properties again and apply those that may change at run time (SIGHUP).

        Each change and each refusal is logged; no error ends the broker.
        """
        config = self.config
        image = self.metadata_log.image
        try:
            found = config.reload(config.sources.read(), image)
        except (SettingsError, OSError) as error:
            log.error("reload: %s; all settings stay as they were", error)
            return
        for name, (old, new) in found.changed.items():
            if is_secret(name):
                log.info("reload: %s has a new value", name)
                continue
            text = "its default" if new is None else new
            if any(name in layer for layer in config.layers(image)[:-1]):
                # In a cluster that is so of min.insync.replicas from the beginning.
                log.warning(
                    "reload: %s is %s in the file now, but what was set with kafka-configs counts",
                    name, text,
                )
                continue
            log.info("reload: %s is %s now, it was %s", name, text, old or "its default")
        for name in found.refused:
            log.warning("reload: %s has changed and needs a restart", name)
        renewed = self._renew_security(image)       # the same files may hold new certificates
        if not (found.changed or found.refused or renewed):
            log.info("reload: nothing has changed")
        if found.changed:
            await in_slices(self.replicas.reconfigure(image))

    async def stop(self) -> None:
        """Hand over leadership, stop accepting, close the connections, write all data to disk."""
        role = self.broker.role
        await role.leave()
        role.stop_following()
        if self.http is not None:
            self.http.close()
        for listener in self.listeners:
            listener.stop_accepting()
        for listener in self.listeners:
            listener.close()
        for task in self.broker.creating.values():
            task.cancel()
        if self.housekeeping is not None:
            self.housekeeping.close()
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
        # Last: while the session lives no other broker can register with this id.
        await role.stop()


def _open_segments_max(wanted: int) -> int:
    """The limit on segments with open files: the setting, or less if ulimit -n is too low."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    allowed = max(MIN_OPEN_SEGMENTS, descriptors // 4)
    if wanted > allowed:
        log.warning(
            "ottla.open.segments.max=%d is reduced to %d: the process may have %d descriptors"
            " (ulimit -n)", wanted, allowed, descriptors,
        )
    return min(wanted, allowed)
