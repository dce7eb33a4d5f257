"""A follower copies everything from a real leader over a real connection, despite broken links and
deletions."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network.poller import BrokerLoop
from ottla.broker.peers.network import TcpNetwork
from ottla.broker.peers.peers import Peers
from ottla.broker.peers.replica_fetchers import ReplicaFetchers
from ottla.broker.settings.config import BrokerConfig
from ottla.broker.upkeep.checkpoint_writer import Checkpoints
from ottla.log.files.checkpoints import HIGH_WATERMARKS, LOG_STARTS
from ottla.log.files.clock import Clock
from ottla.log.files.disk import Disk
from ottla.log.partition.config import LogConfig
from ottla.log.storage.storage import Storage
from ottla.replication.metadata import BrokerImage, Endpoint, MetadataImage
from ottla.replication.partition import Partition
from ottla.replication.roles.assignment import assume
from ottla.replication.roles.follower_replica import FollowerReplica
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.replication.fakes import FakeClusterSide

LISTENER = "PLAINTEXT"
HERE, THERE = 1, 2
SECONDS = 20.0


class FullDisk(Disk):
    """A disk that takes no checkpoint below the path `full`."""

    full = "nowhere"

    def write_atomically(self, path: str, data: bytes) -> None:
        if path.startswith(self.full):
            raise OSError(errno.ENOSPC, "no room", path)
        super().write_atomically(path, data)


class Following:
    """Node 1, which follows, on the test's own loop. Node 2 leads, and is a complete broker."""

    def __init__(self, path: Path, leader: RunningBroker) -> None:
        self.leader, self.loop = leader, BrokerLoop()
        self.disk, paths = FullDisk(), [f"{path}/a", f"{path}/b"]
        self.storage = Storage.open(self.disk, Clock(), paths, node_id=HERE)
        self.port = leader.port
        self.run(self.begin())

    async def begin(self) -> None:
        peers = self.peers = Peers(HERE, self.image, LISTENER, TcpNetwork(), self.loop)
        config = BrokerConfig.load(None, ["node.id=1", "replica.fetch.backoff.ms=100"])
        self.checkpoints = Checkpoints(self.storage, self.loop)
        self.fetchers = ReplicaFetchers(config, peers, self.checkpoints)
        self.fetchers.follow(MetadataImage.empty(), self.image(), ())

    def image(self) -> MetadataImage:
        addresses = (Endpoint(LISTENER, "127.0.0.1", self.port),)
        return MetadataImage(brokers={
            HERE: BrokerImage(HERE, 11, ()), THERE: BrokerImage(THERE, 12, addresses),
        })

    def partition(self, topic: str) -> Partition:
        known = self.leader.server.metadata_log.image.topics[topic]
        log = self.storage.get_or_create(topic, 0, known.topic_id, LogConfig())
        made = Partition(topic, 0, known.topic_id, log, True, None, FakeClusterSide(), 0)
        epoch = self.leader.server.metadata_log.image.leader_epoch(known, known.partitions[0])
        assume(made, THERE, epoch, HERE, (THERE, HERE), (THERE,), 0)
        return made

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, SECONDS))

    def until(self, holds: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not holds():
                await asyncio.wait([self.loop.create_future()], timeout=0.01)

        self.run(wait())

    def close(self) -> None:
        async def end() -> None:
            self.fetchers.close()
            self.peers.close()

        self.run(end())
        self.checkpoints.close()
        self.storage.close({})
        self.loop.close()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path / "leader", node_id=THERE) as running:
        yield running


@pytest.fixture
def following(tmp_path: Path, leader: RunningBroker) -> Iterator[Following]:
    made = Following(tmp_path / "follower", leader)
    try:
        yield made
    finally:
        made.close()


def log_of(leader: RunningBroker, topic: str) -> Any:
    partition = leader.server.replicas.partition(topic, 0)
    assert partition is not None
    return partition.log


def same(leader: RunningBroker, partition: Partition) -> bool:
    log = log_of(leader, partition.topic)
    end: int = log.log_end_offset
    return end == partition.log.log_end_offset and bytes(
        log.read_bytes(0, 1 << 24)
    ) == bytes(partition.log.read_bytes(0, 1 << 24))


def create_shared(leader: RunningBroker, topic: str) -> None:
    """Create a topic on the leader, with a second replica on node 1."""
    with WireClient(leader.address) as client:
        create(client, topic)
    leader.call(share, leader, topic)


def share(leader: RunningBroker, topic: str) -> None:
    replicas = leader.server.replicas
    alone = replicas.partition(topic, 0)
    assert alone is not None
    made = Partition(topic, 0, alone.topic_id, alone.log, True, None, FakeClusterSide(), 0)
    assume(made, THERE, alone.leader_epoch, THERE, (THERE, HERE), (THERE,), 0)
    replicas.by_name[topic][0] = made


