"""The steps of docs/cluster_operations.md, with the commands that it names: a rolling restart under
a producer, the retirement of a broker, and what the checks report."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.wire.messages import DescribeQuorumRequest, DescribeQuorumResponse
from tests.broker.cluster.running_cluster import RunningCluster, clustered
from tests.documents import commands as of_page
from tests.documents import run_as_written
from tests.tools.cli.ottla_command import Ottla

RECORDS_A_STEP = 200


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    overrides = {
        "default.replication.factor": 3, "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": 3, "min.insync.replicas": 2,
        "group.initial.rebalance.delay.ms": 0,
    }
    with RunningCluster(tmp_path, **overrides) as running:
        yield running


def commands(cluster: RunningCluster) -> Ottla:
    """The command line with the addresses of all running brokers."""
    return Ottla(",".join(f"127.0.0.1:{cluster.ports[node]}" for node in cluster.servers))


def in_order(cluster: RunningCluster) -> None:
    """Wait until every broker sees all replicas in sync."""
    cluster.until(
        lambda: all(
            len(server.metadata_log.image.brokers) == len(cluster.servers)
            and all(
                len(state.isr) == len(state.replicas) and state.leader >= 0
                for topic in server.metadata_log.image.topics.values()
                for state in topic.partitions
            )
            for server in cluster.servers.values()
        ),
        "all replicas are in sync",
    )


async def calling(function: Callable[[], None]) -> None:
    """Call something on the brokers' loop."""
    function()


class BusyProducer:
    """Sends ascending numbers in a thread of its own until `end`. At most RECORDS_A_STEP of them
    are unacknowledged at any time."""

    def __init__(self, addresses: str, topic: str) -> None:
        self.producer = Producer({
            "bootstrap.servers": addresses, "enable.idempotence": True, "linger.ms": 1,
        })
        self.topic, self.sent, self.acknowledged = topic, 0, 0
        self.refused: list[object] = []
        self.some = threading.Condition()
        self.ended = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.ended:
            if self.sent - self.acknowledged < RECORDS_A_STEP:
                self.producer.produce(
                    self.topic, str(self.sent), key=str(self.sent % 7), on_delivery=self.delivered
                )
                self.sent += 1
                self.producer.poll(0)
            else:
                self.producer.poll(0.1)
        self.producer.flush(60)

    def delivered(self, error: object, _: object) -> None:
        with self.some:
            if error is not None:
                self.refused.append(error)
            self.acknowledged += 1
            self.some.notify_all()

    def wait_for_more(self) -> None:
        """Return once RECORDS_A_STEP more records have been acknowledged."""
        with self.some:
            wanted = self.acknowledged + RECORDS_A_STEP
            assert self.some.wait_for(lambda: self.acknowledged >= wanted, 60)

    def end(self) -> int:
        """Stop, and wait for all answers; returns how many records were sent."""
        self.ended = True
        self.thread.join(90)
        assert not self.thread.is_alive() and self.acknowledged == self.sent
        return self.sent


def test_a_rolling_restart_under_a_producer_loses_and_refuses_nothing(
    cluster: RunningCluster,
) -> None:
    ottla = commands(cluster)
    ottla.ok("topic create orders --partitions 6")
    in_order(cluster)
    producer = BusyProducer(ottla.address, "orders")
    producer.wait_for_more()
    rows = json.loads(ottla.ok("cluster info -o json"))
    order = [row["broker"] for row in sorted(rows, key=lambda row: row["controller"])]
    assert order[-1] == cluster.controller
    for node in order:
        ottla.ok(f"cluster check --without {node}")
        cluster.stop(node)
        producer.wait_for_more()
        done = commands(cluster)("cluster check")
        assert done.status == 1 and f"not in sync: {node}" in done.out, done
        assert ottla.ok("kafka-topics --bootstrap-server " + commands(cluster).address
                        + " --describe --under-replicated-partitions").count("orders") == 6
        cluster.start(node)
        in_order(cluster)
        ottla.ok("cluster check")
        producer.wait_for_more()
    sent = producer.end()
    assert not producer.refused
    read = ottla.ok("consume orders -o beginning -e").split()
    assert sorted(map(int, read)) == [*range(sent)], "each record once"


