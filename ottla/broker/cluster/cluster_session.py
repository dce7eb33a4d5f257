"""A broker's session with its cluster. It begins before the log directories are opened, since
ZooKeeper has the id of the cluster that they must belong to. It ends after everything else.

When the session with ZooKeeper ends, the broker keeps serving clients under the leader epochs that
it last read. It reads the metadata log again as soon as it can.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from ottla.broker.cluster.cluster_log import ClusterLog
from ottla.broker.cluster.feature_levels import SUPPORTED_FEATURES, why_unsupported
from ottla.broker.cluster.metadata_checkpoint import MARK, ReadMarks
from ottla.broker.settings.config import BrokerConfig
from ottla.log.files import checkpoints
from ottla.log.files.disk import Disk
from ottla.log.storage.log_directory import META, StorageRefused, check_mode
from ottla.replication.cluster_store import CLUSTER_ID, ClusterStore
from ottla.replication.controller.elections import MIN_ISR
from ottla.replication.coordination import (
    ConnectionLost,
    Coordination,
    CoordinationError,
    NotConnected,
    SessionState,
)
from ottla.replication.metadata import MetadataImage
from ottla.replication.records import UnreadableMetadata
from ottla.wire.marks import reached

log = logging.getLogger("ottla.member")

CATCH_UP_SECONDS = 1.0
AGAIN_SECONDS = 1.0
LOSSES = {
    SessionState.SUSPENDED: "the connection to ZooKeeper is interrupted: clients are served, but"
    " this broker learns of no new leaders, topics and settings until the connection is back",
    SessionState.LOST: "the session with ZooKeeper has ended, so other brokers now lead this"
    " broker's partitions; this broker registers again once ZooKeeper answers",
}


async def begin_session(
    config: BrokerConfig, coordination: Coordination, disk: Disk, failed: Callable[[str], None],
    loop: asyncio.AbstractEventLoop,
) -> ClusterSession:
    """Connect, and read the metadata. If the connection breaks, wait for the next one. `failed` is
    called with the reason when the broker has to end.

    Raises ClusterRefused, StorageRefused or UnreadableMetadata, and CoordinationError if ZooKeeper
    cannot be reached within zookeeper.connection.timeout.ms.
    """
    await coordination.start()
    try:
        seconds, lost = config.zookeeper_connection_timeout_ms / 1000, False
        deadline = loop.time() + seconds
        while True:
            try:
                await coordination.make_root()
                return await _joined(config, ClusterStore(coordination), disk, failed, loop)
            except (NotConnected, ConnectionLost) as error:
                if loop.time() >= deadline:
                    raise
                if not lost:
                    log.warning("%s: this broker keeps trying to read the cluster's metadata, for"
                                " up to %.0f s", error, seconds)
                lost = True
            await asyncio.sleep(AGAIN_SECONDS)
    except BaseException:
        await coordination.stop()
        raise


async def _joined(
    config: BrokerConfig, store: ClusterStore, disk: Disk, failed: Callable[[str], None],
    loop: asyncio.AbstractEventLoop,
) -> ClusterSession:
    directories = [str(path) for path in config.log_directories()]
    known, ensemble = known_cluster(disk, directories), config.zookeeper_connect
    if known is not None and await store.coordination.exists(CLUSTER_ID) is None:
        raise StorageRefused(
            f"{known[0]} belongs to the cluster {known[1]}, but ZooKeeper at {ensemble} is empty."
            " Correct zookeeper.connect, or restore ZooKeeper's data. Nothing was changed"
        )
    await store.prepare()
    cluster_id = await store.cluster_id(disk.new_id())
    if known is not None and known[1] != cluster_id:
        raise StorageRefused(
            f"{known[0]} belongs to the cluster {known[1]}, but ZooKeeper at {ensemble} belongs to"
            f" the cluster {cluster_id}. Correct zookeeper.connect, or set log.dirs to this"
            " broker's own directory."
        )
    marks = ReadMarks(disk, directories, store)
    await marks.check()
    image = await store.load(cluster_id)
    if reason := why_unsupported(image, SUPPORTED_FEATURES):
        raise StorageRefused(reason)
    # If the metadata have never contained this broker, its first start was killed before it
    # registered. Then it has no logs to report.
    accepts = known is not None and marks.mark is None and (
        image.last_known(config.node_id) is not None
    )
    if accepts:
        log.warning(
            "%s is missing in the log directories, so it could not be checked whether ZooKeeper's"
            " metadata are older than the logs. As a precaution, new leader epochs and producer"
            " ids will be higher than any in the brokers' logs, so that none is used twice", MARK)
    awaited = image.adopting is not None and config.node_id in image.adopting.awaited
    _warn_of_min_isr(config, image)
    return ClusterSession(
        config.node_id, cluster_id, disk, store, image, marks, accepts or awaited, failed, loop
    )


def _warn_of_min_isr(config: BrokerConfig, image: MetadataImage) -> None:
    own, counts = own_min_isr(config), image.config_of("broker", "").get(MIN_ISR)
    if MIN_ISR in config.static and counts not in (None, str(own)):
        log.warning(
            "%s=%d in this broker's file has no effect: the cluster's value is %s. Change the"
            " cluster's value with kafka-configs --entity-type brokers --entity-default",
            MIN_ISR, own, counts,
        )


def own_min_isr(config: BrokerConfig) -> int:
    """The value of min.insync.replicas in this broker's file."""
    return config.topic_log_config(MetadataImage.empty(), "").min_insync_replicas


