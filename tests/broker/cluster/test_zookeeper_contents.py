"""Znodes that somebody else has written or deleted: brokers refuse them with a clear message. If
only one broker is affected, the others continue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.cluster.metadata_checkpoint import MARK
from ottla.log.storage.log_directory import StorageRefused
from ottla.replication.cluster_store import CONTROLLER_EPOCH, NEWEST, entry_path
from ottla.replication.coordination import Create, Delete, Operation, Set
from ottla.replication.election import CONTROLLER
from ottla.replication.entries import EntryHeader, decode_entry
from ottla.replication.registration import path_of
from ottla.wire.compression import Codec, compress
from tests.broker.cluster.backups import (
    Backup,
    accept_backup,
    in_sync,
    new_producer_id,
    states,
)
from tests.broker.cluster.running_cluster import RunningCluster, create, leaders
from tests.broker.produce_fetch import batch, fetch, produce, values

BIG = 10**20
SETTING = (
    b'["ConfigSet",{"resource_type":"topic","resource_name":"t","name":"flush.ms","value":"7"}]'
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path) as running:
        assert create(running, 1, "t", 3, 3) == 0
        yield running


def write(cluster: RunningCluster, *operations: Operation) -> None:
    """Write to ZooKeeper, as a stranger could."""

    async def written() -> None:
        cluster.zookeeper.multi(0, operations)

    cluster.run(written())


def entry(cluster: RunningCluster, *lines: bytes, **header: Any) -> Operation:
    """The next entry of the log, with lines that no controller writes."""
    image = cluster.servers[1].metadata_log.decided
    first = {"format": 1, "controller": 1, "epoch": image.controller_epoch, "batch": "b",
             "offset": image.offset, "records": len(lines)} | header
    raw = b"\n".join([json.dumps(first).encode(), *lines])
    return Create(entry_path(image.entry + 1), compress(Codec.ZSTD, raw))


GARBAGE = {
    "a topic that is not there": b'["TopicDeleted",{"name":"u"}]',
    "a partition that is not there":
        b'["PartitionChanged",{"topic":"t","index":9,"state":[1,1,[1],[1],1]}]',
    "a partition before the first":
        b'["PartitionChanged",{"topic":"t","index":-1,"state":[1,1,[1],[1],1]}]',
    "a leader that is a text":
        b'["PartitionChanged",{"topic":"t","index":0,"state":["1",1,[1],[1],1]}]',
    "a node that is none":
        b'["PartitionChanged",{"topic":"t","index":0,"state":[1,1,[99999999999],[1],1]}]',
    "producer ids again": b'["ProducerIdsTaken",{"next_id":-5}]',
    "a billion partitions":
        b'["TopicCreated",{"name":"u","topic_id":"00","partitions":[[1,1,[1],[1],1,1000000000]]}]',
    "brackets without end": b"[" * 100_000,
    "a broker of texts": b'["BrokerRegistered",{"broker":["1",2,[],null]}]',
    "a number of thousands of digits": b'["ProducerIdsTaken",{"next_id":' + b"9" * 5000 + b"}]",
    "infinity": b'["ControllerElected",{"node_id":1,"epoch":Infinity}]',
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_an_entry_that_does_not_fit_ends_whoever_reads_it_and_changes_nothing(
    cluster: RunningCluster, garbage: bytes
) -> None:
    cluster.until(
        lambda: len({s.metadata_log.image.entry for s in cluster.servers.values()}) == 1,
        "all have read the registrations",
    )
    images = {node: server.metadata_log.image for node, server in cluster.servers.items()}
    number = images[1].entry + 1
    write(cluster, entry(cluster, garbage))
    all_end(cluster, f"entry {number} of the metadata log")
    assert {n: s.metadata_log.image for n, s in cluster.servers.items()} == images


def all_end(cluster: RunningCluster, words: str) -> None:
    for server in cluster.servers.values():
        failure = server.failure
        cluster.until(failure.done, f"the broker ends: {words}")
        assert words in failure.result()


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"[" * 100_000, b'{"brokerid":1e999,"epoch":1,"incarnation":"i"}'],
    ids=["empty", "a list", "brackets without end", "infinity"],
)
def test_a_controller_that_nobody_can_read_ends_whoever_reads_it(
    cluster: RunningCluster, data: bytes
) -> None:
    write(cluster, Delete(CONTROLLER), Create(CONTROLLER, data))
    all_end(cluster, "/controller in ZooKeeper is not readable")


def test_a_start_says_that_nobody_can_read_the_controller_where_it_replaces_its_former_self(
    cluster: RunningCluster,
) -> None:
    """A start reads who is the controller: if that is the broker's own former process, the start
    deposes it."""
    former = cluster.zookeeper.nodes[path_of(3)].data
    cluster.stop(3)
    write(cluster, Create(path_of(3), former), Delete(CONTROLLER), Create(CONTROLLER, b"?"))
    with pytest.raises(StorageRefused, match="/controller in ZooKeeper is not readable"):
        cluster.start(3)


@pytest.mark.parametrize("newest", [
    b"", b"[]", b'{"entry":"9","pieces":1,"crc":0,"before":0}', b"[" * 100_000,
    b'{"entry":900,"pieces":1000000000000,"crc":0,"before":0}',
    b'{"entry":900,"pieces":-1,"crc":0,"before":0}',
], ids=["empty", "a list", "texts", "brackets without end", "too many pieces", "less than none"])
def test_a_snapshot_that_nobody_can_read_is_refused_by_a_start_and_ends_who_reads_on(
    cluster: RunningCluster, newest: bytes
) -> None:
    write(cluster, Create(NEWEST, newest))
    with pytest.raises(StorageRefused, match="newest in ZooKeeper is not readable"):
        cluster.start(4)
    write(cluster, Create(entry_path(BIG)))         # far ahead: no broker reads it
    for server in cluster.servers.values():
        cluster.loop.call_soon_threadsafe(server.metadata_log.read_on)
    all_end(cluster, "newest in ZooKeeper is not readable")


def test_a_snapshot_of_which_pieces_are_missing_is_refused_and_not_waited_for(
    cluster: RunningCluster,
) -> None:
    write(cluster, Create(NEWEST, b'{"entry":900,"pieces":2,"crc":0,"before":0}'))
    with pytest.raises(StorageRefused, match=r"pieces of the snapshot .* are missing"):
        cluster.start(4)


STRANGERS = {
    "9": b"{}",
    "99999999999999999999": b"",
    "007": b"[]",
    "abc": b"",
    "9" * 5000: b"",
}


def registration(**changed: Any) -> bytes:
    own = {"incarnation": "i", "directories": ["d"], "stop": "clean", "lost": [], "features": {}}
    body = {"version": 5, "host": "h", "port": 1, "jmx_port": -1, "endpoints": ["PLAINTEXT://h:1"],
            "rack": None, "features": {}, "ottla": own}
    return json.dumps(body | changed).encode()


@pytest.mark.parametrize(("name", "data"), [
    *STRANGERS.items(),
    ("3000000000", registration()),
    ("9", registration(endpoints=[f"PLAINTEXT://h:{BIG}"])),
    ("9", registration(endpoints=["PLAINTEXT://h:-1"])),
    ("9", registration(rack=7)),
    ("9", b"[" * 100_000),
    ("9", registration()[:40]),
], ids=lambda each: each[:20] if isinstance(each, str) else "")
def test_a_registration_that_is_no_brokers_is_passed_over_and_the_cluster_goes_on(
    cluster: RunningCluster, name: str, data: bytes
) -> None:
    write(cluster, Create(f"/brokers/ids/{name}", data))
    assert create(cluster, 2, "u", 3, 3) == 0
    image = cluster.servers[2].metadata_log.image
    assert sorted(image.brokers) == [1, 2, 3] and -1 not in leaders(cluster.servers[2], "u")
    cluster.stop(3)
    cluster.start(3)                                # brokers can still join


def test_a_broker_whose_registration_was_overwritten_registers_again(
    cluster: RunningCluster,
) -> None:
    node = cluster.controller % 3 + 1
    log = cluster.servers[node].metadata_log
    epoch = log.image.brokers[node].epoch
    write(cluster, Set(f"/brokers/ids/{node}", b"garbage"), Create("/brokers/ids/9", b""))
    cluster.until(
        lambda: node in log.image.brokers and log.image.brokers[node].epoch > epoch, "it is back"
    )
    assert create(cluster, node, "u", 3, 3) == 0


def test_garbage_under_a_brokers_id_that_is_not_its_own_ends_only_that_broker(
    cluster: RunningCluster,
) -> None:
    node = cluster.controller % 3 + 1
    garbage = Create(f"/brokers/ids/{node}", b"garbage")
    write(cluster, Delete(f"/brokers/ids/{node}"), garbage)
    failure = cluster.servers[node].failure
    cluster.until(failure.done, "it ends")
    assert f"/brokers/ids/{node} in ZooKeeper does not describe a broker" in failure.result()
    cluster.stop(node)
    assert create(cluster, cluster.controller, "u", 2, 2) == 0
    with pytest.raises(StorageRefused, match="does not describe a broker of Ottla"):
        cluster.start(node)
    write(cluster, Delete(f"/brokers/ids/{node}"))
    cluster.start(node)


def test_a_controllers_epoch_that_was_set_back_is_counted_up_again(
    cluster: RunningCluster,
) -> None:
    former = cluster.controller
    epoch = cluster.servers[1].metadata_log.image.controller_epoch
    write(cluster, Set(CONTROLLER_EPOCH, str(epoch - 1).encode()))
    cluster.expire(former)
    cluster.until(
        lambda: all(s.metadata_log.image.controller_epoch > epoch for s in cluster.servers.values())
        and sum(s.metadata_log.is_controller for s in cluster.servers.values()) == 1,
        "a controller in a later epoch",
    )
    assert create(cluster, former, "u", 3, 1) == 0


def joined(cluster: RunningCluster, nodes: list[int]) -> None:
    async def join() -> None:
        for node in nodes:
            cluster.sessions[node].join()

    cluster.run(join())


def test_brokers_that_run_while_zookeeper_is_restored_end_as_they_have_read_more(
    cluster: RunningCluster,
) -> None:
    backup = Backup(cluster)
    for name in ("u", "v"):
        assert create(cluster, 1, name, 1, 3) == 0
    entries = cluster.servers[1].metadata_log.image.entry
    images = {node: server.metadata_log.image for node, server in cluster.servers.items()}
    backup.restore(cluster, [1, 2, 3])
    joined(cluster, [1, 2, 3])
    all_end(cluster, f"entry {entries} of the metadata log in ZooKeeper is missing")
    assert {n: s.metadata_log.image for n, s in cluster.servers.items()} == images


@pytest.mark.parametrize("more", [0, 1, 7], ids=["as many", "one more", "many more"])
def test_a_restored_zookeeper_that_has_gone_on_is_not_taken_for_the_former_one(
    cluster: RunningCluster, more: int
) -> None:
    """Its entries have the same numbers and lengths as those that the running brokers have read."""
    backup = Backup(cluster)
    for name in ("u", "v"):
        assert create(cluster, 1, name, 1, 3) == 0
    log = cluster.servers[1].metadata_log
    image, here = log.image, log.image.entry
    others = {path: node for path, node in cluster.zookeeper.nodes.items()
              if path.startswith("/metadata/log/")}
    backup.restore(cluster, [1, 2, 3])
    copied = []
    for path in sorted(others.keys() - backup.nodes.keys()):
        found = decode_entry(1, 1, others[path].data)
        copied.append((path, found.header.offset, len(found.records)))
    offset = copied[-1][1] + copied[-1][2]
    copied += [(entry_path(here + 1 + n), offset + n, 1) for n in range(more)]
    for path, at, count in copied:
        header = EntryHeader(1, 1, 9, f"other {path}", at, count)
        lines = [json.dumps(vars_of(header)).encode(), *[SETTING] * count]
        write(cluster, Create(path, compress(Codec.ZSTD, b"\n".join(lines))))
    joined(cluster, [1, 2, 3])
    all_end(cluster, f"entry {here} of the metadata log in ZooKeeper is missing, or is not the one")
    assert log.image is image
    for node in (1, 2, 3):
        cluster.stop(node)
        with pytest.raises(StorageRefused, match=r"restored from a backup|changed by hand"):
            cluster.start(node)


def vars_of(header: EntryHeader) -> dict[str, Any]:
    return {name: getattr(header, name) for name in header.__match_args__}


def remove_by_hand(directories: list[Path]) -> None:
    for path in directories:
        (path / MARK).unlink()


@pytest.mark.parametrize("accept", [accept_backup, remove_by_hand])
def test_the_way_out_of_a_restored_backup_keeps_what_the_logs_have(
    cluster: RunningCluster, accept: Callable[[list[Path]], None]
) -> None:
    """The logs have later leader epochs than the restored metadata, and topics that the metadata
    lack."""
    write_to(cluster, b"first")
    backup = Backup(cluster)
    for node in (1, 2, 3, 1, 2, 3):
        cluster.stop(node)
        cluster.start(node)
        in_sync(cluster)
        write_to(cluster, f"after a restart of {node}".encode())
    assert create(cluster, 1, "unknown", 1, 3) == 0
    (leader,) = leaders(cluster.servers[1], "unknown")
    with cluster.client(leader) as client:
        assert produce(client, "unknown", batch(b"of nobody")).error_code == 0
    epochs = [state.leader_epoch for state in states(cluster)]
    used = new_producer_id(cluster)
    for node in (1, 2, 3):
        cluster.stop(node)
    backup.restore(cluster, [])
    for node in (1, 2, 3):
        with pytest.raises(StorageRefused, match="run `ottla cluster accept-backup`"):
            cluster.start(node)
    accept([cluster.directory / f"broker-{node}" for node in (1, 2, 3)])
    for node in (1, 2, 3):
        cluster.start(node)
    in_sync(cluster)
    assert min(state.leader_epoch for state in states(cluster)) > max(epochs)
    assert new_producer_id(cluster) > used
    write_to(cluster, b"with the backup")
    in_sync(cluster)
    for index in range(3):
        leader = states(cluster)[index].leader
        with cluster.client(leader) as client:
            found = values(fetch(client, "t", partition=index))
        assert found[0] == b"first" and found[-1] == b"with the backup" and len(found) == 8, found
    logs = [[server.replicas.partition("t", index).log.read_bytes(0, 1 << 20)
             for server in cluster.servers.values()] for index in range(3)]
    assert [len(set(copies)) for copies in logs] == [1, 1, 1]
    (stray,) = (cluster.directory / f"broker-{leader}").glob("unknown-0.*-stray")
    assert b"of nobody" in (stray / f"{0:020}.log").read_bytes()


def test_who_was_in_sync_at_the_time_of_a_backup_does_not_lead_without_what_came_later(
    cluster: RunningCluster,
) -> None:
    """Broker 3 stopped after the backup. The others went on without it, and then stopped, too."""
    write_to(cluster, b"first")
    backup = Backup(cluster)
    cluster.stop(3)
    write_to(cluster, b"without broker 3")
    for node in (2, 1):
        cluster.stop(node)
    backup.restore(cluster, [])
    accept_backup([cluster.directory / f"broker-{node}" for node in (1, 2, 3)])
    for node in (3, 2, 1):
        cluster.start(node)
    in_sync(cluster)
    for index in range(3):
        with cluster.client(states(cluster)[index].leader) as client:
            found = values(fetch(client, "t", partition=index))
        assert found == [b"first", b"without broker 3"]


def write_to(cluster: RunningCluster, value: bytes) -> None:
    """Produce one record with acks=all to each partition."""
    for index in range(3):
        with cluster.client(states(cluster)[index].leader) as client:
            assert produce(client, "t", batch(value), partition=index).error_code == 0


def test_a_connection_that_breaks_for_a_while_is_no_backup(cluster: RunningCluster) -> None:
    """The others go on meanwhile. The broker that comes back reads what they have decided."""
    node = cluster.controller % 3 + 1

    async def cut() -> None:
        cluster.sessions[node].cut()

    cluster.run(cut())
    assert create(cluster, cluster.controller, "u", 1, 2) == 0
    joined(cluster, [node])
    log = cluster.servers[node].metadata_log
    cluster.until(lambda: "u" in log.image.topics, "it reads on")
