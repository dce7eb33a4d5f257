"""`ottla cluster create` on a disk and a ZooKeeper in memory. Both may fail at any step."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

from ottla.broker.cluster.cluster_session import ClusterSession, begin_session
from ottla.broker.settings.config import BrokerConfig
from ottla.log.storage import member_marks
from ottla.log.storage.log_directory import StorageRefused
from ottla.log.storage.storage import Storage
from ottla.replication.cluster_store import CLUSTER_ID
from ottla.replication.metadata import (
    BrokerImage,
    BrokerRegistered,
    ConfigSet,
    Endpoint,
    EpochsRaised,
    FeatureSet,
    MetadataImage,
    MetadataRecord,
    PartitionState,
    ProducerIdsTaken,
    TopicCreated,
)
from ottla.replication.principals import (
    AccessRule,
    DelegationToken,
    QuotaSet,
    RuleSet,
    ScramCredential,
    ScramSet,
    TokenSet,
)
from ottla.replication.standalone import StandaloneStore
from ottla.tools.cli.cluster_create import Creation
from tests.fakes import FakeClock
from tests.log.faulty_disk import FaultyDisk
from tests.simulation.zookeeper import MemoryCoordination, ZooKeeperServer

NODE = 7
PATHS = ["/a", "/b"]
ZOOKEEPER = "zk:2181/ottla"
ALONE = PartitionState(NODE, 0, (NODE,), (NODE,))
RECORDS: list[MetadataRecord] = [
    BrokerRegistered(BrokerImage(NODE, 1, (Endpoint("PLAINTEXT", "h", 9092),), "r")),
    FeatureSet("group.version", 1), FeatureSet("transaction.version", 0),
    TopicCreated("old", b"o" * 16, (ALONE,)),
    EpochsRaised(3),
    TopicCreated("new", b"n" * 16, (ALONE, ALONE)),
    EpochsRaised(),
    ConfigSet("topic", "old", "retention.ms", "5"),
    ConfigSet("broker", str(NODE), "min.insync.replicas", "2"),
    ConfigSet("broker", str(NODE), "log.retention.ms", "9"),
    ConfigSet("broker", "", "message.max.bytes", "1000"),
    RuleSet(AccessRule(2, 3, "t", "User:u", "*", 3, 3), True),
    ScramSet("u", 1, ScramCredential(4096, b"s", b"k", b"v")),
    QuotaSet((("user", None),), "producer_byte_rate", 5.0),
    TokenSet("id", DelegationToken("id", "User:u", "User:u", (), 1, 2, 3)),
    ProducerIdsTaken(3000),
]


def settings(address: str = ZOOKEEPER) -> BrokerConfig:
    given = {
        "node.id": NODE, "log.dirs": ",".join(PATHS), "listeners": "PLAINTEXT://h:9092",
        "zookeeper.connect": address,
    }
    return BrokerConfig.load(None, [f"{name}={value}" for name, value in given.items()])


def open_alone(disk: FaultyDisk) -> tuple[Storage, StandaloneStore]:
    """Open what a standalone broker opens at its start. Raises StorageRefused."""
    storage = Storage.open(disk, FakeClock(), PATHS, node_id=NODE)
    return storage, StandaloneStore.open(storage, FakeClock())


def standalone(seed: int = 0, records: list[MetadataRecord] = RECORDS) -> FaultyDisk:
    """The disk of a standalone broker that was stopped cleanly."""
    disk = FaultyDisk(seed)
    storage, store = open_alone(disk)
    image = store.load()
    for record in records:
        image = image.apply([record])
        store.append([record], image)
    storage.close()
    disk.sync_file_system("/")
    return disk


def alone(disk: FaultyDisk) -> MetadataImage | None:
    """The metadata with which a standalone broker would start now; None if its start would be
    refused."""
    try:
        return open_alone(copied(disk))[1].load()
    except StorageRefused:
        return None


def clustered(disk: FaultyDisk, server: ZooKeeperServer) -> tuple[ClusterSession, Storage] | None:
    """The session and the storage with which the broker would start in the cluster now; None if its
    start would be refused."""
    disk, zookeeper = copied(disk), copy_of(server)

    async def joined() -> tuple[ClusterSession, Storage] | None:
        failures: list[str] = []
        try:
            session = await begin_session(
                settings(), MemoryCoordination(zookeeper), disk, failures.append,
                asyncio.get_running_loop(),
            )
            return session, Storage.open(
                disk, FakeClock(), PATHS, node_id=NODE, cluster_id=session.cluster_id,
                clustered=True,
            )
        except StorageRefused:
            return None

    return asyncio.run(joined())


def copied(disk: FaultyDisk) -> FaultyDisk:
    """A copy of a disk; changes of the copy do not change the original."""
    new = FaultyDisk()
    new.names = {path: copy.deepcopy(inode) for path, inode in disk.names.items()}
    new.durable_names, new.boots = dict(new.names), disk.boots
    return new


def copy_of(server: ZooKeeperServer) -> ZooKeeperServer:
    """A copy of a server, with the same nodes and without sessions."""
    new = ZooKeeperServer()
    new.nodes, new.zxid = dict(server.nodes), server.zxid
    return new


def created(
    disk: FaultyDisk,
    coordination: MemoryCoordination,
    agreed: Callable[[], bool] = lambda: True,
    address: str = ZOOKEEPER,
    dry_run: bool = False,
) -> Creation:
    """Run the command. Raises the error that ends it."""
    directories = member_marks.open_stopped(disk, PATHS)
    creation = Creation(settings(address), disk, directories, dry_run)

    async def run() -> None:
        await coordination.start()
        try:
            await creation.run(coordination, agreed)
        finally:
            await coordination.stop()

    asyncio.run(run())
    return creation


def taken_over(server: ZooKeeperServer) -> bool:
    """Whether ZooKeeper has a cluster."""
    return CLUSTER_ID in server.nodes


class Breaking(MemoryCoordination):
    """A session whose connection breaks at its request number `at`. The server executes this
    request only if `executed` is set."""

    def __init__(self, server: ZooKeeperServer, at: int = 0, executed: bool = False) -> None:
        super().__init__(server)
        self.at, self.executed, self.asked = at, executed, 0
        self.before: Callable[[int], None] = lambda number: None
        """Called before each request."""

    def _ask(self, request: Callable[[int], Any], writes: bool = False) -> Any:
        self.asked += 1
        self.before(self.asked)
        if self.asked == self.at:
            if self.executed:
                request(self.session_id)
            self.cut()
        return super()._ask(request, writes)
