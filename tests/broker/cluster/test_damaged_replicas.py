"""A replica whose bytes have changed on its disk is repaired from the other replicas. One of those
leads, the damaged part of the log is put aside, and its records are fetched again. No acknowledged
record is lost."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.cluster.registrar import Registrar
from ottla.log.storage.log_directory import StorageRefused
from ottla.replication.controller.directories import LOST, assign_replicas
from ottla.replication.metadata import NO_LEADER, PartitionState
from ottla.replication.partition import Partition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import AssignReplicasToDirsRequest, ElectLeadersRequest
from tests.broker.cluster.running_cluster import RunningCluster, create
from tests.broker.produce_fetch import batch, fetch, produce, values
from tests.broker.topics import metadata

FIRST = f"{0:020d}.log"
VALUES = [b"%d" % n * 40 for n in range(6)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(
        tmp_path, 3, min_insync_replicas=2, ottla_log_scrub_bytes_per_second=1 << 40
    ) as running:
        yield running


def state(cluster: RunningCluster, node_id: int) -> PartitionState:
    return cluster.servers[node_id].metadata_log.image.topics["t"].partitions[0]


def partition(cluster: RunningCluster, node_id: int) -> Partition:
    found = cluster.servers[node_id].replicas.partition("t", 0)
    assert found is not None
    return found


def directory(cluster: RunningCluster, node_id: int) -> Path:
    return cluster.directory / f"broker-{node_id}" / "t-0"


def write(cluster: RunningCluster, value: bytes) -> int:
    """Produce with acks=all to the leader; returns the error code."""
    with cluster.client(state(cluster, some(cluster)).leader) as client:
        return int(produce(client, "t", batch(value)).error_code)


def some(cluster: RunningCluster) -> int:
    return min(cluster.servers)


def in_sync(cluster: RunningCluster, *nodes: int) -> None:
    """Wait until every broker sees exactly these nodes in sync, and one of them leading."""
    cluster.until(
        lambda: all(
            set(state(cluster, n).isr) == set(nodes) and state(cluster, n).leader in nodes
            for n in cluster.servers
        ),
        f"{nodes} are in sync",
    )


def filled(cluster: RunningCluster) -> None:
    """Write two sealed segments with two records each, and two records after them; flush all."""
    assert create(cluster, 1, "t", 1, 3) == 0
    for at, value in enumerate(VALUES):
        assert write(cluster, value) == 0
        cluster.until(lambda end=at + 1: all(
            partition(cluster, n).log.log_end_offset == end for n in cluster.servers
        ), "all have it")
        if at in (1, 3):
            for node_id in cluster.servers:
                cluster.run(on_loop(partition(cluster, node_id).log.roll))
    for node_id in cluster.servers:
        cluster.run(on_loop(partition(cluster, node_id).log.flush))
    in_sync(cluster, 1, 2, 3)


async def on_loop(called: object) -> object:
    assert callable(called)
    return called()


def damage(path: Path) -> None:
    """Flip one bit in the second record's batch."""
    changed = bytearray(path.read_bytes())
    changed[len(changed) * 3 // 4] ^= 1
    path.write_bytes(changed)


def scrub(cluster: RunningCluster, node_id: int) -> None:
    """Run one round of the scrub, which is otherwise due half a minute after the start."""
    server = cluster.servers[node_id]

    async def begun() -> asyncio.Task[None]:
        return asyncio.create_task(server.scrubber.scrub_for_ever(0))

    task = cluster.run(begun())
    cluster.until(lambda: task.done() or not server.storage.logs or _scrubbed(cluster, node_id),
                  "a round of the scrub")
    cluster.run(on_loop(task.cancel))


def _scrubbed(cluster: RunningCluster, node_id: int) -> bool:
    return (cluster.directory / f"broker-{node_id}" / "ottla-scrub-checkpoint").exists()


def same_everywhere(cluster: RunningCluster, wanted: list[bytes]) -> None:
    ends = {n: partition(cluster, n).log.log_end_offset for n in cluster.servers}
    cluster.until(lambda: all(
        partition(cluster, n).high_watermark == max(ends.values()) for n in cluster.servers
    ), "all have everything")
    logs = []
    for node_id in cluster.servers:
        log, data, at = partition(cluster, node_id).log, b"", 0
        while at < log.log_end_offset:
            data += log.read_bytes(at, 1 << 20)
            at = next(s.end_offset for s in log.segments if s.end_offset > at)
        logs.append(data)
    assert logs[0] == logs[1] == logs[2]
    with cluster.client(state(cluster, some(cluster)).leader) as client:
        found: list[bytes] = []
        while len(found) < len(wanted):
            more = values(fetch(client, "t", len(found)))
            assert more
            found += more
    assert found == wanted


@pytest.mark.parametrize("leads", [False, True], ids=["a follower", "the leader"])
def test_a_replica_found_damaged_gets_its_records_from_the_others(
    cluster: RunningCluster, leads: bool
) -> None:
    filled(cluster)
    leader = state(cluster, 1).leader
    node_id = leader if leads else leader % 3 + 1
    damage(directory(cluster, node_id) / FIRST)
    scrub(cluster, node_id)
    cluster.until(lambda: list(directory(cluster, node_id).glob("*.quarantine")), "put aside")
    in_sync(cluster, 1, 2, 3)
    assert partition(cluster, node_id).log.damage is None
    assert write(cluster, b"after") == 0
    same_everywhere(cluster, [*VALUES, b"after"])
    assert len(list(directory(cluster, node_id).glob("*.quarantine"))) == 3


def test_clients_see_a_damaged_leader_as_gone_and_lose_no_record(
    cluster: RunningCluster,
) -> None:
    filled(cluster)
    leader = state(cluster, 1).leader
    damage(directory(cluster, leader) / FIRST)
    with cluster.client(leader) as client:
        scrub(cluster, leader)
        cluster.until(lambda: state(cluster, leader).leader != leader, "another one leads")
        assert produce(client, "t", batch(b"x")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert metadata(client, "t")[0].leader_id == state(cluster, leader).leader


def test_a_leader_checks_the_bytes_that_a_follower_refuses_and_hands_over(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    filled(cluster)
    leader = state(cluster, 1).leader
    behind = leader % 3 + 1
    cluster.stop(behind)
    assert write(cluster, b"missed" * 20) == 0
    damage(max(directory(cluster, leader).glob("*.log")))       # the active segment, never scrubbed
    cluster.start(behind)

    def handed_over() -> bool:
        cluster.leap(0.05)
        return state(cluster, leader).leader != leader

    cluster.until(handed_over, "another one leads")
    damaged = f"broker {leader} sent damaged records: the batch at offset 6 does not match"
    assert damaged in caplog.text
    assert "this broker or a follower could not read offset 6" in caplog.text
    in_sync(cluster, 1, 2, 3)
    assert write(cluster, b"after") == 0
    same_everywhere(cluster, [*VALUES, b"missed" * 20, b"after"])


def test_damage_that_a_start_finds_is_repaired_too(cluster: RunningCluster) -> None:
    filled(cluster)
    node_id = state(cluster, 1).leader
    cluster.stop(node_id)
    last = max(directory(cluster, node_id).glob("*.log"))
    last.write_bytes(last.read_bytes()[:-30])           # cut below the recovery point
    (cluster.directory / f"broker-{node_id}" / ".kafka_cleanshutdown").unlink()
    assert write(cluster, b"meanwhile") == 0
    cluster.start(node_id)
    in_sync(cluster, 1, 2, 3)
    assert list(directory(cluster, node_id).glob("*.quarantine"))
    same_everywhere(cluster, [*VALUES, b"meanwhile"])


def test_after_a_repair_a_restart_finds_a_sound_log(cluster: RunningCluster) -> None:
    filled(cluster)
    node_id = state(cluster, 1).leader
    damage(directory(cluster, node_id) / FIRST)
    scrub(cluster, node_id)
    cluster.until(lambda: list(directory(cluster, node_id).glob("*.quarantine")), "put aside")
    in_sync(cluster, 1, 2, 3)
    cluster.stop(node_id)
    (cluster.directory / f"broker-{node_id}" / ".kafka_cleanshutdown").unlink()
    cluster.start(node_id)
    assert partition(cluster, node_id).log.damage is None
    in_sync(cluster, 1, 2, 3)
    same_everywhere(cluster, VALUES)


def test_where_all_copies_are_damaged_the_last_one_is_served_up_to_it_and_no_byte_is_lost(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    filled(cluster)
    whole = (directory(cluster, 1) / FIRST).read_bytes()
    for node_id in (1, 2, 3):
        damage(directory(cluster, node_id) / FIRST)
    changed = (directory(cluster, 1) / FIRST).read_bytes()
    assert changed != whole
    with caplog.at_level(logging.ERROR, "ottla.scrub"):
        for node_id in (1, 2, 3):
            scrub(cluster, node_id)
            cluster.until(
                lambda n=node_id: partition(cluster, n).damaged
                or list(directory(cluster, n).glob("*.quarantine")), "found",
            )
    told = [each.getMessage() for each in caplog.records if each.name == "ottla.scrub"]
    assert len([text for text in told if "is damaged at byte" in text]) == 3
    cluster.until(
        lambda: any(len(state(cluster, n).isr) == 1 for n in (1, 2, 3)), "one is left in sync"
    )
    leader = state(cluster, 1).leader
    with cluster.client(leader) as client:
        assert values(fetch(client, "t")) == VALUES[:1]
        assert fetch(client, "t", 1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        refused = produce(client, "t", batch(b"more"), acks=1).error_code
        assert refused == ErrorCode.KAFKA_STORAGE_ERROR
    for node_id in (1, 2, 3):
        kept = [*directory(cluster, node_id).glob(f"{0:020d}*.quarantine"),
                directory(cluster, node_id) / FIRST]
        assert changed in [path.read_bytes() for path in kept if path.exists()]


def test_a_report_that_comes_when_no_other_copy_is_in_sync_is_taken_back(
    cluster: RunningCluster,
) -> None:
    """The others left the in-sync set between the report of a damaged leader and the decision."""
    filled(cluster)
    leader = state(cluster, 1).leader
    server = cluster.servers[leader]
    for node_id in {1, 2, 3} - {leader}:
        cluster.stop(node_id)
    cluster.until(
        lambda: state(cluster, leader).isr == (leader,) and server.metadata_log.is_controller,
        "it is alone",
    )
    damage(directory(cluster, leader) / FIRST)
    scrub(cluster, leader)
    cluster.until(lambda: partition(cluster, leader).damaged, "found")
    assert server.member is not None
    epoch, made = state(cluster, leader).leader_epoch, AssignReplicasToDirsRequest.Directory
    item = made.Topic.Partition(partition_index=0)
    topic_id = server.metadata_log.image.topics["t"].topic_id
    late = AssignReplicasToDirsRequest(
        broker_id=leader, broker_epoch=server.member.session.broker_epoch,
        directories=[made(id=LOST, topics=[made.Topic(topic_id=topic_id, partitions=[item])])],
    )
    cluster.run(server.metadata_log.decide(assign_replicas, late))
    cluster.until(
        lambda: (now := state(cluster, leader)).leader == leader and now.leader_epoch == epoch + 2,
        "it leads again after it did not",
    )
    with cluster.client(leader) as client:
        assert values(fetch(client, "t")) == VALUES[:1]
        assert fetch(client, "t", 1).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_an_only_copy_in_sync_that_a_start_finds_damaged_leads_on_request(
    cluster: RunningCluster,
) -> None:
    filled(cluster)
    leader = state(cluster, 1).leader
    others = [n for n in (1, 2, 3) if n != leader]
    for node_id in others:
        cluster.stop(node_id)
    with cluster.client(leader) as client:
        assert produce(client, "t", batch(b"alone"), acks=1).error_code == 0
    cluster.run(on_loop(partition(cluster, leader).log.flush))
    cluster.stop(leader)
    last = max(directory(cluster, leader).glob("*.log"))
    last.write_bytes(last.read_bytes()[:-5])
    (cluster.directory / f"broker-{leader}" / ".kafka_cleanshutdown").unlink()
    cluster.start(leader)
    for node_id in others:
        cluster.start(node_id)
    cluster.until(lambda: len(cluster.servers[leader].metadata_log.image.brokers) == 3, "all up")
    found = state(cluster, leader)
    if found.leader == -1:
        with cluster.client(cluster.controller) as client:
            client.call(ElectLeadersRequest(
                election_type=1, topic_partitions=[
                    ElectLeadersRequest.TopicPartition(topic="t", partitions=[0])
                ], timeout_ms=10_000), 2)
    in_sync(cluster, 1, 2, 3)
    same_everywhere(cluster, VALUES)


def filled_and_stopped(cluster: RunningCluster) -> Path:
    """Stop all brokers once they have all records; returns the partition's directory on broker 3.
    """
    filled(cluster)
    for node_id in (1, 2, 3):
        cluster.stop(node_id)
    return directory(cluster, 3)


def waits_and_follows_the_others(cluster: RunningCluster) -> None:
    """Broker 3 runs alone and lacks records. Check that it does not lead, and that it gets the
    records from the other brokers."""
    extra = state(cluster, 3).extra
    assert extra is not None and extra.lost == (3,) and state(cluster, 3).leader == NO_LEADER
    cluster.start(1)
    cluster.start(2)
    in_sync(cluster, 1, 2, 3)
    same_everywhere(cluster, VALUES)


def test_what_an_unfinished_start_has_cut_off_is_not_forgotten_by_the_next_one(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start may be killed while it recovers other logs, or given up because there is no
    controller. The replica must not lead with the shorter log as if it had everything."""
    at = filled_and_stopped(cluster)
    (at.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    (at.parent / ".kafka_cleanshutdown").unlink()
    damage(at / FIRST)

    async def refuse(*_: object) -> None:
        raise StorageRefused("ZooKeeper does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Registrar, "register", refuse)
        with pytest.raises(StorageRefused, match="does not answer"):
            cluster.start(3)
    cluster.start(3)
    assert partition(cluster, 3).log.log_end_offset < len(VALUES)
    waits_and_follows_the_others(cluster)
    assert not list(at.glob("*.cut"))


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_log_whose_directory_has_vanished_does_not_lead_as_an_empty_one(
    cluster: RunningCluster, cleanly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A repair of the file system, or an operator, removed the directory. A checkpoint still lists
    the log, and the other replicas have the records. The controller logs no clean end."""
    caplog.set_level(logging.INFO, "ottla.controller")
    at = filled_and_stopped(cluster)
    shutil.rmtree(at)
    if not cleanly:
        (at.parent / ".kafka_cleanshutdown").unlink()
    caplog.clear()
    cluster.start(3)
    waits_and_follows_the_others(cluster)
    [said] = [text for text in caplog.messages if text.startswith("broker 3 is registered")]
    assert "1 log is lost" in said and "ended as" not in said


def test_an_only_copy_whose_directory_has_vanished_stays_offline_at_every_start(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """No other replica has its records. An empty log would give their offsets to new records."""
    assert create(cluster, 1, "t", 1, 1) == 0
    home = state(cluster, 1).leader
    assert write(cluster, VALUES[0]) == 0
    at, aside = directory(cluster, home), tmp_path / "aside"
    cluster.stop(home)
    at.rename(aside)
    for _ in range(2):
        cluster.start(home)
        cluster.until(lambda: state(cluster, home).extra is not None, "it is known as offline")
        assert partition(cluster, home).log.offline and state(cluster, home).leader == NO_LEADER
        cluster.stop(home)
    aside.rename(at)
    cluster.start(home)
    in_sync(cluster, home)
    with cluster.client(home) as client:
        assert values(fetch(client, "t")) == VALUES[:1]


def test_a_log_that_is_empty_by_right_is_not_missed(cluster: RunningCluster) -> None:
    """All its records were deleted, but it has a directory, which a restart finds."""
    filled(cluster)
    for node_id in (1, 2, 3):
        log = partition(cluster, node_id).log

        def emptied(log: Any = log) -> None:
            log.truncate_fully_and_start_at(log.log_end_offset)

        cluster.run(on_loop(emptied))
    cluster.stop(3)
    cluster.start(3)
    assert partition(cluster, 3).log.log_end_offset == len(VALUES)
    assert not cluster.servers[3].found_partitions.vanished
