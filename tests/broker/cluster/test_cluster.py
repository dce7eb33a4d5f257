"""Several brokers on one ZooKeeper: the controller, leaders, and which brokers are refused."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.http.server import all_metrics
from ottla.replication.coordination import Create, Operation, PendingAnswer, Set
from ottla.replication.metadata import ConfigSet, Decision, MetadataImage
from ottla.replication.steps import Steps
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DescribeClusterRequest,
    DescribeQuorumRequest,
    MetadataRequest,
)
from tests.broker.cluster.running_cluster import (
    RunningCluster,
    create,
    leaders,
    lose_next_write,
)
from tests.imports import imported


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    with RunningCluster(tmp_path) as running:
        yield running


def test_a_topic_is_asked_for_anywhere_and_placed_everywhere(cluster: RunningCluster) -> None:
    for node_id in (1, 2, 3):
        assert create(cluster, node_id, f"t{node_id}", 6, 2) == 0
        # The broker that was asked knows the topic when it answers.
        assert f"t{node_id}" in cluster.servers[node_id].metadata_log.image.topics
    for server in cluster.servers.values():
        cluster.until(lambda s=server: len(s.metadata_log.image.topics) == 3, "all topics are seen")
        assert sorted(leaders(server, "t1")) == [1, 1, 2, 2, 3, 3]
        led = [p for p in server.replicas if p.led_here]
        assert len(led) == 6
    assert create(cluster, 1, "too-many", 1, 4) == 38, "more replicas than brokers"


def test_every_broker_says_the_same_of_the_cluster(cluster: RunningCluster) -> None:
    for node_id in (1, 2, 3):
        with cluster.client(node_id) as client:
            found = client.call(DescribeClusterRequest(), 1)
            assert [broker.broker_id for broker in found.brokers] == [1, 2, 3]
            assert found.controller_id == cluster.controller
            assert found.cluster_id == cluster.servers[1].storage.cluster_id
            told = client.call(MetadataRequest(topics=[]), 12)
            assert told.controller_id == cluster.controller
            asked = DescribeQuorumRequest.Topic.Partition(partition_index=0)
            topic = DescribeQuorumRequest.Topic(
                topic_name="__cluster_metadata", partitions=[asked]
            )
            (answer,) = client.call(DescribeQuorumRequest(topics=[topic]), 2).topics
            (part,) = answer.partitions
            assert part.leader_id == cluster.controller and part.leader_epoch == 1
            ends = {voter.replica_id: voter.log_end_offset for voter in part.current_voters}
            assert list(ends) == [1, 2, 3]
            # On every broker, because kafka-metadata-quorum computes lags from the leader's offset.
            assert ends[part.leader_id] == ends[node_id] == part.high_watermark > 0


def test_a_controller_that_is_not_registered_is_among_the_voters_of_the_quorum(
    cluster: RunningCluster,
) -> None:
    """kafka-metadata-quorum ends with NoSuchElementException if the leader is not a voter."""
    other = next(node for node in cluster.servers if node != cluster.controller)
    log = cluster.servers[other].metadata_log
    there = {node: each for node, each in log.image.brokers.items() if node != cluster.controller}
    log.image = replace(log.image, brokers=there)
    asked = DescribeQuorumRequest.Topic.Partition(partition_index=0)
    topic = DescribeQuorumRequest.Topic(topic_name="__cluster_metadata", partitions=[asked])
    with cluster.client(other) as client:
        (part,) = client.call(DescribeQuorumRequest(topics=[topic]), 2).topics[0].partitions
    assert part.leader_id == cluster.controller
    assert part.leader_id in [voter.replica_id for voter in part.current_voters]


def test_a_broker_that_stops_hands_over_and_gets_back_what_it_led(cluster: RunningCluster) -> None:
    assert create(cluster, 1, "t", 3, 3) == 0
    former = cluster.controller
    epoch = cluster.servers[former].metadata_log.image.controller_epoch
    cluster.stop(former)
    rest = dict(cluster.servers)
    cluster.until(
        lambda: any(s.metadata_log.is_controller for s in rest.values())
        and all(former not in s.metadata_log.image.brokers for s in rest.values()),
        "another one decides",
    )
    server = cluster.servers[cluster.controller]
    assert server.metadata_log.image.controller_epoch == epoch + 1
    assert former not in leaders(server, "t")
    assert create(cluster, next(iter(rest)), "u", 2, 2) == 0
    cluster.start(former)
    again = cluster.servers[former]
    assert {"t", "u"} <= set(again.metadata_log.image.topics)
    assert len(list(again.replicas)) == 3


def test_a_broker_that_is_in_sync_again_leads_again_what_it_led(cluster: RunningCluster) -> None:
    assert create(cluster, 1, "t", 3, 3) == 0
    node_id = next(n for n in cluster.servers if n != cluster.controller)
    known = cluster.servers[node_id].metadata_log
    cluster.until(lambda: "t" in known.image.topics, "that broker has heard of the topic")
    before = leaders(cluster.servers[node_id], "t")
    cluster.stop(node_id)
    cluster.start(node_id)
    server = cluster.servers[node_id]
    assert node_id not in leaders(server, "t")

    def in_sync() -> bool:
        partitions = server.metadata_log.image.topics["t"].partitions
        return all(node_id in state.isr for state in partitions)

    cluster.until(in_sync, "the replicas that came back are in sync")
    cluster.until(lambda: cluster.leap(1) or leaders(server, "t") == before, "it leads again")


def test_a_topic_is_created_while_a_broker_restarts(cluster: RunningCluster) -> None:
    """As in Apache Kafka. Otherwise no client could create topics with three replicas during a
    rolling restart of three brokers."""
    cluster.stop(3)
    server = cluster.servers[1]
    cluster.until(lambda: 3 not in server.metadata_log.image.brokers, "it is away")
    assert create(cluster, 1, "t", 4, 3) == create(cluster, 2, "u", 1, 3) == 0
    assert create(cluster, 1, "too-many", 1, 4) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert 3 not in leaders(server, "t")
    cluster.start(3)
    cluster.until(
        lambda: all(
            set(state.isr) == {1, 2, 3} for name in ("t", "u")
            for state in server.metadata_log.image.topics[name].partitions
        ),
        "the third replicas are made and in sync",
    )


def test_a_broker_whose_session_ends_comes_back_under_another_epoch(
    cluster: RunningCluster,
) -> None:
    assert create(cluster, 1, "t", 3, 1) == 0
    follower = next(n for n in cluster.servers if n != cluster.controller)
    server = cluster.servers[follower]
    before = server.metadata_log.image.brokers[follower].epoch
    cluster.expire(follower)
    cluster.until(
        lambda: (b := server.metadata_log.image.brokers.get(follower)) and b.epoch > before
        and follower in leaders(server, "t"),
        "a new broker epoch, and what nobody else could lead",
    )
    assert not server.failure.done()


def test_metrics_count_what_happened_to_the_session_and_who_fetches(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, 2, ottla_http_listener="127.0.0.1:0") as cluster:
        assert create(cluster, 1, "t", 2, 2) == 0
        server = cluster.servers[2]
        assert server.http is not None
        monitor = server.http.monitor

        async def metrics() -> str:
            return "".join(all_metrics(monitor))

        cluster.until(lambda: cluster.leap(5) or monitor.fetch_rate > 0, "its fetcher has asked")
        before = cluster.run(metrics())
        session = "\nkafka_server_sessionexpirelistener_zookeeper"
        assert f"{session}expires_total 0\n" in before
        latency = "\nkafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
        assert re.search(rf"{latency}_count [1-9]", before)
        assert f'{latency}{{quantile="0.99"}} ' in before
        epoch = server.metadata_log.image.brokers[2].epoch
        cluster.expire(2)
        cluster.until(
            lambda: (b := server.metadata_log.image.brokers.get(2)) and b.epoch > epoch,
            "it is back",
        )
        after = cluster.run(metrics())
        for name in ("expires", "syncconnects"):
            assert f"{session}{name}_total 1\n" in after
        assert "\nkafka_controller_controllerstats_uncleanleaderelections_total 0\n" in after
        assert re.search(
            r'^kafka_server_fetcherlagmetrics_consumerlag\{clientId="ReplicaFetcherThread-0-1",'
            r'topic="t",partition="\d"\} 0$', before, re.MULTILINE)
        assert '\nkafka_server_replicafetchermanager_maxlag{clientId="Replica"} 0\n' in after


def test_a_controller_whose_session_ends_is_replaced_and_decides_nothing(
    cluster: RunningCluster,
) -> None:
    former = cluster.controller
    epoch = cluster.servers[former].metadata_log.image.controller_epoch
    cluster.expire(former)
    cluster.until(
        lambda: all(
            s.metadata_log.image.controller_epoch > epoch for s in cluster.servers.values()
        )
        and sum(s.metadata_log.is_controller for s in cluster.servers.values()) == 1,
        "one controller in a later epoch",
    )
    assert create(cluster, former, "t", 3, 1) == 0


def test_a_lost_answer_is_not_taken_for_done_nor_done_twice(cluster: RunningCluster) -> None:
    """The controller resigns, and the log shows the outcome of the write."""
    node_id = cluster.controller
    session = cluster.sessions[node_id]

    async def lose() -> None:
        session.lose_answers = 1
        cluster.loop.call_later(0.05, session.join)

    cluster.run(lose())
    assert create(cluster, node_id, "t", 1, 1) == 0
    for server in cluster.servers.values():
        cluster.until(lambda s=server: "t" in s.metadata_log.image.topics, "the topic is seen")


def test_a_controller_whose_own_write_never_arrived_takes_office_again(
    cluster: RunningCluster,
) -> None:
    """The controller waits for the outcome of a decision that no client requested, so no client
    retries it. Only the next term, its own or another broker's, shows that outcome."""
    controller = cluster.controller
    node_id, session = controller % 3 + 1, cluster.sessions[controller]
    server = cluster.servers[node_id]
    before = server.metadata_log.image.brokers[node_id].epoch
    lose_next_write(cluster, session)
    cluster.expire(node_id)
    registers_again(cluster, node_id, before)
    assert create(cluster, node_id, "t", 1, 3) == 0


