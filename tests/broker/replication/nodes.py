"""Brokers in one process that replicate partitions from one another. Their logs, Replicas, Fetchers
and ClientConnections, and the leader's side of Fetch, are the broker's own code. A test decides the
order of events: which node sees which image, which bytes arrive, and which process dies."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ottla.broker.api.records.fetch import FetchHandler
from ottla.broker.connection import ClientConnection
from ottla.broker.coordination.commits import when_committed
from ottla.broker.network.counts import Counts
from ottla.broker.network.transport import Transport
from ottla.broker.quotas.quotas import Quotas
from ottla.broker.security.client import Client
from ottla.broker.settings.config import BrokerConfig
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.storage.storage import Storage
from ottla.replication.controller.brokers import broker_registered, brokers_gone
from ottla.replication.controller.directories import assign_replicas
from ottla.replication.controller.elections import LogEnd, leaderless
from ottla.replication.controller.isr import alter_partitions
from ottla.replication.controller.partitions import elect_longest
from ottla.replication.fetch_settings import FetchSettings
from ottla.replication.fetcher import Fetcher
from ottla.replication.metadata import (
    BrokerImage,
    ConfigSet,
    Endpoint,
    MetadataImage,
    MetadataRecord,
    PartitionState,
    TopicCreated,
    topics_of,
)
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.wire.headers import RequestHeader, response_header_size
from ottla.wire.messages import (
    AlterPartitionRequest,
    AssignReplicasToDirsRequest,
    FetchRequest,
    FetchResponse,
)
from ottla.wire.records import Record, build_batch
from tests.simulation.loop import SimLoop, running
from tests.waiting import exhaust

TOPIC, TOPIC_ID = "t", b"\x07" * 16
RACKS = ("a", "b", "c", "c")
"""The racks of nodes 1, 2, 3 and 4."""
LAG_MS = 10_000


class TestDisk(Disk):
    """A disk that does not sync directories, because a kill of the process loses nothing that it
    wrote."""

    __test__ = False

    def sync_directory(self, path: str) -> None:
        """Do nothing: the page cache survives a kill."""


@dataclass
class Time:
    """The clock of all nodes, in place of the simulation's World."""

    now: float = 100.0
    turned: object = None

    def spent(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.now * 1000)


def connected(node: Node, name: str) -> tuple[socket.socket, ClientConnection]:
    """Connect to a node; returns the test's end of the connection and the node's end."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    client = Client("127.0.0.1", "PLAINTEXT", name, None)
    with running(node.loop):
        return near, ClientConnection(node.loop, node.listener, Transport(far), client)


class Link:
    """A fetcher's connection to a leader."""

    def __init__(self, follower: Node, leader: Node, fetcher: Fetcher) -> None:
        self.leader, self.fetcher = leader, fetcher
        self.near, self.connection = connected(leader, f"{follower.node_id}")
        leader.links.append(self)
        self.held = b""
        fetcher.reset()

    def ask(self) -> bool:
        """Send the fetcher's next request; returns False if there is none."""
        request = self.fetcher.plan.request()
        if request is None:
            return False
        self.near.send(request)
        self.leader.turn()
        return True

    def receive(self, size: int = 1 << 20) -> int:
        """Receive at most `size` bytes of what the leader has sent; returns how many have
        arrived."""
        self.leader.turn()
        try:
            data = self.near.recv(size)
        except BlockingIOError:
            return 0
        if not data:
            raise ConnectionError("the leader has closed the connection")
        self.held += data
        self.held = self.held[self.fetcher.feed(self.held) :]
        return len(data)

    def close(self) -> None:
        self.near.close()


