"""Three brokers and a real ZooKeeper run as processes: stock clients and tools can use any broker,
and no acknowledged record is lost when brokers are killed with kill -9."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from compat_tests import readers
from compat_tests.kafka_tools import kafka_tool
from compat_tests.requirements import JAVA_CLIENTS, program, zookeeper
from compat_tests.waiting import wait_until
from ottla.broker.lock_holder import holder_of
from ottla.client.errors import ClientError
from ottla.tools.cli.local_cluster import LocalBroker, LocalCluster
from ottla.tools.commands import table
from ottla.tools.zookeeper.local import LocalZooKeeper, free_port
from tests.documents import blocks, run_as_written

pytestmark = pytest.mark.timeout(240)
"""Long enough for a busy machine, and longer than the session timeout; docs/cluster.md says what
waits for that timeout."""


@dataclass
class At:
    """The address of one broker, in the form that helpers of other tests expect."""

    bootstrap: str
    pid: int = 0

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    zookeeper()
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 3) as running:
        yield running


def each_broker(cluster: LocalCluster) -> list[At]:
    return [At(broker.address) for broker in cluster.brokers.values()]


def create(cluster: LocalCluster, topic: str, partitions: int, factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, factor)])[topic].result(30)


def controller(cluster: LocalCluster) -> LocalBroker:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return cluster.brokers[admin.describe_cluster().result(30).controller.id]


def test_kafkas_tools_say_the_same_on_every_broker(cluster: LocalCluster) -> None:
    first, second, third = each_broker(cluster)
    kafka_tool(first, "topics", "--bootstrap-server", first.bootstrap, "--create", "--topic",
               "tools", "--partitions", "6", "--replication-factor", "3")
    described = {
        kafka_tool(at, "topics", "--bootstrap-server", at.bootstrap, "--describe",
                   "--topic", "tools")
        for at in (first, second, third)
    }
    (text,) = described
    assert sorted(re.findall(r"Leader: (\d)", text)) == ["1", "1", "2", "2", "3", "3"]
    quorum = kafka_tool(second, "metadata-quorum", "--bootstrap-server", second.bootstrap,
                        "describe", "--status")
    leader = next(n for n, b in cluster.brokers.items() if b is controller(cluster))
    assert re.search(rf"LeaderId:\s+{leader}\b", quorum)
    kafka_tool(third, "configs", "--bootstrap-server", third.bootstrap, "--alter", "--topic",
               "tools", "--add-config", "retention.ms=12345")
    told = kafka_tool(third, "configs", "--bootstrap-server", third.bootstrap, "--describe",
                      "--topic", "tools")
    assert "retention.ms=12345" in told, "the broker that was asked knows its own change"


def test_kcat_reaches_all_leaders_through_any_broker(cluster: LocalCluster) -> None:
    create(cluster, "kcat", 6, 1)
    text = b"".join(b"%d\twords %d\n" % (n, n) for n in range(3000))
    for at in each_broker(cluster):
        command = [program("kcat"), "-P", "-b", at.bootstrap, "-t", "kcat", "-K", "\t"]
        done = subprocess.run(command, input=text, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
    found = json.loads(
        readers.output_of([program("kcat"), "-L", "-J", "-b", each_broker(cluster)[1].bootstrap])
    )
    assert sorted(broker["id"] for broker in found["brokers"]) == [1, 2, 3]
    for at in each_broker(cluster):
        read = readers.read_with_kcat(at.bootstrap, "kcat")
        assert sum(len(lines) for lines in read.values()) == 9000
        assert len(read) == 6


def test_every_client_reads_what_every_client_wrote(cluster: LocalCluster) -> None:
    create(cluster, "clients", 6, 1)
    at = each_broker(cluster)[2]
    python = KafkaProducer(bootstrap_servers=at.bootstrap)
    for n in range(600):
        python.send("clients", b"value %d" % n, b"key %d" % n)
    python.flush(30)
    python.close()
    producer = Producer({"bootstrap.servers": at.bootstrap, "enable.idempotence": True})
    for n in range(600):
        producer.produce("clients", str(n), str(n))
    assert producer.flush(30) == 0
    expected = readers.read_with_kcat(at.bootstrap, "clients")
    assert sum(map(len, expected.values())) == 1200 and len(expected) == 6
    for read in (readers.read_with_kafka_python, readers.read_with_aiokafka,
                 readers.read_with_confluent_kafka):
        assert read(each_broker(cluster)[0].bootstrap, "clients") == expected
    for version in JAVA_CLIENTS:
        assert readers.read_with_java(version, at.bootstrap, "clients") == expected


def test_kafka_reassign_partitions_moves_a_partition_with_its_records(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("moves", 1, replica_assignment=[[1]])])["moves"].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(1000):
        producer.produce("moves", b"%d" % number)
    assert producer.flush(30) == 0
    plan = tmp_path / "plan.json"
    at = each_broker(cluster)[1]
    arguments = ("--bootstrap-server", "{}", "--reassignment-json-file", str(plan))
    for replicas in ([2, 3], [3, 1, 2], [1]):
        plan.write_text(json.dumps({"version": 1, "partitions": [
            {"topic": "moves", "partition": 0, "replicas": replicas}
        ]}))
        said = kafka_tool(at, "reassign", *arguments, "--execute")
        assert "Successfully started partition reassignment for moves-0" in said

        def placed(replicas: list[int] = replicas) -> bool:
            part = admin.list_topics("moves", 10).topics["moves"].partitions[0]
            return part.replicas == replicas and sorted(part.isrs) == sorted(replicas)

        wait_until(placed, f"the replicas are on {replicas}", 60)
        said = kafka_tool(at, "reassign", *arguments, "--verify")
        assert "Reassignment of partition moves-0 is completed." in said
        assert len(readers.read_with_kcat(cluster.bootstrap, "moves")[0]) == 1000

    def held() -> list[bool]:
        brokers = cluster.brokers.values()
        return [(b.directory / f"broker-{b.node_id}" / "moves-0").exists() for b in brokers]

    wait_until(lambda: held() == [True, False, False], "what has moved away is deleted", 30)


def test_a_throttle_is_set_and_removed_and_bounds_what_is_copied(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("slow", 1, replica_assignment=[[1]])])["slow"].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for _ in range(200):
        producer.produce("slow", os.urandom(100_000))
        producer.poll(0)
    assert producer.flush(60) == 0
    plan = tmp_path / "slow.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": "slow", "partition": 0, "replicas": [2]}
    ]}))
    at = each_broker(cluster)[1]
    arguments = ("--bootstrap-server", "{}", "--reassignment-json-file", str(plan))
    said = kafka_tool(at, "reassign", *arguments, "--execute", "--throttle", "2000000")
    assert "The inter-broker throttle limit was set to 2000000 B/s" in said
    began = time.monotonic()
    told = kafka_tool(at, "configs", "--bootstrap-server", "{}", "--describe", "--topic", "slow")
    assert "leader.replication.throttled.replicas=0:1" in told
    assert "follower.replication.throttled.replicas=0:2" in told

    def placed() -> bool:
        return admin.list_topics("slow", 10).topics["slow"].partitions[0].replicas == [2]

    wait_until(placed, "the partition has moved", 60)
    assert time.monotonic() - began > 5, "20 MB at 2 MB/s"
    said = kafka_tool(at, "reassign", *arguments, "--verify")
    assert "Reassignment of partition slow-0 is completed." in said
    assert "Clearing broker-level throttles" in said and "Clearing topic-level throttles" in said
    told = kafka_tool(at, "configs", "--bootstrap-server", "{}", "--describe", "--topic", "slow")
    assert "throttled" not in told


def test_kafka_delete_records_deletes_on_all_replicas(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    create(cluster, "deleted", 1, 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce("deleted", b"%d" % number)
    assert producer.flush(30) == 0
    wanted = tmp_path / "offsets.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": "deleted", "partition": 0, "offset": 40}
    ]}))
    at = each_broker(cluster)[0]
    said = kafka_tool(at, "delete-records", "--bootstrap-server", "{}",
                      "--offset-json-file", str(wanted))
    assert "partition: deleted-0\tlow_watermark: 40" in said
    leader = cluster.brokers[
        AdminClient({"bootstrap.servers": cluster.bootstrap})
        .list_topics("deleted", 10).topics["deleted"].partitions[0].leader
    ]
    leader.kill()
    try:
        # The new leader has deleted the records, too.
        (lines,) = readers.read_with_kcat(
            ",".join(a.bootstrap for a in each_broker(cluster)), "deleted").values()
        assert len(lines) == 60
    finally:
        leader.start()
        leader.wait_ready()


def test_kafkas_tools_tell_the_truth_about_replicas_and_the_quorum(cluster: LocalCluster) -> None:
    create(cluster, "truth", 3, 3)
    deciding = controller(cluster).node_id
    for at in each_broker(cluster):
        told = kafka_tool(at, "log-dirs", "--bootstrap-server", "{}", "--describe",
                          "--topic-list", "truth")
        (line,) = [line for line in told.splitlines() if line.startswith("{")]
        brokers = json.loads(line)["brokers"]
        assert sorted(each["broker"] for each in brokers) == [1, 2, 3]
        for each in brokers:
            (directory,) = each["logDirs"]
            assert directory["error"] is None and len(directory["partitions"]) == 3
        told = kafka_tool(at, "metadata-quorum", "--bootstrap-server", "{}", "describe",
                          "--replication")
        rows = [line.split() for line in told.splitlines() if line[:1].isdigit()]
        assert sorted(int(row[0]) for row in rows) == [1, 2, 3]
        assert [int(row[0]) for row in rows if "Leader" in row] == [deciding]
        assert all(int(row[2]) > 0 and int(row[3]) < 10 for row in rows), told     # offsets, lags
        told = kafka_tool(at, "topics", "--bootstrap-server", "{}", "--describe",
                          "--topic", "truth")
        assert told.count("Elr:") >= 3
        told = kafka_tool(at, "get-offsets", "--bootstrap-server", "{}", "--topic", "truth")
        assert sorted(told.split()) == ["truth:0:0", "truth:1:0", "truth:2:0"]


def test_another_broker_decides_when_the_controller_is_killed(cluster: LocalCluster) -> None:
    create(cluster, "before", 6, 3)
    killed = controller(cluster)
    rest = [at for at in each_broker(cluster) if at.bootstrap != killed.address]
    admin = AdminClient({"bootstrap.servers": ",".join(at.bootstrap for at in rest)})
    killed.kill()
    try:
        def led() -> bool:
            found = admin.list_topics("before", 10).topics["before"].partitions.values()
            return {part.leader for part in found} == set(cluster.brokers) - {killed.node_id}

        took = wait_until(led, "what the dead broker led is led by others")
        print(f"fail-over of a controller that led partitions: {took:.2f} s")
        # librdkafka would drop an unlisted broker, and requests waiting for that broker would hang.
        assert set(admin.list_topics(timeout=10).brokers) == set(cluster.brokers)
        admin.create_topics([NewTopic("after", 3, 2)])["after"].result(30)
    finally:
        killed.start()
        killed.wait_ready()
    found = kafka_tool(At(killed.address), "topics", "--bootstrap-server", killed.address,
                       "--list")
    assert {"before", "after"} <= set(found.split())


def test_nothing_acknowledged_is_lost_when_leaders_are_killed(cluster: LocalCluster) -> None:
    """acks=all on three replicas; each broker is killed once while a producer continues."""
    create(cluster, "kept", 3, 3)
    acknowledged: dict[bytes, tuple[int, int]] = {}

    def delivered(error: object, message: Message) -> None:
        if error is None:
            acknowledged[message.value()] = message.partition(), message.offset()

    producer = Producer({
        "bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "acks": "all",
        "linger.ms": 5, "delivery.timeout.ms": 60_000,
    })
    sent = 0

    def send(seconds: float) -> None:
        nonlocal sent
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            producer.produce("kept", b"%d" % sent, on_delivery=delivered)
            sent += 1
            producer.poll(0.001)

    send(1)
    for broker in cluster.brokers.values():
        broker.kill()
        send(3)
        broker.start()
        broker.wait_ready()
        send(1)
        wait_until(lambda: all_in_sync(cluster, "kept"), "all replicas are in sync again", 60)
    assert producer.flush(60) == 0
    assert len(acknowledged) == sent, "an idempotent producer gets everything through"
    read: dict[tuple[int, int], bytes] = {}
    for partition, lines in readers.read_with_kcat(cluster.bootstrap, "kept").items():
        for line in lines:
            offset, value = int(line.split(b"\t")[1]), line.rpartition(b"\t")[2]
            read[partition, offset] = value
    assert {place: value for value, place in acknowledged.items()} == read


def all_in_sync(cluster: LocalCluster, topic: str) -> bool:
    """Whether every partition has all its replicas in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    partitions = admin.list_topics(topic, 10).topics[topic].partitions.values()
    return all(len(part.isrs) == len(part.replicas) for part in partitions)


