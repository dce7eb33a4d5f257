"""A group's lag in records, bytes and seconds, and the names that other exporters have for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.settings.config import BrokerConfig
from ottla.broker.settings.declaration import SettingsError
from ottla.client.cluster import ClusterClient
from ottla.tools.admin import groups, offsets, topics
from ottla.tools.stream.batches import SingleSender
from ottla.wire.records import Record, build_batch
from tests.broker.produce_fetch import produce
from tests.broker.running import RunningBroker, WireClient

SMALL = {"segment.bytes": "1048576"}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = tmp_path_factory.mktemp("data")
    with RunningBroker(
        data, ottla_http_listener="127.0.0.1:0",
        ottla_metrics_compat="confluent, lag_exporter",
    ) as running:
        yield running


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[ClusterClient]:
    with ClusterClient(f"127.0.0.1:{broker.port}") as connected:
        yield connected


def get(broker: RunningBroker, path: str) -> str:
    assert broker.server.http is not None
    with urlopen(f"http://127.0.0.1:{broker.server.http.port}{path}") as answer:
        return str(answer.read().decode())


def samples(broker: RunningBroker) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(get(broker, "/metrics"))
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: object) -> float:
    return found[name, frozenset((key, str(each)) for key, each in labels.items())]


def fill(
    broker: RunningBroker, cluster: ClusterClient, topic: str, ages_seconds: list[int]
) -> list[int]:
    """Create a topic with a record of 400 kB for each age, two to a segment; returns the batches'
    sizes."""
    topics.create(cluster, topic, partitions=1, configs=SMALL)
    now_ms = broker.server.clock.now_ms()
    sizes = []
    for age in ages_seconds:
        before = size_of(broker, topic)
        record = Record(-1, now_ms - age * 1000, None, bytes(400_000), ())
        SingleSender(cluster).send(topic, record, 0)
        sizes.append(size_of(broker, topic) - before)
    return sizes


def size_of(broker: RunningBroker, topic: str) -> int:
    partition = broker.server.replicas.partition(topic, 0)
    assert partition is not None
    return partition.log.size_bytes


def lag_of(broker: RunningBroker, group: str, topic: str) -> tuple[float, float, float]:
    """A group's lag in records, bytes and seconds."""
    found, where = samples(broker), {"consumergroup": group, "topic": topic, "partition": 0}
    records = value(found, "kafka_consumergroup_lag", **where)
    size = value(found, "ottla_consumergroup_lag_bytes", **where)
    return records, size, value(found, "ottla_consumergroup_lag_seconds", **where)


def test_the_lag_is_what_is_behind_the_committed_offset(
    broker: RunningBroker, cluster: ClusterClient
) -> None:
    ages = [900, 800, 700, 600, 500, 400, 300]
    sizes = fill(broker, cluster, "behind", ages)
    partition = broker.server.replicas.partition("behind", 0)
    assert partition is not None and partition.log.segment_count > 1
    for committed in (0, 2, 4, 3, 6):
        groups.commit(cluster, "slow", {("behind", 0): committed})
        for _ in range(2):                      # the first is looked up, the second cached
            records, size, seconds = lag_of(broker, "slow", "behind")
            assert (records, size) == (7 - committed, sum(sizes[committed:]))
            assert ages[committed] <= seconds < ages[committed] + 90
    groups.commit(cluster, "slow", {("behind", 0): 7})
    assert lag_of(broker, "slow", "behind") == (0, 0, 0)
    [listed] = [g for g in json.loads(get(broker, "/api/v1/groups")) if g["group"] == "slow"]
    assert (listed["lag"], listed["lag_bytes"], listed["lag_seconds"]) == (0, 0, 0)


def test_a_log_that_cannot_be_opened_hides_no_other_metric(tmp_path: Path) -> None:
    settings = {"ottla_http_listener": "127.0.0.1:0"}
    for restarted in (False, True):
        with RunningBroker(tmp_path, **settings) as broker:
            with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
                if not restarted:
                    fill(broker, cluster, "lost", [900, 800])
                    groups.commit(cluster, "slow", {("lost", 0): 0})
                    continue
                groups.committed(cluster, "slow")
            partition = broker.server.replicas.partition("lost", 0)
            assert partition is not None
            broker.call(partition.log.health.watch, None)
            broker.call(partition.log.fail, "its disk died")
            where = {"consumergroup": "slow", "topic": "lost", "partition": 0}
            assert value(samples(broker), "kafka_consumergroup_lag", **where) == 2