class Reader:
    """A consumer's connection to one node."""

    def __init__(self, node: Node, rack: str = "", version: int = 12) -> None:
        self.node, self.rack, self.version = node, rack, version
        self.near, self.connection = connected(node, "reader")
        node.links.append(self)

    def ask(
        self, offset: int, *, epoch: int = -1, wait_ms: int = 0, committed: bool = False,
        last_epoch: int = -1, session: tuple[int, int] = (0, -1), named: bool = True,
    ) -> None:
        """Send a fetch of the first partition. If `named` is false, the request names no partition:
        the fetch session knows it already."""
        made = FetchRequest.Topic
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, isolation_level=int(committed),
            session_id=session[0], session_epoch=session[1], rack_id=self.rack,
            topics=[made(topic=TOPIC, partitions=[made.Partition(
                partition=0, fetch_offset=offset, current_leader_epoch=epoch,
                last_fetched_epoch=last_epoch, partition_max_bytes=1 << 20,
            )])] if named else [],
        )
        header = RequestHeader(request.API_KEY, self.version, 1, "reader").encode()
        body = header + request.encode(self.version)
        self.near.send(len(body).to_bytes(4, "big") + body)
        self.node.turn()

    def response(self) -> FetchResponse | None:
        """The answer to the fetch; None if there is none yet."""
        self.node.turn()
        try:
            data = self.near.recv(1 << 20)
        except BlockingIOError:
            return None
        head = response_header_size(FetchRequest.API_KEY, self.version, data[4:])
        response: FetchResponse = FetchResponse.decode(data[4 + head :], self.version)
        return response

    def answer(self) -> Any:
        """The partition's part of the answer; None if there is no answer yet."""
        response = self.response()
        return None if response is None else response.responses[0].partitions[0]

    def fetch(self, offset: int, **fields: Any) -> Any:
        """Send a fetch that is answered at once; returns the partition's part of the answer."""
        self.ask(offset, **fields)
        return self.answer()

    def close(self) -> None:
        self.near.close()


@dataclass
class Side:
    """The ClusterSide of one node."""

    lag_ms: int = LAG_MS
    image: MetadataImage = field(default_factory=MetadataImage.empty)
    due: dict[Partition, None] = field(default_factory=dict)
    flushes: dict[Partition, None] = field(default_factory=dict)
    synced_logs: dict[Partition, None] = field(default_factory=dict)
    doubts: list[tuple[Partition, int]] = field(default_factory=list)
    fetchers: dict[int, Fetcher] = field(default_factory=dict)

    def follow(self, image: MetadataImage) -> None:
        self.image = image

    def broker_epoch_of(self, node_id: int) -> int:
        broker = self.image.brokers.get(node_id)
        return -1 if broker is None else broker.epoch

    def isr_due(self, partition: Partition) -> None:
        self.due[partition] = None

    def flush(self, partition: Partition) -> None:
        self.flushes[partition] = None

    def synced(self, partition: Partition) -> None:
        self.synced_logs[partition] = None

    def start_moved(self, partition: Partition) -> None:
        for fetcher in self.fetchers.values():
            fetcher.plan.tell(partition)

    def keep_start(self, partition: Partition) -> None:
        partition.start_kept(partition.log.log_start_offset)
        self.start_moved(partition)

    def doubted(self, partition: Partition, offset: int) -> None:
        self.doubts.append((partition, offset))