def fill(client: WireClient, topic: str, sizes: list[int]) -> None:
    for size in sizes:
        assert produce(client, topic, batch(b"v" * size)).error_code == 0


def test_a_follower_has_what_the_leader_has(leader: RunningBroker, following: Following) -> None:
    with WireClient(leader.address) as client:
        for topic in ("a", "b"):
            create_shared(leader, topic)
        fill(client, "a", [10, 70_000, 900_000, 3, 2_000_000 - 1_100_000])
        parts = [following.partition(topic) for topic in ("a", "b")]
        following.loop.call_soon(following.fetchers.changed, parts)
        following.until(lambda: same(leader, parts[0]))
        fill(client, "b", [5] * 20)
        fill(client, "a", [5])
        following.until(lambda: all(same(leader, part) for part in parts))


def test_a_fetch_that_waits_for_records_needs_no_timer(
    leader: RunningBroker, following: Following
) -> None:
    timers: list[Any] = []
    with WireClient(leader.address) as client:
        create_shared(leader, "a")
        part = following.partition("a")
        following.loop.call_soon(following.fetchers.changed, [part])
        fill(client, "a", [1])
        following.until(lambda: same(leader, part))
        call_later = following.loop.call_later

        def counted(delay: float, callback: Any, *arguments: Any) -> Any:
            if "FetchLink" in getattr(callback, "__qualname__", ""):
                timers.append(callback)
            return call_later(delay, callback, *arguments)

        following.loop.call_later = counted     # type: ignore[method-assign,assignment]
        for _ in range(3):
            fill(client, "a", [1])
            following.until(lambda: same(leader, part))
    assert timers == []


def test_a_broken_link_goes_on_where_it_was(leader: RunningBroker, following: Following) -> None:
    with WireClient(leader.address) as client:
        create_shared(leader, "a")
        fill(client, "a", [100] * 5)
        part = following.partition("a")
        following.loop.call_soon(following.fetchers.changed, [part])
        following.until(lambda: same(leader, part))
        for connection in list(leader.server.listeners[0].connections):
            if connection.client.client_id == "broker-1-fetcher":
                leader.call(connection.close)
        fill(client, "a", [100] * 5)
        following.until(lambda: same(leader, part))


def test_a_leader_that_is_away_is_tried_again(leader: RunningBroker, following: Following) -> None:
    with WireClient(leader.address) as client:
        create_shared(leader, "a")
        fill(client, "a", [100])
    part = following.partition("a")
    following.port = 1                          # nothing listens there
    following.loop.call_soon(following.fetchers.changed, [part])
    following.until(lambda: following.fetchers.sources[THERE].failures > 1)
    following.port = leader.port
    following.until(lambda: same(leader, part))


def test_what_is_led_here_or_gone_is_fetched_no_more(
    leader: RunningBroker, following: Following
) -> None:
    with WireClient(leader.address) as client:
        create_shared(leader, "a")
        create_shared(leader, "b")
        parts = [following.partition(topic) for topic in ("a", "b")]
        following.loop.call_soon(following.fetchers.changed, parts)
        fill(client, "a", [1])
        following.until(lambda: same(leader, parts[0]))
        assume(parts[0], HERE, parts[0].leader_epoch + 1, HERE, (THERE, HERE), (HERE,), 1)
        following.loop.call_soon(following.fetchers.changed, [parts[0]])
        fill(client, "a", [2])
        fill(client, "b", [2])
        following.until(lambda: same(leader, parts[1]))
        assert parts[0].log.log_end_offset == 1
        following.loop.call_soon(following.fetchers.changed, [parts[0]])
        assume(parts[1], -1, parts[1].leader_epoch + 1, HERE, (THERE, HERE), (THERE,), 1)
        following.loop.call_soon(following.fetchers.changed, [parts[1]])
        following.until(lambda: not following.fetchers.sources)


def test_a_full_log_directory_holds_up_what_was_cut_in_it_and_nothing_else(
    leader: RunningBroker, following: Following
) -> None:
    partitions = []
    for topic in ("t", "u"):
        create_shared(leader, topic)
        with WireClient(leader.address) as client:
            fill(client, topic, [100, 200])
        partitions.append(following.partition(topic))
    first, second = partitions
    homes = following.storage.homes
    assert homes["t", 0] is not homes["u", 0]
    following.disk.full = homes["t", 0].path

    async def repaired() -> None:
        for each in partitions:
            following.fetchers.repaired(each)

    following.run(repaired())
    following.until(lambda: same(leader, second))
    assert first.log.log_end_offset == 0
    following.disk.full = "nowhere"
    following.until(lambda: same(leader, first))