def test_brokers_with_the_file_of_the_page_about_three_machines_are_a_cluster(
    tmp_path: Path,
) -> None:
    zookeeper()
    page = [block.text for block in blocks("docs/cluster.md")]
    [settings] = [text for text in page if text.startswith("node.id=1\n")]
    [script] = [text for text in page if text.startswith("ottla server start /etc/ottla/")]
    start, *questions = script.splitlines()
    keeper = LocalZooKeeper(tmp_path / "zookeeper")
    brokers, port = list[subprocess.Popen[str]](), 0
    try:
        keeper.start()
        for node in (1, 2, 3):
            port, text = free_port(), settings
            for written, used in {
                "node.id=1": f"node.id={node}", "broker.rack=a": f"broker.rack={node}",
                "PLAINTEXT://:9092": f"PLAINTEXT://:{port}",
                "kafka1.example.org:9092": f"localhost:{port}",
                "/var/lib/ottla": f"{tmp_path}/data-{node}",
                "zk1.example.org:2181,zk2.example.org:2181,zk3.example.org:2181": keeper.connect,
            }.items():
                assert text.count(written) == 1, written
                text = text.replace(written, used)
            file = tmp_path / f"server-{node}.properties"
            file.write_text(text)
            words = shlex.split(start.replace("/etc/ottla/server.properties", str(file)))
            brokers.append(subprocess.Popen(
                [sys.executable, "-m", *words], stdout=subprocess.PIPE, text=True))
        for broker in brokers:
            assert broker.stdout is not None
            assert broker.stdout.readline().startswith("ottla ready: "), "its log says why"
        said = run_as_written("\n".join(questions), tmp_path, f"localhost:{port}")
        assert re.findall(r"^ *(\d) ", said, re.MULTILINE) == ["1", "2", "3"], said
    finally:
        for broker in brokers:
            with broker:
                broker.terminate()
        keeper.stop()