class Node:
    """One process of a broker, from its start to its death."""

    leader_throttle: Any = None

    def __init__(
        self, time: Time, node_id: int, path: Path, incarnation: str, config: LogConfig,
        wait_ms: int = 0, selector: str | None = None,
    ) -> None:
        self.wait_ms = wait_ms
        told = {} if selector is None else {"replica.selector.class": selector}
        self.redirects = BrokerConfig(told).redirects_consumers
        self.node_id, self.incarnation, self.image = node_id, incarnation, MetadataImage.empty()
        self.loop = SimLoop(time)  # type: ignore[arg-type]
        self.side, self.links = Side(), list[Link | Reader]()
        self.storage = Storage.open(
            TestDisk(), self.loop.poller.clock, [str(path)], node_id=node_id
        )
        self.replicas = Replicas(
            node_id, self.storage, lambda image, topic: config, True, incarnation, self.side,
            self.roles_changed,
        )
        self.storage.started = True
        broker: Any = SimpleNamespace(
            image=self.image, metadata_log=self, replicas=self.replicas, authorizer=None,
            role=SimpleNamespace(leader_throttle=self.leader_throttle), request_elements_max=50_000,
            doubted=SimpleNamespace(doubt=lambda *_: None, doubt_file=None), cold_reads=None,
            clock=self.loop.poller.clock, counts=Counts(), quotas=Quotas(self.loop.poller.clock),
            config=SimpleNamespace(
                fetch_max_bytes=1 << 20, max_incremental_fetch_session_cache_slots=10,
                redirects_consumers=self.redirects, broker_rack=RACKS[node_id - 1],
            ),
        )
        self.sessions, self.broker = 0, broker
        handler = FetchHandler(broker, self.session_id)
        self.listener = SimpleNamespace(
            broker=broker, produce_handler=None, fetch_handler=handler, frame_size_max=1 << 20,
            closed=lambda connection: None, refused=self.refused,
        )
        self.fetchers: dict[int, Fetcher] = {}
        self.cut: dict[Partition, None] = {}
        self.side.fetchers = self.fetchers
        self.connections: dict[int, Link] = {}

    def session_id(self) -> int:
        self.sessions += 1
        return self.sessions

    def refused(self, connection: object, error: Exception) -> None:
        raise AssertionError("a leader refuses its follower's bytes") from error

    def follow(self, image: MetadataImage, topics: Collection[str]) -> None:
        for _ in self.replicas.follow(self.image, image, topics):
            pass
        self.image = self.broker.image = image
        for fetcher in self.fetchers.values():
            fetcher.plan.broker_epoch = self.side.broker_epoch_of(self.node_id)

    def roles_changed(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            for fetcher in self.fetchers.values():
                fetcher.plan.drop(partition)
            if partition.role.following:
                source = partition.leader_id
                if source not in self.fetchers:
                    self.fetchers[source] = Fetcher(
                        self.node_id, source, self.loop.poller.clock,
                        FetchSettings(
                            wait_ms_max=self.wait_ms, partition_size_max=300,
                            tells_high_watermark=self.redirects,
                        ), self.cut,
                    )
                self.fetchers[source].plan.follow(partition)

    def partition(self, index: int = 0) -> Partition | None:
        return self.replicas.partition(TOPIC, index)

    def turn(self) -> None:
        with running(None):         # the test's thread runs no loop before and after
            self.loop.turn()
        self.loop.world.turned = None

    def checkpoint(self) -> None:
        """Write the checkpoints, as housekeeping does. Then resume fetching the partitions that
        were truncated."""
        self.storage.checkpoint(
            [((TOPIC, each.index), each.high_watermark) for each in self.replicas]
        )
        cut = list(self.cut)
        for fetcher in self.fetchers.values():
            fetcher.plan.checkpointed(cut)

    def kill(self) -> None:
        """Kill the process. What it wrote stays in the page cache."""
        for link in (*self.links, *self.connections.values()):
            link.close()
        for directory in self.storage.directories:
            directory.close()
        self.loop.kill()
        self.loop.close()


class NodeCluster:
    """Nodes, the metadata log, and a controller that never fails."""

    def __init__(
        self, path: Path, nodes: int = 3, partitions: int = 1, min_isr: int = 1, wait_ms: int = 0,
        selector: str | None = None, **config: int,
    ) -> None:
        """`wait_ms` is how long followers' fetches wait for records, `selector` is
        replica.selector.class."""
        self.time, self.path, self.wait_ms, self.selector = Time(), path, wait_ms, selector
        self.config = LogConfig(min_insync_replicas=min_isr, **config)
        self.images = [MetadataImage.empty("c")]
        self.changed: list[set[str]] = [set()]
        self.seen = dict.fromkeys(range(1, nodes + 1), 0)
        self.nodes: dict[int, Node] = {}
        self.starts, self.min_isr = 0, min_isr
        self.stops: dict[int, str] = {}
        self.acked: list[tuple[int, int, bytes]] = []
        self.written = 0
        for node_id in self.seen:
            self.start(node_id)
        replicas = tuple(self.seen)
        self.decide([ConfigSet("broker", "", "min.insync.replicas", str(min_isr))])
        states = (PartitionState(1, 0, replicas, replicas),) * partitions
        self.decide([TopicCreated(TOPIC, TOPIC_ID, states)])
        for node_id in self.seen:
            self.catch_up(node_id)

    @property
    def image(self) -> MetadataImage:
        return self.images[-1]

    def decide(self, records: Iterable[MetadataRecord]) -> None:
        records = list(records)
        if records:
            self.images.append(self.image.apply(records))
            self.changed.append(topics_of(records))

    # Brokers

    def start(self, node_id: int, stop: str = "") -> None:
        """Start a process: it reads the metadata log, then registers under a new broker epoch.
        `stop` is how the last run ended; the default is "machine" after `cut_power`, and "crash"
        otherwise."""
        self.starts += 1
        incarnation = f"{node_id}-{self.starts}"
        self.gone(node_id)
        node = Node(
            self.time, node_id, self.path / str(node_id), incarnation, self.config, self.wait_ms,
            self.selector,
        )
        node.follow(self.image, self.image.topics)
        self.nodes[node_id], self.seen[node_id] = node, len(self.images) - 1
        broker = self.registration(node_id, incarnation)
        stop = stop or self.stops.pop(node_id, "crash")
        self.decide(broker_registered(self.image, broker, stop).records)

    def registration(self, node_id: int, incarnation: str) -> BrokerImage:
        """The registration of a node under a new broker epoch."""
        address = Endpoint("PLAINTEXT", "127.0.0.1", 9090 + node_id)
        return BrokerImage(node_id, self.starts, (address,), RACKS[node_id - 1], incarnation)

    def cut_power(self, node_id: int) -> None:
        """A node's machine loses power. The node's logs lose what was not flushed."""
        for partition in self.nodes[node_id].replicas:
            flushed = max(partition.log.recovery_point, partition.log.log_start_offset)
            if flushed < partition.log.log_end_offset:
                partition.log.truncate_to(flushed)
        self.nodes[node_id].checkpoint()
        self.kill(node_id)
        self.stops[node_id] = "machine"

    def elect_longest(self) -> None:
        """The controller asks all live replicas of leaderless partitions for the ends of their
        logs, and elects the replica with the longest log."""
        asked = []
        for topic, index, nodes, unclean in leaderless(self.image, otherwise=False):
            ends = {}
            for node in nodes:
                partition = self.nodes[node].partition(index) if node in self.nodes else None
                if partition is not None:
                    log = partition.log
                    epoch = self.image.brokers[node].epoch
                    ends[node] = LogEnd(epoch, log.latest_epoch, log.log_end_offset)
            asked.append((topic, index, ends, unclean))
        self.decide(elect_longest(self.image, asked).records)

    def kill(self, node_id: int) -> None:
        self.nodes.pop(node_id).kill()
        for node in self.nodes.values():
            link = node.connections.pop(node_id, None)
            if link is not None:
                link.close()

    def stop(self, node_id: int) -> None:
        """Stop a node cleanly. The other nodes learn of this only through `gone`."""
        node = self.nodes[node_id]
        node.storage.close({
            (TOPIC, each.index): each.high_watermark for each in node.replicas
        })
        self.kill(node_id)

    def gone(self, node_id: int) -> None:
        """The controller notices that a process is dead."""
        broker = self.image.brokers.get(node_id)
        if broker is not None:
            self.decide(brokers_gone(self.image, {node_id: broker.epoch}).records)

    def register_again(self, node_id: int) -> None:
        """A process loses its ZooKeeper session, begins another one, and registers under a new
        broker epoch."""
        self.gone(node_id)
        self.starts += 1
        node = self.nodes[node_id]
        broker = self.registration(node_id, node.incarnation)
        self.decide(broker_registered(self.image, broker).records)

    # Metadata

    def see(self, node_id: int) -> bool:
        """A node reads the next metadata entry; returns whether there was one."""
        at = self.seen[node_id] + 1
        if at == len(self.images):
            return False
        self.nodes[node_id].follow(self.images[at], self.changed[at])
        self.seen[node_id] = at
        return True

    def catch_up(self, node_id: int) -> None:
        exhaust(lambda: self.see(node_id))

    def propose(self, node_id: int, lost: bool = False) -> None:
        """A node proposes changes of in-sync sets. With `lost`, the controller's answer does not
        reach it."""
        node = self.nodes[node_id]
        made = AlterPartitionRequest.Topic
        epoch = node.side.broker_epoch_of(node_id)
        for partition in node.replicas:
            isr = partition.propose_isr(node_id, epoch)
            if isr is None:
                continue
            row = made.Partition(
                partition_index=partition.index, leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                new_isr_with_epochs=[
                    made.Partition.NewIsrWithEpoch(broker_id=each, broker_epoch=of)
                    for each, of in isr
                ],
            )
            registered = self.image.brokers.get(node_id)
            if registered is None or registered.epoch != epoch:
                continue
            decision = alter_partitions(self.image, AlterPartitionRequest(
                broker_id=node_id, broker_epoch=epoch,
                topics=[made(topic_id=TOPIC_ID, partitions=[row])],
            ))
            self.decide(decision.records)
            code = decision.result.topics[0].partitions[0].error_code
            if code == 107 and not lost:
                partition.proposal_failed()

    def report(self, node_id: int, directory: bytes) -> None:
        """A node reports where its replica of the first partition is (AssignReplicasToDirs)."""
        made = AssignReplicasToDirsRequest.Directory
        self.decide(assign_replicas(self.image, AssignReplicasToDirsRequest(
            broker_id=node_id, broker_epoch=self.image.brokers[node_id].epoch,
            directories=[made(id=directory, topics=[made.Topic(
                topic_id=TOPIC_ID, partitions=[made.Topic.Partition(partition_index=0)]
            )])],
        )).records)

    # Records

    def append(self, node_id: int, index: int = 0, padding: int = 0) -> bool:
        """Produce one record with acks=all; returns whether the node accepts it."""
        partition = self.nodes[node_id].partition(index)
        if partition is None or not partition.led_here or partition.role.under_min_isr:
            return False
        self.written += 1
        value = b"%d" % self.written + b"." * padding
        made = build_batch([Record(timestamp=1, key=None, value=value)])
        offset = partition.append_bytes(made)

        def committed(error: Exception | None) -> None:
            if error is None:
                self.acked.append((index, offset, value))

        when_committed(partition, committed)
        self.flush(node_id)
        return True

    def flush(self, node_id: int) -> None:
        node = self.nodes[node_id]
        wanted, node.side.flushes = node.side.flushes, {}
        for partition in node.replicas:
            if partition.wants_flush() or partition in wanted:
                partition.log.flush()
                partition.flushed(partition.log.recovery_point)
        for partition in node.side.synced_logs:
            for fetcher in node.fetchers.values():
                fetcher.plan.synced(partition)
        node.side.synced_logs = {}

    def link(self, follower: int, leader: int) -> Link | None:
        """The connection on which one node fetches from another; it is made if it is missing. None
        if the leader's process is dead, or the follower does not fetch from it."""
        node, source = self.nodes[follower], self.nodes.get(leader)
        if source is None or leader not in node.fetchers:
            return None
        if leader not in node.connections:
            node.connections[leader] = Link(node, source, node.fetchers[leader])
        node.fetchers[leader].plan.broker_epoch = node.side.broker_epoch_of(follower)
        return node.connections[leader]

    def fetch(self, follower: int, leader: int, bytes_max: int = 1 << 20) -> bool:
        """Send a fetch unless one is outstanding, and receive at most `bytes_max` bytes of the
        answer; returns whether anything has arrived."""
        link = self.link(follower, leader)
        if link is None:
            return False
        if not link.fetcher.plan.outstanding:
            link.ask()
        got = link.receive(bytes_max)
        return bool(got)

    def cut_link(self, follower: int, leader: int) -> None:
        link = self.nodes[follower].connections.pop(leader, None)
        if link is not None:
            link.close()

    def settle(self) -> None:
        """Let time pass in 40 steps and process everything that is due. After them, the nodes are
        at rest."""
        for _ in range(40):
            self.time.now += 0.3
            for node_id in list(self.nodes):
                self.catch_up(node_id)
                if any(fetcher.plan.cut for fetcher in self.nodes[node_id].fetchers.values()):
                    self.nodes[node_id].checkpoint()
                for leader in list(self.nodes):
                    for _ in range(3):
                        self.fetch(node_id, leader)
                self.flush(node_id)
            for node_id in list(self.nodes):
                self.propose(node_id)
            self.elect_longest()

    def close(self) -> None:
        for node_id in list(self.nodes):
            self.kill(node_id)


def records_of(cluster: NodeCluster, node_id: int, index: int = 0) -> bytes:
    partition = cluster.nodes[node_id].partition(index)
    assert partition is not None
    data, at = b"", partition.log.log_start_offset
    while at < partition.log.log_end_offset:
        segment = [each for each in partition.log.segments if each.base_offset <= at][-1]
        data += partition.log.read_bytes(at, 1 << 30)
        at = segment.end_offset
    return data


def elected(state: PartitionState, leader: int) -> PartitionState:
    """The state of a partition after the election of this leader."""
    return state._replace(
        leader=leader, leader_epoch=state.leader_epoch + 1,
        partition_epoch=state.partition_epoch + 1,
    )