def test_a_cut_log_waits_for_its_checkpoint_whoever_leads_it_meanwhile(
    leader: RunningBroker, following: Following
) -> None:
    """The log may not grow again before its lower recovery point is on the disk. Otherwise new
    records would lie below the old recovery point, and be trusted after a power cut."""
    for topic in ("t", "u"):
        create_shared(leader, topic)
        with WireClient(leader.address) as client:
            fill(client, topic, [100, 200])
    cut, other = following.partition("t"), following.partition("u")
    home, epoch = following.storage.homes["t", 0], cut.leader_epoch
    assert home is not following.storage.homes["u", 0]
    following.disk.full = home.path

    async def cut_and_led_anew() -> None:
        following.fetchers.repaired(cut)
        for partition_epoch, leader_id in ((1, -1), (2, THERE)):
            assume(cut, leader_id, epoch, HERE, (THERE, HERE), (THERE,), partition_epoch)
            following.fetchers.changed([cut])
        following.fetchers.changed([other])

    following.run(cut_and_led_anew())
    following.until(lambda: same(leader, other))
    assert cut.log.log_end_offset == 0
    following.disk.full = "nowhere"
    following.until(lambda: same(leader, cut))


def test_after_a_cut_no_high_watermark_on_the_disk_is_above_it(
    leader: RunningBroker, following: Following
) -> None:
    """After a restart, that high watermark would cover the records that came instead, whether they
    are committed or not."""
    create_shared(leader, "t")
    with WireClient(leader.address) as client:
        fill(client, "t", [100, 200])
    part, storage = following.partition("t"), following.storage
    following.loop.call_soon(following.fetchers.changed, [part])
    following.until(lambda: part.high_watermark == 2)
    following.run(following.checkpoints.write([(("t", 0), 2)]))
    path = f"{storage.homes['t', 0].path}/{HIGH_WATERMARKS}"
    assert following.disk.read_bytes(path).endswith(b"\nt 0 2\n")

    async def cut() -> None:
        assert isinstance(part.role, FollowerReplica) and part.role.cut_to(part, 1)
        following.fetchers.repaired(part)

    following.run(cut())
    following.until(lambda: part.high_watermark == 2)
    assert following.disk.read_bytes(path).endswith(b"\nt 0 1\n")


def test_an_epoch_that_ends_without_records_is_dropped_without_a_word_of_truncation(
    leader: RunningBroker, following: Following, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ottla")
    create_shared(leader, "t")
    with WireClient(leader.address) as client:
        fill(client, "t", [100, 200])
        part, epoch = following.partition("t"), log_of(leader, "t").latest_epoch
        following.loop.call_soon(following.fetchers.changed, [part])
        following.until(lambda: part.high_watermark == 2)
        led = leader.server.replicas.partition("t", 0)
        assert led is not None
        leader.call(assume, led, THERE, epoch + 2, THERE, (THERE, HERE), (THERE,), 1)

        async def led_here_without_a_record() -> None:
            assume(part, HERE, epoch + 1, HERE, (THERE, HERE), (THERE, HERE), 1)
            assert part.log.latest_epoch == epoch + 1
            assume(part, THERE, epoch + 2, HERE, (THERE, HERE), (THERE,), 1)
            following.fetchers.changed([part])

        following.run(led_here_without_a_record())
        fill(client, "t", [300])
        following.until(lambda: same(leader, part) and part.log.log_end_offset == 3)
    assert part.log.end_offset_for_epoch(epoch + 1) == (epoch, 2)
    assert "truncated" not in caplog.text


def test_a_leader_hears_of_a_deletion_once_a_restart_of_the_follower_finds_it(
    leader: RunningBroker, following: Following
) -> None:
    """The leader answers DeleteRecords only then, because after kill -9 of all replicas any of them
    may lead."""
    create_shared(leader, "t")
    part, home = following.partition("t"), following.storage.homes["t", 0]
    part.cluster.keep_start = following.fetchers.keep_start         # type: ignore[union-attr]
    led = leader.server.replicas.partition("t", 0)
    assert led is not None
    led.cluster.broker_epochs[HERE] = 11                            # type: ignore[union-attr]
    following.loop.call_soon(following.fetchers.changed, [part])
    following.disk.full = home.path

    def delete() -> None:
        led.log.delete_before(1)
        led.wake_followers()

    with WireClient(leader.address) as client:
        fill(client, "t", [100, 200])
        following.until(lambda: part.high_watermark == 2)
        leader.call(delete)
        following.until(lambda: part.log.log_start_offset == 1)
        assert produce(client, "t", batch(b"v"), acks=1).error_code == 0
        following.until(lambda: led.follower_states()[0][2] == 3)
    assert led.low_watermark() == 0
    following.disk.full = "nowhere"
    following.until(lambda: led.low_watermark() == 1)
    assert following.disk.read_bytes(f"{home.path}/{LOG_STARTS}").endswith(b"\nt 0 1\n")