def zookeepers(cluster: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{cluster.pid}/task/{cluster.pid}/children").read_text().split()
    return [int(child) for child in children
            if b"QuorumPeerMain" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_the_example_of_cluster_start_runs_a_cluster_and_keeps_it_running(tmp_path: Path) -> None:
    """A killed broker is started again. The examples of `cluster stop-broker` and `restart-broker`
    stop and start a broker. `topic why` works. A killed ZooKeeper is started again, too. The end of
    the cluster does not wait for a ZooKeeper that hangs."""
    zookeeper()
    [example] = table.read("ottla")["cluster start"].examples
    command = [sys.executable, "-m", *shlex.split(example), "--port", "0"]
    log = (tmp_path / "log").open("w+")
    with log, subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=log, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        bootstrap, _, where = line.removeprefix("ottla cluster ready: ").partition(", data in ")
        assert where.strip() == str(tmp_path / "data"), line
        following = process.stdout.readline().partition("terminal: ")[2].partition(";")[0]
        assert len(subprocess.run(
            [sys.executable, "-m", "ottla", *shlex.split(following)[1:], "-o", "name"],
            stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()) == 3
        admin = AdminClient({"bootstrap.servers": bootstrap})
        assert len(admin.describe_cluster().result(30).nodes) == 3
        killed = holder_of(tmp_path / "data" / "broker-2")
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: holder_of(tmp_path / "data" / "broker-2") not in (0, killed),
                   "broker 2 runs again", 60)
        for verb in ("restart", "stop", "restart"):
            [example] = table.read("ottla")[f"cluster {verb}-broker"].examples
            subprocess.run([sys.executable, "-m", *shlex.split(example)], cwd=tmp_path, check=True)
            assert bool(holder_of(tmp_path / "data" / "broker-2")) == (verb == "restart")
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(30)
        why = [sys.executable, "-m", "ottla", "topic", "why", "orders", "-b", bootstrap]
        subprocess.run(why, stdout=subprocess.DEVNULL, check=True)
        [server] = zookeepers(process)
        os.kill(server, signal.SIGKILL)
        printed = tmp_path / "log"
        wait_until(lambda: "ZooKeeper was started again" in printed.read_text(), "it runs", 60)
        admin.create_topics([NewTopic("later", 1, 3)], operation_timeout=60)["later"].result(60)
        [server] = zookeepers(process)
        os.kill(server, signal.SIGSTOP)
        begin = time.monotonic()
        process.terminate()         # like Ctrl-C, whose SIGINT a shell's background jobs ignore
        assert process.wait(60) == 0 and time.monotonic() - begin < 30
        log.seek(0)
        said = log.read()
        assert "ZooKeeper has ended with status -9" in said
        assert "broker 2 has ended with status -9" in said and "starts again in 1 s" in said
        assert "broker 2 was stopped; it starts again" in said
        again = f"ottla cluster restart-broker 2 --dir {tmp_path / 'data'}"
        assert f"broker 2 was stopped; `{again}` starts it again" in said


def test_a_zookeeper_that_is_restored_while_brokers_run_ends_them_and_the_way_out_works(
    tmp_path: Path,
) -> None:
    """A server with an older log closes the connections of clients that have seen later
    transactions, and gives no reason. The brokers must find out nevertheless."""
    zookeeper()
    cluster = LocalCluster(tmp_path, 3)
    server, data, copy = cluster.zookeeper, tmp_path / "zookeeper" / "data", tmp_path / "backup"
    assert server is not None
    with cluster:
        create(cluster, "known", 3, 3)
        send(cluster, "known", "first")
        server.kill()
        shutil.copytree(data, copy)
        server.start()
        for number in range(5):
            create(cluster, f"later-{number}", 1, 3)
        send(cluster, "known", "second")
        # A broker that has not yet read the new topics loses nothing by the restore, and would
        # rightly continue. All three replicas have this record only if all brokers have read them.
        send(cluster, "later-4", "read by all")
        server.kill()
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        server.start()
        for broker in cluster.brokers.values():
            assert broker.process is not None
            assert broker.process.wait(120) == 1
            assert "was restored from a backup" in broker.printed()
        for broker in cluster.brokers.values():
            broker.start()
            with pytest.raises(ClientError, match="run `ottla cluster accept-backup`"):
                broker.wait_ready()
        directories = [tmp_path / f"broker-{node}" for node in cluster.brokers]
        accepted = subprocess.run(
            [sys.executable, "-m", "ottla", "cluster", "accept-backup", *directories, "--yes"],
            capture_output=True, text=True, check=False,
        )
        assert accepted.returncode == 0, accepted
        for broker in cluster.brokers.values():
            broker.start()
        for broker in cluster.brokers.values():
            broker.wait_ready()
        send(cluster, "known", "third")
        assert values(cluster, "known") == ["first", "second", "third"]


def send(cluster: LocalCluster, topic: str, value: str) -> None:
    """Produce one record to partition 0; all in-sync replicas acknowledge it."""
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    producer.produce(topic, value, partition=0, on_delivery=lambda e, _: refused.append(e))
    assert producer.flush(60) == 0 and refused == [None], refused


def values(cluster: LocalCluster, topic: str) -> list[str]:
    """The values of partition 0."""
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","))
    at = TopicPartition(topic, 0)
    consumer.assign([at])
    consumer.seek_to_beginning()
    (end,) = consumer.end_offsets([at]).values()
    found: list[str] = []
    while len(found) < end:
        for records in consumer.poll(1000).values():
            found += [record.value.decode() for record in records]
    consumer.close()
    return found