@pytest.mark.parametrize("away", [0, 1])
def test_who_waits_for_a_write_that_never_arrived_is_answered(
    cluster: RunningCluster, away: int
) -> None:
    """The next entry with the lost entry's number shows that the write was lost, even if the same
    broker writes it in its next term. The broker that got the client's request then repeats it, so
    that clients that do not know NOT_CONTROLLER never get that code."""
    controller = cluster.controller
    session = cluster.sessions[controller]
    for other in cluster.sessions.values():
        if other is not session:                # so that no other broker is elected
            other.cut()
            cluster.loop.call_later(0.3, other.join)
    lose_next_write(cluster, session)
    assert create(cluster, (controller - 1 + away) % 3 + 1, "t", 1, 3) == ErrorCode.NONE
    log = cluster.servers[controller].metadata_log
    cluster.until(lambda: log.is_controller, "it is the controller again")


def test_a_decision_that_outlasts_its_controllers_term_brings_no_older_image_back(
    cluster: RunningCluster,
) -> None:
    """This holds also for a decision that changes nothing. If it brought back the image on which it
    began, the image would lack the entries that were read meanwhile, until the next entry."""
    controller = cluster.controller
    log = cluster.servers[controller].metadata_log
    seen: list[int] = []

    def takes_long(image: MetadataImage) -> Steps[Decision[None]]:
        while log.decided is image and not seen:
            yield
        seen.append(log.decided.entry)
        return Decision((), None)

    async def outlasts() -> int:
        asked = cluster.loop.create_task(log.decide(takes_long))
        cluster.loop.call_soon(
            cluster.zookeeper.expire, cluster.sessions[controller].session_id)
        await asked
        return log.decided.entry

    assert cluster.run(outlasts()) >= seen[0]


