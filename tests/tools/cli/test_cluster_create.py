"""`ottla cluster create` moves all metadata of a standalone broker to ZooKeeper. Wherever the
command is interrupted, the broker can start only alone or only in the cluster, or cannot start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.broker.settings.config import BrokerConfig
from ottla.log.storage import run_record
from ottla.log.storage.log_directory import META, StorageRefused
from ottla.log.storage.member_marks import ASIDE
from ottla.replication.cluster_store import (
    CLUSTER_ID,
    KAFKAS_TOPICS,
    NEWEST,
    ClusterRefused,
)
from ottla.replication.coordination import (
    Coordination,
    CoordinationError,
    Create,
    Delete,
)
from ottla.replication.metadata import (
    MetadataImage,
    PartitionState,
    TopicCreated,
)
from ottla.replication.records import UnreadableMetadata
from ottla.tools.cli import cluster_create
from tests.broker import topics
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import RunningBroker, WireClient
from tests.log.faulty_disk import FaultyDisk, PowerCut
from tests.simulation.zookeeper import MemoryCoordination, ZooKeeperServer
from tests.tools.cli.creations import (
    ALONE,
    NODE,
    PATHS,
    Breaking,
    alone,
    clustered,
    copied,
    copy_of,
    created,
    open_alone,
    standalone,
    taken_over,
)
from tests.tools.cli.ottla_command import Ottla


def contents(disk: FaultyDisk) -> dict[str, bytes | None]:
    """Every file and directory except the lock."""
    return {
        path: None if inode is None else bytes(inode.content)
        for path, inode in disk.names.items() if not path.endswith(".lock")
    }


def check_done(disk: FaultyDisk, server: ZooKeeperServer, before: MetadataImage) -> None:
    """Check that the broker starts in the cluster, with everything that it had, and not alone."""
    assert alone(disk) is None
    found = clustered(disk, server)
    assert found is not None
    member, storage = found
    image = member.metadata.image
    assert not member.adopts, "it knows how far it has read"
    for name in ("cluster_id", "offset", "features", "credentials", "quotas", "rules", "tokens",
                 "next_producer_id", "names"):
        assert getattr(image, name) == getattr(before, name), name
    assert list(image.topics) == list(before.topics) and not image.brokers
    for topic, was in zip(image.topics.values(), before.topics.values(), strict=True):
        assert topic.topic_id == was.topic_id
        for state, old in zip(topic.partitions, was.partitions, strict=True):
            assert (state.leader, state.replicas, state.isr) == (-1, (NODE,), (NODE,))
            assert image.leader_epoch(topic, state) == before.leader_epoch(was, old) + 1
    directories = {each.directory_id: each.path for each in storage.directories}
    assert set(image.former[NODE].directories) == set(directories)
    runs = [run_record.read(disk, path) for path in PATHS]
    assert run_record.stop_class(runs, image.former[NODE].epoch, "another boot") == run_record.CLEAN
    assert all(directory.clean for directory in storage.directories)
    assert storage.unclaimed() == [] and f"{PATHS[0]}/{ASIDE}" in disk.names


def image_of(disk: FaultyDisk) -> MetadataImage:
    image = alone(disk)
    assert image is not None
    return image


def test_the_cluster_has_everything_that_the_broker_had() -> None:
    disk, server = standalone(), ZooKeeperServer()
    before = image_of(disk)
    creation = created(disk, MemoryCoordination(server))
    check_done(disk, server, before)
    found = clustered(disk, server)
    assert found is not None
    image = found[0].metadata.image
    assert image.configs == {
        ("topic", "old"): {"retention.ms": "5"},
        ("broker", str(NODE)): {"log.retention.ms": "9"},
        ("broker", ""): {"message.max.bytes": "1000", "min.insync.replicas": "2"},
    }, "a cluster has one min.insync.replicas for all brokers: the one that this broker used"
    assert [image.leader_epoch(t, t.partitions[0]) for t in image.topics.values()] == [5, 2]
    assert "2 topics with 3 partitions" in "\n".join(creation.plan())


def cut_everywhere(steps: Callable[[int], bool]) -> int:
    """Call `steps` with 1, 2, … until it interrupts nothing and returns False; returns how many
    calls interrupted something."""
    number = 1
    while steps(number):
        number += 1
    return number - 1


def check_cut(disk: FaultyDisk, server: ZooKeeperServer, before: MetadataImage) -> None:
    """Check that at most one kind of start is possible, and that another run completes the
    command."""
    now, member = alone(disk), clustered(disk, server)
    assert now is None or member is None
    assert now in (None, before)
    assert not (taken_over(server) and now), "ZooKeeper has its metadata: it starts no more alone"
    assert member is None or taken_over(server)
    files = contents(disk)
    again = created(disk, MemoryCoordination(server))
    assert again.is_finished == (member is not None)
    assert member is None or contents(disk) == files, "there is nothing left to do"
    check_done(disk, server, before)


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power"])
def test_it_goes_on_where_its_process_or_the_machine_stopped(power: bool) -> None:
    before = image_of(standalone())

    def at(operation: int) -> bool:
        disk, server = standalone(operation), ZooKeeperServer()
        begun = disk.operations
        with disk.stops_at(begun + operation):
            created(disk, MemoryCoordination(server))
        stopped = disk.stopped
        disk.cut_power() if power else disk.kill()
        if stopped:
            check_cut(disk, server, before)
        return stopped

    assert cut_everywhere(at) > 30


@pytest.mark.parametrize("executed", [False, True])
def test_it_goes_on_where_the_connection_to_zookeeper_broke(executed: bool) -> None:
    before = image_of(standalone())
    said = []

    def at(request: int) -> bool:
        disk, server = standalone(), ZooKeeperServer()
        session = Breaking(server, request, executed)
        try:
            created(disk, session)
        except CoordinationError as error:
            said.append(str(error))
        if session.asked < request:
            return False
        check_cut(disk, server, before)
        return True

    assert cut_everywhere(at) > 15
    assert any("run this command again" in text for text in said)


def test_the_metadata_are_in_zookeeper_only_once_the_broker_cannot_start_alone() -> None:
    """The test looks at the disk and at ZooKeeper before each request."""
    disk, server = standalone(), ZooKeeperServer()
    session = Breaking(server)
    moments = []

    def look(number: int) -> None:
        moments.append((copied(disk), copy_of(server)))

    session.before = look
    created(disk, session)
    states = [(alone(disk) is not None, taken_over(server)) for disk, server in moments]
    assert list(dict.fromkeys(states)) == [(True, False), (False, False), (False, True)]
    assert not any(clustered(disk, server) for disk, server in moments)


def refused(disk: FaultyDisk, server: ZooKeeperServer, words: str) -> None:
    before, nodes = contents(disk), {path: node.data for path, node in server.nodes.items()}
    with pytest.raises((ClusterRefused, StorageRefused, UnreadableMetadata), match=words):
        created(disk, MemoryCoordination(server))
    assert contents(disk) == before
    assert {path: node.data for path, node in server.nodes.items()} == nodes


def have(server: ZooKeeperServer, *paths: str) -> None:
    for path in paths:
        for end in range(1, len(path) + 1):
            if path[end : end + 1] in ("/", "") and path[:end] not in server.nodes:
                server.multi(0, [Create(path[:end], b'{"id":"other"}')])


@pytest.mark.parametrize(("path", "words"), [
    (CLUSTER_ID, "already belongs to cluster other. Nothing was changed"),
    (KAFKAS_TOPICS, "Apache Kafka uses it. Nothing was changed"),
    (NEWEST, "metadata but no /cluster/id"),
    ("/metadata/log/0000000000001", "metadata but no /cluster/id"),
])
def test_a_root_that_is_not_empty_is_refused(path: str, words: str) -> None:
    disk, server = standalone(), ZooKeeperServer()
    have(server, path)
    refused(disk, server, words)
    assert image_of(disk)


def test_a_broker_that_was_not_stopped_cleanly_is_refused() -> None:
    disk = standalone()
    disk.unlink("/b/.kafka_cleanshutdown")
    refused(disk, ZooKeeperServer(), "/b was not stopped cleanly: start it once")


def test_a_broker_with_a_missing_directory_is_refused() -> None:
    disk = standalone()
    disk.unlink(f"/b/{META}")
    refused(disk, ZooKeeperServer(), "/b has no meta.properties")


def test_a_former_metadata_log_is_not_replaced() -> None:
    disk = standalone()
    disk.makedirs(f"/a/{ASIDE}")
    refused(disk, ZooKeeperServer(), f"/a: .*-0 cannot be renamed to {ASIDE}, because")


def test_a_metadata_log_that_has_lost_its_end_is_refused() -> None:
    disk = standalone()
    inode = disk.inode("/a/__ottla_metadata-0/00000000000000000000.log")
    whole = bytes(inode.content)
    del inode.content[-1:]
    refused(disk, ZooKeeperServer(), "ends at record")
    inode.content[:] = whole[:-1] + b"?"
    refused(disk, ZooKeeperServer(), "is damaged")


def test_a_copy_from_before_is_refused() -> None:
    """The broker is in the cluster, and somebody runs the command on an old copy of its
    directories."""
    disk, server = standalone(), ZooKeeperServer()
    older = standalone()
    created(disk, MemoryCoordination(server))
    refused(older, server, "are they an old copy")


def test_the_command_goes_on_with_the_zookeeper_with_which_it_began() -> None:
    disk, server = standalone(), ZooKeeperServer()
    before = image_of(disk)
    stopped_after_marking(disk, server)
    again = r"was interrupted.*again with --zookeeper zk:2181/ottla"
    with pytest.raises(StorageRefused, match=again):
        open_alone(disk)
    with pytest.raises(StorageRefused, match="an earlier run used --zookeeper zk:2181/ottla"):
        created(disk, MemoryCoordination(ZooKeeperServer()), address="other:1")
    created(disk, MemoryCoordination(server))
    check_done(disk, server, before)


def stopped_after_marking(disk: FaultyDisk, server: ZooKeeperServer) -> None:
    """Run the command, and end it when the directories are marked and ZooKeeper has no cluster
    yet."""
    session = Breaking(server)

    def look(number: int) -> None:
        if alone(disk) is None:
            raise PowerCut

    session.before = look
    with pytest.raises(PowerCut):
        created(disk, session)
    assert not taken_over(server)


def test_where_another_cluster_was_faster_the_broker_is_given_back() -> None:
    disk, server = standalone(), ZooKeeperServer()
    before = image_of(disk)
    stopped_after_marking(disk, server)
    have(server, CLUSTER_ID)
    with pytest.raises(ClusterRefused, match="Without --dry-run"):
        created(disk, MemoryCoordination(server), lambda: False, dry_run=True)
    assert alone(disk) is None
    with pytest.raises(ClusterRefused, match=r"other\. The broker is standalone again"):
        created(disk, MemoryCoordination(server))
    assert image_of(disk) == before and clustered(disk, server) is None


def test_another_cluster_that_is_faster_by_a_moment_gives_it_back_at_once() -> None:
    disk, server = standalone(), ZooKeeperServer()
    before = image_of(disk)
    session = Breaking(server)

    def look(number: int) -> None:
        if alone(disk) is None and not taken_over(server):
            have(server, CLUSTER_ID)

    session.before = look
    with pytest.raises(ClusterRefused, match=r"other\. The broker is standalone again"):
        created(disk, session)
    assert image_of(disk) == before


def test_a_zookeeper_that_lost_everything_at_the_end_is_not_filled_again() -> None:
    disk, server = standalone(), ZooKeeperServer()

    for operation in range(1, 100):
        with disk.stops_at(disk.operations + operation):
            created(disk, MemoryCoordination(server))
        disk.kill()
        if f"{PATHS[0]}/{ASIDE}" in disk.names:
            break
    assert alone(disk) is None and clustered(disk, server) is None
    refused(disk, ZooKeeperServer(), "has one of them lost its data")


class WithRoot(MemoryCoordination):
    """A session that counts the requests to make its chroot."""

    made = 0

    async def make_root(self) -> None:
        self.made += 1


def test_a_missing_chroot_is_made_once_it_is_agreed_to_and_not_by_a_dry_run() -> None:
    disk, session = standalone(), WithRoot(ZooKeeperServer())
    created(disk, session, lambda: False, dry_run=True)
    created(disk, session, lambda: False)
    assert session.made == 0
    created(disk, session)
    assert session.made == 1


def test_a_dry_run_changes_nothing() -> None:
    disk, server = standalone(), ZooKeeperServer()
    before = contents(disk)
    created(disk, MemoryCoordination(server), lambda: False, dry_run=True)
    assert contents(disk) == before and list(server.nodes) == ["/"]


def test_a_partition_of_others_is_refused() -> None:
    strange = PartitionState(1, 0, (1, NODE), (1,))
    disk = standalone(0, [TopicCreated("t", b"t" * 16, (ALONE, strange))])
    refused(disk, ZooKeeperServer(), r"t-1 has the replicas \[1, 7\]")


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> ZooKeeperServer:
    """The ZooKeeper that the command line uses."""
    server = ZooKeeperServer()

    def session(config: BrokerConfig, loop: object) -> Coordination:
        assert config.zookeeper_connect == "zk:2181/ottla"
        return MemoryCoordination(server)

    monkeypatch.setattr(cluster_create, "zookeeper", session)
    return server


def test_the_command_line(in_memory: ZooKeeperServer, tmp_path: Path) -> None:
    data, ottla = tmp_path / "data", Ottla("nobody:1")
    line = f"cluster create --from {data} --zookeeper zk:2181/ottla"
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        topics.create(client, "t")
        assert produce(client, "t", batch(b"v")).error_code == 0
        done = ottla(f"{line} --yes")
        assert done.status == 1 and "is in use by another process" in done.err
    done = ottla(line)
    assert done.status == 1 and "cannot be undone: confirm with --yes" in done.err
    done = ottla(f"{line} --dry-run")
    assert done.status == 0 and "would have made broker 4 the first broker of cluster" in done.err
    assert "ZooKeeper    zk:2181/ottla\n" in done.out and not taken_over(in_memory)
    done = ottla(f"{line} --yes")
    assert done.status == 0 and done.err.startswith("made broker 4 the first broker of cluster")
    assert "zookeeper.connect=zk:2181/ottla and node.id=4" in done.out
    assert ottla(f"log verify {data}").status == 0
    with pytest.raises(StorageRefused, match="belongs to a broker of a cluster, which has its"):
        RunningBroker(data)
    done = ottla(f"{line} --yes")
    assert done.status == 0 and "broker 4 is already the first broker of cluster" in done.err
    assert "nothing to do: broker" in done.err
    assert "zookeeper.connect=zk:2181/ottla and node.id=4" in done.out
    in_memory.multi(0, [Delete(CLUSTER_ID)])
    done = ottla(f"{line} --yes")
    assert done.status == 1 and "zk:2181/ottla" in done.err and "Nothing was changed" in done.err
    (data / ASIDE).rename(data / "elsewhere")
    done = ottla(f"{line} --yes")
    assert done.status == 1 and "belongs to a broker of a cluster already" in done.err


def test_the_settings_file_names_directories_and_zookeeper(
    in_memory: ZooKeeperServer, tmp_path: Path
) -> None:
    ottla, file = Ottla("nobody:1"), tmp_path / "server.properties"
    first, second = tmp_path / "a", tmp_path / "b"
    RunningBroker(first, log_dirs=f"{first},{second}").stop()
    line = f"cluster create --from {file} --yes"
    file.write_text(f"log.dirs={first}\nnode.id=4\n")
    assert "--zookeeper host:port/chroot is required" in ottla(line).err
    assert "b (" in ottla(f"{line} --zookeeper zk:2181/ottla").err, "a directory is missing"
    file.write_text(f"log.dirs={first},{second}\nnode.id=5\nzookeeper.connect=zk:2181/ottla\n")
    assert "has node.id=5" in ottla(line).err and not taken_over(in_memory)
    file.write_text(f"log.dirs={first},{second}\nnode.id=4\nzookeeper.connect=zk:2181/ottla\n")
    assert f"directories  {first}, {second}\n" in ottla.ok(line) and taken_over(in_memory)
    assert "--from is required" in ottla("cluster create --zookeeper zk:2181/ottla").err
    assert ottla("cluster create --from nowhere --zookeeper zk:2181/ottla").status == 1


def test_a_relative_log_directory_is_shown_with_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another directory than the broker's, `data` is another directory, too."""
    (tmp_path / "server.properties").write_text("log.dirs=data\n")
    monkeypatch.chdir(tmp_path)
    done = Ottla("")("cluster create --from server.properties --zookeeper localhost:1/x --yes")
    assert done.status == 1 and f"{tmp_path}/data has no {META}, " in done.err
