"""A broker's membership of a cluster, from its start to its shutdown.

`join` is called before the log directories are opened: ZooKeeper knows which cluster they must
belong to. `register` is called when the broker listens, and returns once the image has this
process: only then does it lead anything. The broker keeps serving when its session ends: it
continues under its epochs, reads the log as soon as it can and registers again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace

from ottla.broker.cluster.cluster_log import ClusterLog
from ottla.broker.cluster.controller import Controller
from ottla.broker.cluster.feature_levels import SUPPORTED_FEATURES, why_unsupported
from ottla.broker.cluster.last_run import FoundLogs, judge
from ottla.broker.cluster.metadata_checkpoint import MARK, furthest_mark, write_mark
from ottla.broker.cluster.metadata_log import NotController
from ottla.broker.cluster.recent_ends import SESSION_LASTS
from ottla.broker.peers.envelopes import Forwarding
from ottla.broker.settings.config import BrokerConfig
from ottla.log.files import checkpoints
from ottla.log.files.disk import Disk
from ottla.log.storage import run_record
from ottla.log.storage.log_directory import CLEAN_MARKER, META, StorageRefused, check_mode
from ottla.replication.cluster_store import CLUSTER_ID, ClusterStore, Mark
from ottla.replication.controller.brokers import controlled_shutdown
from ottla.replication.controller.elections import MIN_ISR
from ottla.replication.coordination import (
    Coordination,
    CoordinationError,
    Delete,
    NoNode,
    SessionState,
)
from ottla.replication.election import Election
from ottla.replication.metadata import Endpoint, MetadataImage
from ottla.replication.records import UnreadableMetadata
from ottla.replication.registration import (
    DuplicateBroker,
    Registration,
    UnreadableRegistration,
    path_of,
    register,
)
from ottla.wire.errors import ErrorCode, ProtocolError, RequestTimedOut
from ottla.wire.marks import reached
from ottla.wire.messages import BrokerHeartbeatRequest

log = logging.getLogger("ottla.member")

NO_TRANSACTION = -1
"""In a mark: the entry was read, and what ZooKeeper has in its place now is another one."""
REGISTER_AGAIN_SECONDS = 1.0
CATCH_UP_SECONDS = 1.0
HAND_OVER_SECONDS = 30.0
HAND_OVER_ASK_SECONDS = 0.5
HAND_OVER_AGAIN_SECONDS = 0.02
HEARTBEAT_VERSION = 0
LOSSES = {
    SessionState.SUSPENDED: "the connection to ZooKeeper is interrupted: clients are served, but"
    " until it is back nothing new is heard here of leaders, topics and settings",
    SessionState.LOST: "the session with ZooKeeper has ended: the others lead what this broker has"
    " led; it registers again once ZooKeeper answers",
}


class Member:
    """A broker's membership of a cluster. `failed` is called with the reason when the broker has
    to end."""

    def __init__(
        self,
        config: BrokerConfig,
        coordination: Coordination,
        disk: Disk,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.disk, self.directories = disk, [str(path) for path in config.log_directories()]
        self.mark: Mark | None = None
        """The last entry that this broker had certainly read."""
        self.config, self.coordination, self.loop = config, coordination, loop
        self.node_id, self.new_id = config.node_id, disk.new_id
        self.incarnation = disk.new_id()
        self.features = SUPPORTED_FEATURES
        self.store = ClusterStore(coordination)
        self.election = Election(coordination, self.node_id, self.incarnation)
        self.failed: Callable[[str], None] = lambda reason: log.error("%s", reason)
        self.forwarding: Forwarding | None = None
        """Requests to the controller, while that is another broker."""
        self.registration: Registration | None = None
        self.registering: asyncio.Task[None] | None = None
        self.removed = False
        """Whether the cluster has removed this process, which has to register in another epoch."""
        self.run_epoch = -1
        """The broker epoch in the run records of this process, -1 before there is one."""
        self.failed_directories: set[str] = set()
        """Log directories that have failed in this run."""
        self.away: tuple[str, ...] = ()
        """The ids of log directories that were missing when this run began."""
        self.ran_on: tuple[str, ...] = ()
        """The paths of those that were there."""
        self.session_changes: Counter[SessionState] = Counter()
        """How often the session with ZooKeeper has entered each state."""
        self.adopts = False
        """Whether the mark was removed, so as to go on with a restored ZooKeeper, or the cluster
        waits for what this broker's logs have."""
        self.was_seen = False
        """Whether the image has had this process at some time."""
        self.stopping = self.broken = False

    @classmethod
    async def join(
        cls,
        config: BrokerConfig,
        coordination: Coordination,
        disk: Disk,
        loop: asyncio.AbstractEventLoop,
    ) -> Member:
        """Connect, and read the metadata. Raises CoordinationError, ClusterRefused, StorageRefused
        or UnreadableMetadata."""
        member = cls(config, coordination, disk, loop)
        await coordination.start()
        try:
            await coordination.make_root()
            await member._join()
        except BaseException:
            await coordination.stop()
            raise
        return member

    async def _join(self) -> None:
        known = known_cluster(self.disk, self.directories)
        if known is not None and await self.coordination.exists(CLUSTER_ID) is None:
            path, cluster_id = known
            raise StorageRefused(
                f"{path} belongs to the cluster {cluster_id}, and ZooKeeper at"
                f" {self.config.zookeeper_connect} is empty: is it another one, or has it lost its"
                " data? Nothing was changed"
            )
        await self.store.prepare()
        self.cluster_id = await self.store.cluster_id(self.new_id())
        if known is not None and known[1] != self.cluster_id:
            raise StorageRefused(
                f"{known[0]} belongs to the cluster {known[1]}, ZooKeeper at"
                f" {self.config.zookeeper_connect} to {self.cluster_id}. Correct zookeeper.connect,"
                " or set log.dirs to this broker's own directory."
            )
        await self._check_time_travel()
        image = await self.store.load(self.cluster_id)
        if reason := why_unsupported(image, self.features):
            raise StorageRefused(reason)
        # One that the metadata do not know has none of their logs: its first start was killed.
        if known is not None and self.mark is None and image.last_known(self.node_id) is not None:
            log.warning(
                "%s is missing in the log directories: what ZooKeeper has is taken as it is, with"
                " leader epochs and producer ids above those of all brokers' logs", MARK)
            self.adopts = True
        if image.adopting is not None and self.node_id in image.adopting.awaited:
            self.adopts = True
        self.metadata = ClusterLog(self.store, image, self.node_id, self.new_id, self.loop)
        self.metadata.failed = self._fail
        self.metadata.gone_back = self._remember_all
        config = self.config
        seconds = float(config.leader_imbalance_check_interval_seconds)
        self.controller = Controller(
            self.coordination, self.metadata, self.election,
            seconds if config.auto_leader_rebalance_enable else None, self.loop,
        )
        own = config.topic_log_config(MetadataImage.empty(), "")
        self.controller.min_isr = own.min_insync_replicas
        counts = image.config_of("broker", "").get(MIN_ISR)
        if MIN_ISR in config.static and counts not in (None, str(own.min_insync_replicas)):
            log.warning(
                "%s=%d in this broker's file has no effect: the cluster's is %s, and is changed"
                " with kafka-configs --entity-type brokers --entity-default",
                MIN_ISR, own.min_insync_replicas, counts,
            )
        self.coordination.listen(self._session_changed)
        self.metadata.subscribe(self._follow)

    def _fail(self, reason: str) -> None:
        self.broken = True
        self.failed(reason)

    @property
    def broker_epoch(self) -> int:
        """The epoch that this process is registered under, according to the image; -1 for none."""
        broker = self.metadata.image.brokers.get(self.node_id)
        if broker is None or broker.incarnation != self.incarnation:
            return -1
        return broker.epoch

    async def register(
        self, endpoints: Iterable[tuple[str, str, int]], found: FoundLogs
    ) -> None:
        """Register this broker, with what its start has found; returns once the image has it.

        Raises StorageRefused if another broker has this id, or ZooKeeper does not answer.
        """
        known = self.metadata.decided.last_known(self.node_id)
        last = judge(self.disk, found, known, self.adopts)
        self.away, self.ran_on = last.away, tuple(found.directories.values())
        if last.stop == run_record.MACHINE:
            await self._outlast_others()
        self.registration = Registration(
            self.node_id, self.incarnation, tuple(Endpoint(*each) for each in endpoints),
            tuple(found.directories), self.config.broker_rack, last.stop, self.features, last.lost,
            found.held,
        )
        try:
            await self._register_once_free(self.registration)
        except (
            DuplicateBroker, UnreadableRegistration, UnreadableMetadata, CoordinationError
        ) as error:
            raise StorageRefused(str(error)) from error
        self.metadata.read_on()
        self.controller.look()
        await self.metadata.until(
            lambda image: image.is_registered(self.node_id, self.incarnation)
        )
        self.registration = replace(self.registration, held=None)
        with suppress(CoordinationError):
            await self._remember()

    async def _register_once_free(self, registration: Registration) -> None:
        """Register, and wait for the end of the session that a former process of this node has had
        on other log directories: a replaced disk looks like another broker.

        Raises DuplicateBroker if that is still there when each session of a dead process has
        ended.
        """
        timeout_ms = self.coordination.session_timeout_ms
        seconds = max(
            self.config.initial_broker_registration_timeout_ms, timeout_ms * SESSION_LASTS
        ) / 1000
        deadline = self.loop.time() + seconds
        waits = False
        while True:
            try:
                await register(self.coordination, registration)
                return
            except DuplicateBroker as error:
                reached("another process has the node id yet")
                if self.loop.time() >= deadline:
                    raise
                if not waits:
                    log.warning(
                        "%s. Waiting up to %.0f s for the end of its session, in case this broker"
                        " replaces it", error, seconds)
                waits = True
            await asyncio.sleep(REGISTER_AGAIN_SECONDS)

    async def _outlast_others(self) -> None:
        """Wait until the sessions of brokers have ended whose machines lost power with this one.

        Until then they count as alive, so that this broker would leave in-sync sets for the sake of
        replicas that are no better. Machines mostly take longer than that to boot.
        """
        timeout = self.coordination.session_timeout_ms / 1000 * SESSION_LASTS
        seconds = timeout - self.disk.seconds_since_boot()
        if seconds > 0:
            log.warning(
                "the machine has just started: this broker registers in %.0f s, when others that"
                " stopped with it are known to be gone", seconds)
            await asyncio.sleep(seconds)

    def _remember_run(self, epoch: int, clean: bool = False) -> None:
        """Write what the next start has to know of this run."""
        self.run_epoch = epoch
        flush = "true" if self.config.ottla_acks_all_flush else "false"
        record = run_record.RunRecord(epoch, self.disk.boot_id(), flush, clean, self.away)
        for path in self.ran_on:
            if path in self.failed_directories:
                continue                            # it would vouch for what the disk has lost
            try:
                if not clean or self.disk.exists(f"{path}/{CLEAN_MARKER}"):
                    run_record.write(self.disk, path, record)
            except OSError as error:
                log.warning("%s/%s could not be written: %s", path, run_record.RUN, error)

    def forget_run(self, path: str) -> None:
        """A log directory has failed: its contents may differ from what was written."""
        self.failed_directories.add(path)
        try:
            self.disk.unlink(f"{path}/{run_record.RUN}")
        except OSError as error:
            log.warning("%s/%s could not be removed: %s", path, run_record.RUN, error)

    def _follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str]
    ) -> None:
        """Check the image's registration of this process, and the levels of features."""
        if new.features is not old.features and (
            reason := why_unsupported(new, self.features)
        ):
            self._fail(reason)
        broker = new.brokers.get(self.node_id)
        if broker is not None and broker.incarnation == self.incarnation:
            self.was_seen = True
            if broker.epoch != self.run_epoch and self.registration is not None:
                self._remember_run(broker.epoch)
        elif self.was_seen and broker is not None:
            self._fail(
                f"another process is registered as node {self.node_id} on these log directories"
            )
        elif self._is_removed(old, new):
            self.was_seen = True
            reached("a live broker was declared gone")
            log.warning("the cluster has removed broker %d: it registers again", self.node_id)
            self._register_again(replace=True)

    def _is_removed(self, old: MetadataImage, new: MetadataImage) -> bool:
        """Whether the new image removes this process. It may have been registered in between: then
        only the former registrations show it."""
        if self.was_seen and self.node_id in old.brokers:
            return True
        former, known = new.former.get(self.node_id), old.former.get(self.node_id)
        return (
            former is not None and former.incarnation == self.incarnation
            and (known is None or known.epoch != former.epoch)
        )

    def _session_changed(self, state: SessionState) -> None:
        self.session_changes[state] += 1
        if self.stopping:
            return
        if state is not SessionState.CONNECTED:
            self.metadata.unsure = True
            log.warning("%s", LOSSES[state])
            if self.metadata.term is not None:
                self.controller.deposed()
            return
        reached("a broker reached ZooKeeper again")
        log.info("ZooKeeper is connected again")
        self.metadata.read_on()
        self._register_again(replace=False)

    def _register_again(self, replace: bool = False) -> None:
        # That may be noticed while this broker registers, as it reads on then.
        self.removed = self.removed or replace
        if self.registration is not None and self.registering is None and not self.stopping:
            self.registering = self.loop.create_task(self._registered_again())

    async def _registered_again(self) -> None:
        assert self.registration is not None
        try:
            await self._check_time_travel()
            await self.metadata.catch_up()
            await self._remember()
            await self._register_anew(self.registration)
            while self.removed:
                await self._register_anew(self.registration)
            self.controller.look()
        except CoordinationError as error:
            reached("registering again failed")
            log.warning("registering again failed: %s", error)
            self.loop.call_later(REGISTER_AGAIN_SECONDS, self._register_again)
        except (DuplicateBroker, UnreadableRegistration, UnreadableMetadata) as error:
            self._fail(str(error))
        finally:
            self.registering = None

    async def _register_anew(self, registration: Registration) -> None:
        """Register, with a new broker epoch if the cluster has removed this broker."""
        if self.removed:
            await self._forget_registration()
            self.removed = False
        await register(self.coordination, registration)

    async def _forget_registration(self) -> None:
        """Delete this broker's node to create one with a new broker epoch."""
        try:
            _, stat = await self.coordination.get(path_of(self.node_id))
            if stat.owner == self.coordination.session_id:
                await self.coordination.multi([Delete(path_of(self.node_id), stat.version)])
        except NoNode:
            pass

    async def _check_time_travel(self) -> None:
        """Raise GoneBack if ZooKeeper has gone back in time, as far as that can be seen from the
        marks that this broker has written."""
        if self.mark is None:
            self.mark = furthest_mark(self.disk, self.directories)
        if self.mark is not None:
            await self.store.check_mark(self.mark)

    async def _remember(self) -> None:
        """Write a mark of how far this broker has read."""
        mark = await self.store.mark(self.metadata.decided.entry)
        if mark is None or mark == self.mark:
            return
        self._write_mark(mark)

    def _remember_all(self) -> None:
        """Write a mark of what this broker has read although ZooKeeper no longer has it.

        So the next start is refused, too: the former mark may be older than the backup."""
        self._write_mark(Mark(self.metadata.decided.entry, NO_TRANSACTION))

    def _write_mark(self, mark: Mark) -> None:
        self.mark = mark
        for path in self.directories:
            try:
                write_mark(self.disk, path, mark)
            except OSError as error:
                log.warning("%s/%s could not be written: %s", path, MARK, error)

    async def caught_up(self) -> None:
        """Return once the image has everything decided before this call, or after a second."""
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self.metadata.catch_up()
        except (TimeoutError, CoordinationError, UnreadableMetadata) as error:
            log.info("catching up with the metadata: %r", error)

    async def leave(self) -> None:
        """Hand over leadership before this broker stops, within HAND_OVER_SECONDS."""
        if self.broker_epoch < 0 or self.broken:
            return
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                while not await self._may_stop():
                    await asyncio.sleep(HAND_OVER_AGAIN_SECONDS)
                await self.metadata.catch_up()
        except TimeoutError:
            log.warning(
                "leadership could not be handed over within %d s: no controller answers, or it does"
                " not reach ZooKeeper. Others lead once they notice that this broker is gone",
                HAND_OVER_SECONDS,
            )
        except (ProtocolError, CoordinationError, UnreadableMetadata) as error:
            log.warning("leadership could not be handed over: %r", error)

    async def _may_stop(self) -> bool:
        if self.metadata.is_controller:
            try:
                done: bool = await self.metadata.decide(
                    controlled_shutdown, self.node_id, self.broker_epoch
                )
            except NotController:
                return False                    # the next one is asked
            return done
        if self.forwarding is None:
            return True
        try:
            answer = await self.forwarding.ask(
                BrokerHeartbeatRequest(
                    broker_id=self.node_id, broker_epoch=self.broker_epoch,
                    current_metadata_offset=self.metadata.image.offset, want_fence=False,
                    want_shut_down=True,
                ),
                HEARTBEAT_VERSION,
                HAND_OVER_ASK_SECONDS,
            )
        except RequestTimedOut:
            return False                        # this broker may have become the controller
        if answer.error_code:
            raise ProtocolError("the controller refuses", ErrorCode(answer.error_code))
        return bool(answer.should_shut_down)

    async def stop(self) -> None:
        """End the session, and with it the registration and the controller's term."""
        if self.stopping:
            return
        self.stopping = True
        if self.registering is not None:
            self.registering.cancel()
        await self.controller.close()
        await self.metadata.settle()
        if not self.broken:
            with suppress(CoordinationError):
                await self._remember()
        if self.run_epoch >= 0:
            self._remember_run(self.run_epoch, clean=True)
        self.metadata.close()
        await self.coordination.stop()


def known_cluster(disk: Disk, directories: Iterable[str]) -> tuple[str, str] | None:
    """The first log directory that belongs to a cluster, and the cluster's id."""
    for path in directories:
        try:
            known = checkpoints.decode_properties(disk.read_bytes(f"{path}/{META}"))
        except (OSError, UnicodeDecodeError):
            continue                                # opening it will report what is wrong
        check_mode(path, known, clustered=True)
        if known.get("cluster.id"):
            return path, known["cluster.id"]
    return None