def registers_again(cluster: RunningCluster, node_id: int, before: int) -> None:
    """Wait until the broker reads in its metadata that it is registered with a later broker epoch.
    """
    log = cluster.servers[node_id].metadata_log
    cluster.until(
        lambda: (b := log.image.brokers.get(node_id)) and b.epoch > before,
        "it is registered again",
    )


def test_a_broker_that_refuses_connections_is_gone_until_it_registers_again(
    cluster: RunningCluster,
) -> None:
    assert create(cluster, 1, "t", 3, 3) == 0
    node_id = next(n for n in cluster.servers if n != cluster.controller)
    server, deciding = cluster.servers[node_id], cluster.servers[cluster.controller]
    before = server.metadata_log.image.brokers[node_id].epoch
    assert deciding.member is not None
    member = deciding.member

    async def refused() -> None:
        member.controller.refused(node_id)

    cluster.run(refused())
    # It is still running, and registers again.
    registers_again(cluster, node_id, before)
    assert node_id not in leaders(server, "t"), "its leadership went to somebody else"


def test_a_broker_that_is_removed_while_its_connection_is_away_registers_again(
    cluster: RunningCluster,
) -> None:
    """Seed 118009 of the simulation: the broker reads of its removal while it registers after the
    interruption. Its session has not ended, and its node still exists."""
    node_id = next(n for n in cluster.servers if n != cluster.controller)
    server, deciding = cluster.servers[node_id], cluster.servers[cluster.controller]
    before = server.metadata_log.image.brokers[node_id].epoch
    assert deciding.member is not None
    member = deciding.member

    async def removed_unheard() -> None:
        cluster.sessions[node_id].cut()
        member.controller.refused(node_id)

    async def back() -> None:
        cluster.sessions[node_id].join()

    cluster.run(removed_unheard())
    cluster.until(lambda: node_id not in deciding.metadata_log.image.brokers, "it is removed")
    cluster.run(back())
    registers_again(cluster, node_id, before)