def test_what_is_deleted_is_not_behind_any_more(
    broker: RunningBroker, cluster: ClusterClient
) -> None:
    sizes = fill(broker, cluster, "trimmed", [50, 40, 30, 20, 10, 5])
    groups.commit(cluster, "late", {("trimmed", 0): 1})
    assert lag_of(broker, "late", "trimmed")[1] == sum(sizes[1:])
    offsets.delete_or_raise(cluster, {("trimmed", 0): 4})
    for _ in range(2):
        records, size, seconds = lag_of(broker, "late", "trimmed")
        assert (records, size) == (5, sum(sizes[4:])) and 10 <= seconds < 90
    topics.delete(cluster, ["trimmed"])
    assert not [key for key in samples(broker) if ("topic", "trimmed") in key[1]]


def test_kafka_lag_exporters_names(broker: RunningBroker, cluster: ClusterClient) -> None:
    fill(broker, cluster, "exported", [30, 20, 10])
    groups.commit(cluster, "exporting", {("exported", 0): 1})
    found, name = samples(broker), "kafka_consumergroup_group_"
    here = {"cluster_name": broker.server.metadata_log.image.cluster_id}
    where = {**here, "group": "exporting", "topic": "exported", "partition": 0}
    assert value(found, f"{name}offset", **where) == 1
    assert value(found, f"{name}lag", **where) == 2
    assert 20 <= value(found, f"{name}lag_seconds", **where) < 110
    assert value(found, f"{name}topic_sum_lag", **here, group="exporting", topic="exported") == 2
    for one in ("max_lag", "sum_lag"):
        assert value(found, f"{name}{one}", **here, group="exporting") == 2
    assert 20 <= value(found, f"{name}max_lag_seconds", **here, group="exporting") < 110
    place = {**here, "topic": "exported", "partition": 0}
    assert value(found, "kafka_partition_earliest_offset", **place) == 0
    assert value(found, "kafka_partition_latest_offset", **place) == 3


def test_confluents_names_have_the_same_values(
    broker: RunningBroker, cluster: ClusterClient
) -> None:
    fill(broker, cluster, "confluent", [1, 1])
    found = samples(broker)
    for what in ("messagesin", "bytesin", "bytesout", "totalproducerequests"):
        name = f"kafka_server_brokertopicmetrics_{what}"
        for labels in ({}, {"topic": "confluent"}):
            same = value(found, f"{name}_total", **labels)
            assert value(found, f"{name}persec", **labels) == same
    names = {name for name, _ in found}
    assert {
        "kafka_network_requestmetrics_requestspersec",
        "kafka_server_replicamanager_isrshrinkspersec",
        "kafka_server_replicamanager_isrexpandspersec",
        "kafka_controller_controllerstats_uncleanleaderelectionspersec",
    } <= names
    connected = [
        (dict(labels)["client_software_name"], number) for (name, labels), number in found.items()
        if name == "kafka_server_socketservermetrics_connections"
    ]
    assert sum(number for _, number in connected) >= 1


def test_each_metric_is_one_group_under_every_name(broker: RunningBroker) -> None:
    types = [line.split()[2] for line in get(broker, "/metrics").splitlines()
             if line.startswith("# TYPE ")]
    assert len(types) == len(set(types))


def test_an_unknown_family_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"ottla.metrics.compat.*'redpanda'.*confluent"):
        BrokerConfig.load(None, ["ottla.metrics.compat=confluent,redpanda"])


def test_a_record_within_a_batch_is_as_old_as_itself(
    broker: RunningBroker, cluster: ClusterClient
) -> None:
    topics.create(cluster, "imported", partitions=1)
    now_ms = broker.server.clock.now_ms()
    ages = [4000, 3000, 2000, 1000, 0]
    batch = build_batch([
        Record(number, now_ms - age * 1000, None, b"x", ()) for number, age in enumerate(ages)])
    with WireClient(broker.address) as client:
        assert produce(client, "imported", batch).error_code == 0
    for committed, age in enumerate(ages):
        groups.commit(cluster, "importer", {("imported", 0): committed})
        assert age <= lag_of(broker, "importer", "imported")[2] < age + 90
