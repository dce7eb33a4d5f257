"""`ottla cluster create`: a standalone broker becomes the first broker of a cluster, in place.

No record is copied. The broker must be stopped, and its log directories are locked meanwhile. The
steps are:

1. A snapshot of the metadata is written to ZooKeeper, where nothing reads it yet.
2. The log directories are marked as unfinished. From then on, no broker can start on them.
3. One ZooKeeper transaction makes the snapshot the metadata of a new cluster. Other brokers may
   join the cluster from then on.
4. Each directory gets the files of a cluster's member. They record how the broker's last run ended,
   and which metadata entry the broker has read.
5. The former metadata log is renamed.
6. The directories are marked as a member's, so that the broker can start in the cluster.

An interruption before step 2 leaves the broker unchanged. After a later interruption, run the same
command again to continue.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from ottla.broker.cluster.clustered_start import zookeeper
from ottla.broker.cluster.metadata_checkpoint import write_mark
from ottla.broker.settings.config import BrokerConfig, SettingsError
from ottla.client.errors import ClientError
from ottla.log.files.disk import Disk
from ottla.log.storage import member_marks, run_record
from ottla.log.storage.log_directory import LogDirectory, StorageRefused
from ottla.replication.cluster_store import ClusterRefused, ClusterStore, Mark
from ottla.replication.coordination import (
    ConnectionLost,
    Coordination,
    CoordinationError,
    CoordinationRefused,
    NotConnected,
)
from ottla.replication.first_snapshot import (
    FIRST,
    NO_RUN,
    FirstSnapshot,
    Root,
    as_first_member,
)
from ottla.replication.metadata import BrokerImage, MetadataImage
from ottla.replication.records import UnreadableMetadata
from ottla.replication.standalone import TOPIC, read_stopped
from ottla.tools.cli.bootstrap import check_zookeeper
from ottla.tools.cli.output import confirm, done
from ottla.tools.usage import WrongUsage
from ottla.wire.wording import counted

METADATA = TOPIC, 0
REFUSALS = (StorageRefused, ClusterRefused, CoordinationError, UnreadableMetadata, SettingsError)


def create(options: Namespace) -> None:
    """`ottla cluster create`."""
    if options.source is None:
        raise WrongUsage("--from is required: give server.properties or a log directory")
    check_zookeeper(options.zookeeper)
    disk, source = Disk(), Path(options.source)
    overrides = []
    if source.is_dir():
        overrides, path = [f"log.dirs={source}"], None
    else:
        path = source
    try:
        config = BrokerConfig.load(path, overrides)
        address = options.zookeeper or config.zookeeper_connect
        if not address:
            raise WrongUsage("--zookeeper host:port/chroot is required")
        directories = member_marks.open_stopped(
            disk, [str(each.absolute()) for each in config.log_directories()]
        )
        try:
            node_id = node_of(config, directories)
            config = BrokerConfig.load(
                path, [*overrides, f"node.id={node_id}", f"zookeeper.connect={address}"]
            )
            creation = Creation(config, disk, directories, options.dry_run)
            asyncio.run(run(creation, options))
        finally:
            member_marks.close_all(directories)
    except REFUSALS as error:
        raise ClientError(str(error)) from error
    if creation.is_finished:
        print(
            f"nothing to do: broker {node_id} is already the first broker of cluster"
            f" {creation.cluster_id}", file=sys.stderr)
    else:
        done(options, f"made broker {node_id} the first broker of cluster {creation.cluster_id}")
    if not options.dry_run:
        print(f"start the broker with zookeeper.connect={address} and node.id={node_id} in its"
              " settings")


def node_of(config: BrokerConfig, directories: Sequence[LogDirectory]) -> str:
    """The broker's node.id, from its log directories. Raises ClientError if the settings file has
    another id."""
    known = directories[0].known_ids()
    recorded = known.get("node.id") or known["broker.id"]
    configured = {"node.id", "broker.id"} & config.static.keys()
    if config.sources.path is not None and configured and str(config.node_id) != recorded:
        raise ClientError(
            f"{config.sources.path} has node.id={config.node_id}, but {directories[0].path} belongs"
            f" to broker {recorded}"
        )
    return recorded


async def run(creation: Creation, options: Namespace) -> None:
    """Connects to ZooKeeper and creates the cluster."""
    # Discard kazoo's message about each failed attempt to connect; the last failure is raised.
    logging.getLogger("ottla.kazoo").addHandler(logging.NullHandler())
    coordination = zookeeper(creation.config, asyncio.get_running_loop())
    await coordination.start()
    try:
        await creation.run(coordination, lambda: ask(options, creation))
    finally:
        await coordination.stop()


def ask(options: Namespace, creation: Creation) -> bool:
    """Print what will be done, and ask for confirmation; returns whether to do it."""
    for line in creation.plan():
        print(line)
    where = creation.config.zookeeper_connect
    confirm(options, f"making broker {creation.config.node_id} the first of a cluster", where)
    return not options.dry_run


class Creation:
    """The creation of a cluster from a broker whose log directories the caller has locked."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        directories: Sequence[LogDirectory],
        dry_run: bool = False,
    ) -> None:
        self.dry_run = dry_run
        self.config, self.disk, self.directories = config, disk, directories
        self.cluster_id = directories[0].known_ids()["cluster.id"]
        self.is_finished = member_marks.is_finished(directories)
        """Whether an earlier run has done everything."""
        self.begun = None if self.is_finished else member_marks.begun(directories)
        """The ZooKeeper of an interrupted earlier run; None without such a run."""
        self.image: MetadataImage | None = None
        """The metadata to write, set by `_look`; None if ZooKeeper has the metadata already."""
        if self.begun not in (None, config.zookeeper_connect):
            raise StorageRefused(
                f"an earlier run used --zookeeper {self.begun}, and may have written the metadata"
                " there: use the same address"
            )

    async def run(self, coordination: Coordination, agreed: Callable[[], bool]) -> None:
        """Does the remaining steps, if `agreed` returns True. Raises the errors in REFUSALS, or
        OSError."""
        store = ClusterStore(coordination)
        first = FirstSnapshot(store, self.cluster_id)
        if self.is_finished:
            await self._require_cluster(first)
            return
        await self._look(first)
        if not agreed():
            return
        await self._look(first)                     # the user may have taken long to answer
        wanted = self.image is not None
        if self.image is not None:
            await coordination.make_root()
            await first.prepare(self.image)
            member_marks.begin(self.directories, self.config.zookeeper_connect)
        try:
            if wanted:
                await self._commit(first)
            # There is no mark if a later snapshot has replaced the first entry.
            mark = await store.mark(FIRST) or Mark(FIRST, 0)
        except (ConnectionLost, NotConnected) as error:
            raise ConnectionLost(
                f"{error}. It is not known whether ZooKeeper has the metadata: run this command"
                " again to continue"
            ) from error
        run = run_record.RunRecord(NO_RUN, self.disk.boot_id(), "true", clean=True)
        for directory in self.directories:
            write_mark(self.disk, directory.path, mark)
            run_record.write(self.disk, directory.path, run)
        for directory in self.directories:
            member_marks.put_aside(directory, METADATA)
        member_marks.finish(self.directories)

    async def _require_cluster(self, first: FirstSnapshot) -> None:
        """Raise ClusterRefused if ZooKeeper does not have this broker's cluster."""
        where = f"{self.directories[0].path} belongs to a broker of the cluster {self.cluster_id}"
        place = f"ZooKeeper at {self.config.zookeeper_connect}"
        try:
            root = await first.look()
        except ClusterRefused as error:
            raise ClusterRefused(
                f"{where}. {place} cannot be used: {error}. Nothing was changed"
            ) from error
        if root is not Root.TAKEN_OVER:
            raise ClusterRefused(f"{where}, but {place} has no cluster. Nothing was changed")

    async def _look(self, first: FirstSnapshot) -> None:
        """Finds out whether the metadata is in ZooKeeper already, and sets `image`."""
        where = f"ZooKeeper at {self.config.zookeeper_connect}"
        try:
            root = await first.look()
        except ClusterRefused as error:
            raise ClusterRefused(f"{where}: {error}. {await self._given_up()}") from error
        if root is Root.TAKEN_OVER:
            if self.begun is None:
                raise ClusterRefused(
                    f"{where} has the cluster {self.cluster_id}, to which this broker belongs, but"
                    " the broker's log directories are those of a standalone broker: are they an"
                    " old copy? Nothing was changed"
                )
            self.image = None
            return
        home = next((each for each in self.directories if METADATA in each.partitions), None)
        if home is None:
            raise ClusterRefused(
                f"{self.directories[0].path} has no metadata ({TOPIC}-0), and {where} has no"
                " cluster: has one of them lost its data?"
            )
        if member_marks.ASIDE in home.names:
            raise StorageRefused(
                f"{home.path}: {TOPIC}-0 cannot be renamed to {member_marks.ASIDE}, because that"
                f" name is taken: move the existing {member_marks.ASIDE} away"
            )
        self.image = self._as_member(read_stopped(home))

    def _as_member(self, image: MetadataImage) -> MetadataImage:
        node_id = self.config.node_id
        known = image.brokers.get(node_id)
        broker = BrokerImage(
            node_id, NO_RUN, known.endpoints if known is not None else (), self.config.broker_rack,
            self.disk.new_id(), tuple(each.directory_id for each in self.directories),
        )
        min_isr = self.config.topic_log_config(image, "").min_insync_replicas
        try:
            return as_first_member(image, broker, str(min_isr))
        except ValueError as error:
            raise UnreadableMetadata(str(error)) from error

    async def _given_up(self) -> str:
        """Called if ZooKeeper has another cluster at this path. If possible, makes the broker
        standalone again. Returns the end of the error message."""
        if self.begun is None:
            return "Nothing was changed"
        if any(member_marks.ASIDE in each.names for each in self.directories):
            return "An earlier run created this broker's cluster there: restore ZooKeeper's data"
        if self.dry_run:
            return "Without --dry-run, this command makes the broker standalone again"
        member_marks.take_back(self.directories)
        return "The broker is standalone again and can be started, as before"

    async def _commit(self, first: FirstSnapshot) -> None:
        self.begun = self.config.zookeeper_connect
        try:
            await first.commit()
        except CoordinationRefused as error:
            # Another client has written first, perhaps an earlier run of this command.
            await self._look(first)
            if self.image is not None:
                raise ClusterRefused(
                    f"another program changed ZooKeeper at {self.begun} while this command ran: run"
                    " this command again"
                ) from error

    def plan(self) -> list[str]:
        """Lines that describe the cluster to be created."""
        config, image = self.config, self.image
        paths = ", ".join(each.path for each in self.directories)
        lines = [
            f"broker {config.node_id} becomes the first broker of a cluster",
            f"  cluster id   {self.cluster_id}, as before",
            f"  ZooKeeper    {config.zookeeper_connect}",
            f"  directories  {paths}",
        ]
        if image is None:
            return [*lines, "  metadata     already in ZooKeeper: the remaining steps will be done"]
        partitions = sum(len(topic.partitions) for topic in image.topics.values())
        settings = sum(map(len, image.configs.values()))
        return [
            *lines,
            f"  metadata     {counted(len(image.topics), 'topic')} with"
            f" {counted(partitions, 'partition')}, {counted(settings, 'setting')},"
            f" {counted(len(image.rules), 'ACL')}, {counted(len(image.quotas), 'quota')},"
            f" {counted(len(image.credentials), 'SCRAM credential')},"
            f" {counted(len(image.tokens), 'delegation token')}",
        ]