def test_a_broker_whose_registration_and_removal_are_seen_at_once_registers_again(
    cluster: RunningCluster,
) -> None:
    """The broker's connection breaks right after its registration, but its session lasts. When the
    broker reads of both, its replicas are still busy with an earlier image."""
    node_id = next(n for n in cluster.servers if n != cluster.controller)
    deciding, session = cluster.servers[cluster.controller].member, cluster.sessions[node_id]
    assert deciding is not None
    decided, log = deciding.session.metadata, cluster.servers[node_id].metadata_log
    send = session.multi
    known = decided.image.brokers[node_id].epoch
    earlier = ConfigSet("group", "g", "consumer.heartbeat.interval.ms", "5000")

    def registers_unheard(operations: Sequence[Operation]) -> PendingAnswer[None]:
        asked = send(operations)
        if any(isinstance(each, Create) for each in operations):
            cluster.loop.create_task(decided.decide(lambda image: Decision([earlier], None)))
            cluster.loop.call_soon(session.cut)
        return asked

    def busy(*images: object) -> Iterator[None]:
        while log.decided.entry < last:
            yield

    async def refused() -> None:
        deciding.controller.refused(node_id)

    async def back() -> None:
        session.multi = send                    # type: ignore[method-assign]
        log.subscribe(busy)
        session.join()

    session.multi = registers_unheard           # type: ignore[method-assign]
    cluster.run(refused())
    cluster.until(
        lambda: (b := decided.image.brokers.get(node_id)) and b.epoch > known, "it is registered"
    )
    cluster.leap(session.session_timeout_ms / 1000)
    cluster.run(refused())
    cluster.until(lambda: node_id not in decided.image.brokers, "it is removed again")
    last, known = decided.decided.entry, decided.image.former[node_id].epoch
    cluster.run(back())
    registers_again(cluster, node_id, known)


def test_a_broker_that_is_removed_again_while_it_registers_registers_once_more(
    cluster: RunningCluster,
) -> None:
    """The broker reads of its second removal before ZooKeeper has answered its registration."""
    node_id = next(n for n in cluster.servers if n != cluster.controller)
    deciding, session = cluster.servers[cluster.controller].member, cluster.sessions[node_id]
    assert deciding is not None
    log, send = cluster.servers[node_id].metadata_log, session.multi
    before, removed = log.image.brokers[node_id].epoch, []

    async def answered_late(operations: Sequence[Operation]) -> None:
        await send(operations)
        await log.until(lambda image: node_id in image.brokers)
        removed.append(log.image.brokers[node_id].epoch)
        cluster.clock.passed_seconds += session.session_timeout_ms / 1000
        deciding.controller.refused(node_id)
        await log.until(lambda image: node_id not in image.brokers)

    def registers(operations: Sequence[Operation]) -> Awaitable[None]:
        if not any(isinstance(each, Create) for each in operations):
            return send(operations)
        session.multi = send                    # type: ignore[method-assign]
        return answered_late(operations)

    async def refused() -> None:
        deciding.controller.refused(node_id)

    session.multi = registers                   # type: ignore[method-assign]
    cluster.run(refused())
    cluster.until(lambda: removed, "it has registered again")
    registers_again(cluster, node_id, removed[0])
    assert removed[0] > before


def test_a_controller_that_refuses_connections_is_deposed_before_its_session_ends(
    cluster: RunningCluster,
) -> None:
    assert create(cluster, 1, "t", 3, 3) == 0
    node_id = cluster.controller
    server = cluster.servers[node_id]
    epoch = server.metadata_log.image.controller_epoch
    before = server.metadata_log.image.brokers[node_id].epoch
    member = cluster.servers[node_id % 3 + 1].member
    assert member is not None

    async def refused() -> None:
        member.controller.refused(node_id)

    cluster.run(refused())
    cluster.until(
        lambda: (b := server.metadata_log.image.brokers.get(node_id)) and b.epoch > before,
        "the deposed one has seen it, and is registered again",
    )
    assert cluster.controller == node_id % 3 + 1
    image = server.metadata_log.image
    assert image.controller_epoch == epoch + 1 and node_id not in leaders(server, "t")
    assert create(cluster, node_id, "u", 1, 1) == 0