def assignment(cluster: RunningCluster) -> dict[tuple[str, int], tuple[int, ...]]:
    """The replicas of all partitions."""
    return {
        (topic.name, index): state.replicas
        for topic in cluster.servers[1].metadata_log.image.topics.values()
        for index, state in enumerate(topic.partitions)
    }


def test_a_broker_is_retired_by_the_documented_steps(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster.start(4)
    in_order(cluster)
    ottla = commands(cluster)
    ottla.ok("topic create orders small --partitions 4")
    ottla.ok("produce orders", b"first\nsecond\n")
    ottla.ok("consume orders -G billing -o beginning -n 2")
    in_order(cluster)
    image = cluster.servers[1].metadata_log.image
    assert any(4 in state.replicas for state in image.topics["orders"].partitions)

    before = assignment(cluster)
    assert "__consumer_offsets" in {topic for topic, _ in before}
    page = [block.text for block in of_page("docs/cluster_operations.md")]
    [plan] = [text for text in page if "reassign plan --without 4" in text]
    run_as_written(plan, tmp_path, ottla.address)
    tool = f"kafka-reassign-partitions --bootstrap-server {ottla.address}"
    cluster.until(
        lambda: all(
            4 not in state.replicas
            for server in cluster.servers.values()
            for topic in server.metadata_log.image.topics.values()
            for state in topic.partitions
        ),
        "everything has moved off broker 4",
    )
    verified = ottla.ok(f"{tool} --verify --reassignment-json-file plan.json")
    moved = sum(4 in replicas for replicas in before.values())
    assert "in progress" not in verified and verified.count("is completed") == moved > 0, verified
    after = assignment(cluster)
    assert sum(after[place] != replicas for place, replicas in before.items()) == moved, (
        "nothing else has moved"
    )
    done = ottla("reassign plan --without 4")
    assert (done.status, done.out, done.err) == (0, "", "no replicas are assigned to broker 4\n")
    unregister = f"kafka-cluster unregister --bootstrap-server {ottla.address} --id 4"
    refused = ottla(unregister)
    assert refused.status == 1 and "Broker 4 is running" in refused.err, refused
    [steps] = [text for text in page if "systemctl stop ottla" in text and "--id 4" in text]
    stop, remove, *checks = steps.splitlines()
    assert stop.startswith("systemctl stop ottla ")
    cluster.stop(4)
    cluster.until(
        lambda: all(4 not in each.metadata_log.image.brokers for each in cluster.servers.values()),
        "all have heard that broker 4 has stopped",
    )
    listed = f"kafka-cluster list-endpoints --bootstrap-server {ottla.address}"
    assert [line.split()[4] for line in ottla.ok(listed).splitlines()[1:]] == ["unfenced"] * 3
    fenced = ottla.ok(f"{listed} --include-fenced-brokers").splitlines()[1:]
    assert [(line.split()[0], line.split()[4]) for line in fenced] == [
        ("1", "unfenced"), ("2", "unfenced"), ("3", "unfenced"), ("4", "fenced")
    ]
    removed = run_as_written(remove, tmp_path, ottla.address)
    assert removed == "Broker 4 is no longer registered.\n"
    assert ottla.ok(f"{listed} --include-fenced-brokers") == ottla.ok(listed)
    in_order(cluster)
    run_as_written("\n".join(checks), tmp_path, ottla.address)
    read = ottla.ok("consume orders -o beginning -e").split()
    assert sorted(read) == ["first", "second"]
    assert "billing" in ottla.ok("group list -o name").split()


def test_a_broker_that_is_dead_for_good_is_retired_with_a_throttle(
    cluster: RunningCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dead broker gets no throttle rate, but the brokers that copy its partitions do."""
    monkeypatch.chdir(tmp_path)
    cluster.start(4)
    in_order(cluster)
    commands(cluster).ok("topic create orders --partitions 4")
    in_order(cluster)
    cluster.stop(4)
    cluster.until(
        lambda: all(4 not in each.metadata_log.image.brokers for each in cluster.servers.values()),
        "all have heard that broker 4 has stopped",
    )
    ottla = commands(cluster)
    Path("plan.json").write_text(ottla.ok("reassign plan --without 4"))
    tool = f"kafka-reassign-partitions --bootstrap-server {ottla.address}"
    plan = "--reassignment-json-file plan.json"
    said = ottla.ok(f"{tool} --execute --throttle 10000000 {plan}")
    assert "throttle limit was set to 10000000 B/s" in said
    configs = cluster.servers[cluster.controller].metadata_log.image.configs
    assert {name for kind, name in configs if kind == "broker" and name} == {"1", "2", "3"}
    cluster.until(
        lambda: 4 not in {node for nodes in assignment(cluster).values() for node in nodes},
        "everything has moved off broker 4",
    )
    assert "in progress" not in ottla.ok(f"{tool} --verify {plan}")
    in_order(cluster)
    left = cluster.servers[cluster.controller].metadata_log.image.configs
    assert not any("throttled" in key for settings in left.values() for key in settings)


def test_a_lower_min_insync_replicas_alone_completes_the_reassignment_that_it_held_up(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """The topic moves from broker 1 to broker 2, and stays on broker 4, which is down."""
    cluster.start(4)
    in_order(cluster)
    commands(cluster).ok(
        f"kafka-topics --bootstrap-server {commands(cluster).address} --create --topic orders"
        " --replica-assignment 1:4"
    )
    in_order(cluster)
    cluster.stop(4)
    ottla = commands(cluster)
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": "orders", "partition": 0, "replicas": [2, 4]}
    ]}))

    def isr() -> tuple[int, ...]:
        image = cluster.servers[cluster.controller].metadata_log.image
        return image.topics["orders"].partitions[0].isr

    cluster.until(lambda: isr() == (1,), "broker 4 is out of sync")
    ottla.ok(f"reassign start {plan}")
    cluster.until(lambda: set(isr()) == {1, 2}, "the new one is in sync")
    assert set(assignment(cluster)["orders", 0]) == {1, 2, 4}
    ottla.ok("config set topic/orders min.insync.replicas=1")
    cluster.until(lambda: assignment(cluster)["orders", 0] == (2, 4), "broker 1 is released")


def test_replicas_that_are_on_their_way_are_not_missing(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    """Replicas that a reassignment adds do not make a partition under-replicated, neither for
    kafka-topics nor in the metric. A rolling restart need not wait for them."""
    ottla = commands(cluster)
    topics = f"kafka-topics --bootstrap-server {ottla.address} --describe"
    ottla.ok("topic create orders --partitions 1 --replication-factor 1")
    in_order(cluster)
    before = assignment(cluster)["orders", 0]
    added = next(node for node in cluster.servers if node not in before)
    fetchers = clustered(cluster.servers[added]).fetchers
    assert fetchers is not None
    cluster.run(calling(fetchers.close))            # so it never comes in sync
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [
        {"topic": "orders", "partition": 0, "replicas": [*before, added]}
    ]}))
    ottla.ok(f"reassign start {plan}")
    cluster.until(lambda: added in assignment(cluster)["orders", 0], "it is being moved")
    assert ottla.ok(f"{topics} --under-replicated-partitions") == ""
    described = ottla.ok(f"{topics} --topic orders")
    assert "ReplicationFactor: 1\t" in described
    assert f"\tIsr: {before[0]}\tAdding Replicas: {added}\tRemoving Replicas: \tElr: " in described


def test_a_broker_that_is_cut_off_from_zookeeper_does_not_hide_what_is_not_in_order(
    cluster: RunningCluster,
) -> None:
    commands(cluster).ok("topic create orders --partitions 3")
    in_order(cluster)
    controller = cluster.controller
    cut, stopped = (node for node in cluster.servers if node != controller)

    session = cluster.sessions[cut]
    cluster.run(calling(session.cut))
    cluster.stop(stopped)
    cluster.until(
        lambda: stopped not in cluster.servers[controller].metadata_log.image.brokers,
        "the controller has noticed",
    )
    assert stopped in cluster.servers[cut].metadata_log.image.brokers
    done = Ottla(f"127.0.0.1:{cluster.ports[cut]}")("cluster check")
    cluster.run(calling(session.join))
    assert done.status == 1 and f"not in sync: {stopped}" in done.out, done


def test_nothing_is_in_order_while_no_broker_reaches_zookeeper(cluster: RunningCluster) -> None:
    """A broker that stops now could not hand over, and could not start again."""
    ottla = commands(cluster)
    ottla.ok("topic create orders --partitions 3")
    in_order(cluster)
    ottla.ok("cluster check --without 2")
    for session in cluster.sessions.values():
        cluster.run(calling(session.cut))
    begin = time.monotonic()
    done = ottla("cluster check --without 2 --timeout 1")
    refused = ottla("topic create more --timeout 1")
    took = time.monotonic() - begin
    for session in cluster.sessions.values():
        cluster.run(calling(session.join))
    assert done.status == 1 and "does not know whether there is a new controller" in done.err, done
    assert refused.status == 1 and took < 30, (refused, took)
    cluster.until(
        lambda: sum(s.metadata_log.is_controller for s in cluster.servers.values()) == 1, "one is"
    )
    ottla.ok("cluster check --without 2")


def quorum(cluster: RunningCluster, node_id: int) -> DescribeQuorumResponse.Topic.Partition:
    """A broker's answer to DescribeQuorum for the metadata log."""
    topic = DescribeQuorumRequest.Topic
    asked = topic(
        topic_name="__cluster_metadata", partitions=[topic.Partition(partition_index=0)])
    with cluster.client(node_id) as client:
        answer: DescribeQuorumResponse = client.call(DescribeQuorumRequest(topics=[asked]), 2)
    return answer.topics[0].partitions[0]


def test_every_broker_says_how_far_the_others_have_read_the_metadata(
    cluster: RunningCluster,
) -> None:
    ottla = commands(cluster)
    ottla.ok("topic create orders --partitions 3")
    in_order(cluster)
    for node_id in cluster.servers:
        part = quorum(cluster, node_id)
        assert len(part.current_voters) == 3 and part.observers == []
        assert len({each.replica_directory_id for each in part.current_voters} - {bytes(16)}) == 3
        for each in part.current_voters:
            assert 0 <= part.high_watermark - each.log_end_offset < 5, part
            assert each.last_fetch_timestamp > 0
    rows = json.loads(ottla.ok("cluster quorum -o json"))
    assert len(rows) == 3 and all(row["offset"] > 0 and row["lag"] < 5 for row in rows), rows
    address = f"--bootstrap-server {ottla.address}"
    shown = ottla.ok(f"kafka-metadata-quorum {address} describe --replication").splitlines()[1:]
    assert all(int(line.split()[2]) > 0 and int(line.split()[3]) < 5 for line in shown), shown


def test_it_is_said_since_when_a_broker_is_away(cluster: RunningCluster) -> None:
    """This holds whichever broker is the controller by now, as long as one of the running brokers
    has seen the absent broker leave."""

    def check() -> str:
        done = commands(cluster)("cluster check")
        assert done.status == 1, done
        return done.err.splitlines()[0]

    def restart(node_id: int) -> None:
        cluster.stop(node_id)
        cluster.start(node_id)
        cluster.until(lambda: all(
            len(s.metadata_log.image.brokers) == 2 and s.metadata_log.image.controller_id != node_id
            for s in cluster.servers.values()
        ), "it is registered again, and the other one is the controller")

    commands(cluster).ok("topic create orders --partitions 3")
    in_order(cluster)
    away = next(node for node in cluster.servers if node != cluster.controller)
    cluster.stop(away)
    cluster.until(
        lambda: all(away not in s.metadata_log.image.brokers for s in cluster.servers.values()),
        "the others know it",
    )
    now = datetime.now().astimezone()
    said = {f"broker {away} has been away since {now - timedelta(minutes=m):%H:%M %Z}"
            for m in (0, 1)}
    for node_id in cluster.servers:
        (one,) = quorum(cluster, node_id).observers
        assert one.replica_id == away and one.log_end_offset == -1
        assert abs(one.last_fetch_timestamp / 1000 - now.timestamp()) < 60
    assert check() in said
    roles = {row["node"]: row["role"] for row in json.loads(
        commands(cluster).ok("cluster quorum -o json"))}
    assert roles.pop(away) == "away" and sorted(roles.values()) == ["leader", "voter"]
    first, second = cluster.servers
    restart(first)
    assert quorum(cluster, first).observers[0].last_fetch_timestamp == -1
    assert check() in said
    restart(second)
    began_ms = cluster.servers[first].broker.departed.began_ms
    at = datetime.fromtimestamp(began_ms / 1000, now.tzinfo)
    assert check() == f"broker {away} has been away since before {at:%H:%M %Z}"