class ClusterSession:
    """A broker's view of its cluster: ZooKeeper, and the metadata that are read from it."""

    def __init__(
        self, node_id: int, cluster_id: str, disk: Disk, store: ClusterStore, image: MetadataImage,
        marks: ReadMarks, adopts: bool, failed: Callable[[str], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.node_id, self.incarnation, self.cluster_id = node_id, disk.new_id(), cluster_id
        self.coordination, self.marks, self.failed = store.coordination, marks, failed
        self.features = SUPPORTED_FEATURES
        self.adopts = adopts
        """Whether this broker reports the highest producer id and leader epoch in its logs. It does
        if an operator has removed the metadata checkpoint to accept a restored ZooKeeper, or if the
        cluster waits for the report."""
        self.changes: Counter[SessionState] = Counter()
        """How often the session with ZooKeeper has entered each state."""
        self.stopping = self.broken = False
        self.metadata = ClusterLog(
            store, image, node_id, disk.new_id, self.fail, marks.remember_lost, loop
        )
        self.coordination.listen(self._session_changed)
        self.metadata.subscribe(self._follow)

    def fail(self, reason: str) -> None:
        """End the broker: it can no longer be a member of the cluster."""
        self.broken = True
        self.failed(reason)

    @property
    def broker_epoch(self) -> int:
        """The epoch under which this process is registered, according to the image; -1 for none."""
        broker = self.metadata.image.brokers.get(self.node_id)
        if broker is None or broker.incarnation != self.incarnation:
            return -1
        return broker.epoch

    def _session_changed(self, state: SessionState) -> None:
        self.changes[state] += 1
        if self.stopping:
            return
        if state is not SessionState.CONNECTED:
            self.metadata.unsure = True
            log.warning("%s", LOSSES[state])
            return
        reached("a broker reached ZooKeeper again")
        log.info("ZooKeeper is connected again")
        self.metadata.read_on()

    def _follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str]
    ) -> None:
        if new.features is not old.features and (reason := why_unsupported(new, self.features)):
            self.fail(reason)

    async def caught_up(self) -> None:
        """Wait until the image has all decisions made before this call, but at most one second."""
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                await self.metadata.catch_up()
        except (TimeoutError, CoordinationError, UnreadableMetadata) as error:
            log.info("the newest metadata could not be read, so this broker still uses older"
                     " metadata: %r", error)

    async def remember(self) -> None:
        """Write into the log directories how far this broker has read. Raises CoordinationError."""
        await self.marks.remember(self.metadata.decided.entry)

    async def stop(self) -> None:
        """End the session, unless `Member.stop` has begun to end it."""
        if not self.stopping:
            self.stopping = True
            await self.settle()
            await self.close()

    async def settle(self) -> None:
        """Wait for decisions in progress, and remember how far this broker has read."""
        await self.metadata.settle()
        if not self.broken:
            with suppress(CoordinationError):
                await self.remember()

    async def close(self) -> None:
        """End the session, and with it the registration and the controller's term."""
        self.metadata.close()
        await self.coordination.stop()


def known_cluster(disk: Disk, directories: Iterable[str]) -> tuple[str, str] | None:
    """The first log directory that belongs to a cluster, and the cluster's id; None if no directory
    does."""
    for path in directories:
        try:
            known = checkpoints.decode_properties(disk.read_bytes(f"{path}/{META}"))
        except (OSError, UnicodeDecodeError):
            continue                                # opening the directory reports what is wrong
        check_mode(path, known, clustered=True)
        if known.get("cluster.id"):
            return path, known["cluster.id"]
    return None