def test_a_broker_that_refuses_connections_is_gone_for_the_next_controller_as_well(
    cluster: RunningCluster,
) -> None:
    """The broker's process has ended, but its session lasts. The next controller must not take the
    session for a sign of life, and give that broker leadership or replicas of new topics."""
    former = cluster.controller
    node_id = former % 3 + 1
    log, deciding = cluster.servers[former].metadata_log, cluster.servers[former].member
    assert deciding is not None
    before, known = log.image.brokers[former].epoch, log.image.brokers[node_id].epoch

    async def ends() -> None:
        cluster.sessions[node_id].cut()
        deciding.controller.refused(node_id)

    async def back() -> None:
        cluster.sessions[node_id].join()

    def looks_no_more() -> bool:
        members = [server.member for server in cluster.servers.values()]
        return any(
            member and member.session.metadata.is_controller and member.controller.looking is None
            for member in members
        )

    cluster.run(ends())
    cluster.until(lambda: node_id not in log.image.brokers, "it is gone")
    cluster.expire(former)
    registers_again(cluster, former, before)
    cluster.until(looks_no_more, "the next controller has seen who is there")
    assert node_id not in log.image.brokers
    cluster.run(back())
    registers_again(cluster, node_id, known)


def test_a_controller_that_is_deposed_as_it_stops_hands_over_nevertheless(
    cluster: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    assert create(cluster, 1, "t", 3, 3) == 0
    stopped = cluster.controller
    log = cluster.servers[stopped % 3 + 1].metadata_log
    heard: list[bool] = []
    log.subscribe(lambda old, new, topics: heard.append(stopped in new.leaving))
    lose_next_write(cluster, cluster.sessions[stopped])
    cluster.stop(stopped)
    cluster.until(lambda: stopped not in log.image.brokers, "it is gone")
    assert any(heard) and "could not be handed over" not in caplog.text


def test_a_controller_is_not_deposed_for_what_it_refused_in_an_earlier_term(
    cluster: RunningCluster,
) -> None:
    """Two brokers want to replace a controller that refused connections, and the faster one does.
    The slower one reconnects to ZooKeeper so late that the refusing broker is the controller once
    more. It must not depose that broker for the old refusal."""
    former = cluster.controller
    faster, slower = (n for n in cluster.servers if n != former)
    candidates = {n: cluster.servers[n].member for n in (faster, slower)}

    async def refused() -> None:
        cluster.sessions[slower].cut()
        for member in candidates.values():
            assert member is not None
            member.controller.refused(former)

    async def back() -> None:
        cluster.sessions[slower].join()

    async def away() -> None:
        cluster.sessions[slower].cut()

    def is_controller(node_id: int) -> None:
        logs = [server.metadata_log for server in cluster.servers.values()]
        cluster.until(
            lambda: cluster.servers[node_id].metadata_log.is_controller
            and all(log.image.controller_id == node_id for log in logs), "all know it"
        )

    cluster.run(refused())
    cluster.until(lambda: cluster.servers[faster].metadata_log.is_controller, "it was faster")
    cluster.run(back())
    is_controller(faster)
    cluster.run(away())
    cluster.stop(faster)
    log = cluster.servers[former].metadata_log
    cluster.until(lambda: log.is_controller, "nobody else can be")
    epoch = log.image.controller_epoch
    cluster.run(back())
    is_controller(former)
    assert create(cluster, slower, "t", 1, 1) == 0
    assert cluster.controller == former and log.image.controller_epoch == epoch


def test_garbage_in_the_log_ends_whoever_reads_it(cluster: RunningCluster) -> None:
    entry = max(path for path in cluster.zookeeper.nodes if path.startswith("/metadata/log/"))
    number = int(entry.rpartition("/")[2]) + 1

    async def write() -> None:
        cluster.zookeeper.multi(0, [Create(f"/metadata/log/{number:013d}", b"garbage")])

    cluster.run(write())
    for server in cluster.servers.values():
        failure = server.failure
        cluster.until(failure.done, "the broker ends")
        assert "not readable" in failure.result()


def test_a_registration_that_is_not_readable_is_passed_over(cluster: RunningCluster) -> None:
    async def write() -> None:
        cluster.zookeeper.multi(0, [Create("/brokers/ids/9", b"{}")])
        cluster.zookeeper.multi(0, [Set("/brokers/ids/9", b"[]")])

    cluster.run(write())
    assert create(cluster, 1, "t", 3, 3) == 0
    assert sorted(cluster.servers[1].metadata_log.image.brokers) == [1, 2, 3]


def test_a_broker_alone_imports_nothing_of_clusters() -> None:
    assert imported(
        "import ottla.broker.service", "kazoo", "ottla.broker.cluster.member",
        "ottla.broker.peers.peers", "ottla.replication.cluster_store",
    ) == []
