"""Brokers in three racks: every partition has a replica in each rack, whatever placed it there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.cluster.running_cluster import RunningCluster
from tests.tools.cli.ottla_command import Ottla

RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    overrides = {
        "default.replication.factor": 3, "offsets.topic.num.partitions": 6,
        "offsets.topic.replication.factor": 3, "num.partitions": 6,
        "group.initial.rebalance.delay.ms": 0,
    }
    with RunningCluster(tmp_path, brokers=0, **overrides) as running:
        for node, rack in RACKS.items():
            running.start(node, broker_rack=rack)
        running.until(
            lambda: all(len(server.metadata_log.image.brokers) == len(RACKS)
                        for server in running.servers.values()), "all know all",
        )
        yield running


@pytest.fixture
def ottla(cluster: RunningCluster) -> Ottla:
    return Ottla(f"127.0.0.1:{cluster.ports[1]}")


def replicas(ottla: Ottla, topic: str) -> list[list[int]]:
    rows = json.loads(ottla.ok(f"topic describe {topic} -o json"))
    return [row["replicas"] for row in rows]


def evenly_on_all_racks(placed: list[list[int]]) -> bool:
    """Whether each partition is on all racks, and all brokers have equally many replicas and lead
    equally many partitions."""
    held = Counter(node for each in placed for node in each)
    led = Counter(each[0] for each in placed)
    return (
        all({RACKS[node] for node in each} == {"a", "b", "c"} for each in placed)
        and {*held, *led} == {*RACKS}
        and len({*held.values()}) == len({*led.values()}) == 1
    )


def test_topics_of_every_origin_and_their_later_partitions_are_on_all_racks(
    cluster: RunningCluster, ottla: Ottla
) -> None:
    topics = f"kafka-topics --bootstrap-server {ottla.address}"
    ottla.ok(f"{topics} --create --topic made --partitions 6 --replication-factor 3")
    assert evenly_on_all_racks(replicas(ottla, "made"))
    ottla.ok(f"{topics} --alter --topic made --partitions 12")
    assert len(replicas(ottla, "made")) == 12 and evenly_on_all_racks(replicas(ottla, "made"))
    ottla.ok("produce automatic", b"1\n")
    assert evenly_on_all_racks(replicas(ottla, "automatic"))
    ottla.ok("consume automatic -G g -o beginning -n 1")
    assert evenly_on_all_racks(replicas(ottla, "__consumer_offsets"))


def test_a_plan_of_kafka_reassign_partitions_goes_over_the_racks(
    cluster: RunningCluster, ottla: Ottla, tmp_path: Path
) -> None:
    ottla.ok("topic create t -p 6 -r 3")
    (tmp_path / "topics.json").write_text('{"version": 1, "topics": [{"topic": "t"}]}')
    line = (
        f"kafka-reassign-partitions --bootstrap-server {ottla.address} --generate"
        f" --topics-to-move-json-file {tmp_path / 'topics.json'} --broker-list "
    )

    def plan(arguments: str) -> list[list[int]]:
        proposed = json.loads(ottla.ok(line + arguments).splitlines()[-1])
        return [item["replicas"] for item in proposed["partitions"]]

    assert evenly_on_all_racks(plan("1,2,3,4,5,6"))
    for placed in plan("1,2,3,5"):
        assert {RACKS[node] for node in placed} == {"a", "b", "c"}
    assert plan("1,2,3,4,5,6 --disable-rack-aware")[0] == [1, 2, 3]
    cluster.start(7)
    cluster.until(lambda: 7 in cluster.servers[1].metadata_log.image.brokers, "it is known")
    refused = ottla(line + "1,3,7")
    assert refused.status == 1
    assert "Not all brokers have rack information. Add --disable-rack-aware" in refused.out, refused
    assert {node for each in plan("1,3,7 --disable-rack-aware") for node in each} == {1, 3, 7}
