"""Metrics, health and status over HTTP, as Prometheus and people read them."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.http.exposition import ROWS_PER_PIECE
from ottla.broker.http.server import all_metrics
from ottla.broker.settings.config import BrokerConfig, SettingsError
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.client.frames import BadResponse
from ottla.tools.command import main
from ottla.wire.batch import batches
from ottla.wire.compression import Codec
from ottla.wire.errors import ErrorCode
from ottla.wire.legacy import down_convert
from ottla.wire.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
    OffsetCommitRequest,
)
from tests.broker.produce_fetch import batch, fetch, fetch_request, produce
from tests.broker.running import RunningBroker, WireClient, pass_time
from tests.waiting import until

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = tmp_path_factory.mktemp("data")
    with RunningBroker(data, ottla_http_listener="127.0.0.1:0") as running:
        yield running


def http(broker: RunningBroker, request: str) -> tuple[int, dict[str, str], str]:
    """Send a raw request; returns the answer's status, headers and body."""
    assert broker.server.http is not None
    with socket.create_connection(("127.0.0.1", broker.server.http.port), 20) as client:
        client.sendall(request.encode())
        data = b"".join(iter(lambda: client.recv(1 << 16), b""))
    head, _, body = data.decode().partition("\r\n\r\n")
    first, *rest = head.split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in rest), body


def get(broker: RunningBroker, path: str) -> str:
    status, _, body = http(broker, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status == 200, body
    return body


def samples(broker: RunningBroker) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(get(broker, "/metrics"))
        for sample in family.samples
    }


def value(found: Any, name: str, **labels: object) -> float:
    wanted = frozenset((key, str(each)) for key, each in labels.items())
    return float(found[name, wanted])


@pytest.fixture
def used(broker: RunningBroker, topic: str) -> str:
    """A topic with three records, which were fetched once. A group has committed the first one."""
    with WireClient(broker.address) as client:
        for text in (b"a", b"b", b"c"):
            assert produce(client, topic, batch(text)).error_code == 0
        fetch(client, topic)
        assert produce(client, "missing", batch(b"x")).error_code == 3
    commit = OffsetCommitRequest.Topic
    partition = commit.Partition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=f"group of {topic}", generation_id_or_member_epoch=-1,
        topics=[commit(name=topic, partitions=[partition])],
    )
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:

        def committed() -> None:
            done = cluster.coordinator(request.group_id).call(request, 2)
            check(done.topics[0].partitions[0].error_code)

        cluster.with_retries(committed)
    return topic


def test_prometheus_reads_what_was_produced_fetched_and_committed(
    broker: RunningBroker, used: str
) -> None:
    found = samples(broker)
    traffic = "kafka_server_brokertopicmetrics_"
    assert value(found, f"{traffic}messagesin_total", topic=used) == 3
    size = value(found, f"{traffic}bytesin_total", topic=used)
    assert size == value(found, "kafka_log_log_size", topic=used, partition=0) > 3 * 61
    assert value(found, f"{traffic}bytesout_total", topic=used) == size
    assert value(found, f"{traffic}totalproducerequests_total", topic=used) == 3
    assert value(found, f"{traffic}messagesin_total") >= 3
    assert value(found, "kafka_topic_partition_current_offset", topic=used, partition=0) == 3
    assert value(found, "kafka_topic_partitions", topic=used) == 2
    group = f"group of {used}"
    where = {"consumergroup": group, "topic": used}
    assert value(found, "kafka_consumergroup_lag", partition=0, **where) == 2
    assert value(found, "kafka_consumergroup_lag_sum", **where) == 2
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    assert value(
        found, "kafka_network_requestmetrics_errors_total", request="Produce", error=error) >= 1
    timed = "ottla_request_duration_seconds_count"
    assert value(found, timed, request="Produce") >= 4
    assert 0 < value(found, "ottla_request_duration_seconds_sum", request="Produce") < 60
    assert value(found, "process_resident_memory_bytes") > 1 << 20


def test_the_time_of_a_request_has_its_parts_and_what_waits_is_counted(
    broker: RunningBroker, topic: str
) -> None:
    def now(name: str, **of: Any) -> float:
        return value(samples(broker), name, **of)

    def times(phase: str) -> float:
        return now(f"kafka_network_requestmetrics_{phase}timems", request="Fetch", quantile=0.999)

    def waiting() -> float:
        return now("kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation="Fetch")

    with WireClient(broker.address) as client:
        fetch(client, topic)
        assert waiting() == 0
        later = client.send(fetch_request(topic, max_wait_ms=60_000), 11)
        until(lambda: waiting() == 1, "it waits for bytes")
        assert now("ottla_requests_waiting", request="Fetch") == 1
        pass_time(broker, 60)
        client.answer(later)
        assert waiting() == 0
    assert times("remote") >= 60_000 <= times("total")
    assert times("local") < 60_000 and times("requestqueue") < 60_000
    assert times("throttle") < 1
    counted = [                     # prometheus_client adds _total to the name of a counter
        now(f"kafka_network_requestmetrics_{phase}timems_count_total", request="Fetch")
        for phase in ("total", "requestqueue", "local", "remote", "throttle")
    ]
    assert len(set(counted)) == 1


def test_what_was_too_large_and_what_was_converted_is_counted(
    broker: RunningBroker, topic: str
) -> None:
    traffic = "kafka_server_brokertopicmetrics_"
    counted = ("bytesrejected", "producemessageconversions", "fetchmessageconversions")

    def figures(**where: object) -> list[float]:
        found = samples(broker)
        return [value(found, f"{traffic}{name}_total", **where) for name in counted]

    before = figures()
    too_large = batch(bytes(2 << 20))
    with WireClient(broker.address) as client:
        assert produce(client, topic, batch(b"a", b"b")).error_code == 0
        assert figures(topic=topic) == [0, 0, 0]
        assert produce(client, topic, too_large).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert figures(topic=topic) == [len(too_large), 0, 0]
        old = down_convert(batch(b"c", b"d", b"e"), 1)
        assert produce(client, topic, old, 2).error_code == 0
        assert figures(topic=topic) == [len(too_large), 3, 0]
        assert len(client.call(fetch_request(topic), 3).responses[0].partitions[0].records)
        assert produce(client, topic, batch(b"f", b"g", codec=Codec.ZSTD)).error_code == 0
        assert figures(topic=topic) == [len(too_large), 3, 5]
        without = client.call(fetch_request(topic, 5), 9).responses[0].partitions[0].records
        assert [each.codec for each in batches(without)] == [Codec.GZIP]
    now = figures(topic=topic)
    assert now == [len(too_large), 3, 7]
    assert [after - one for after, one in zip(figures(), before, strict=True)] == now


def test_sums_over_all_topics_never_go_back(broker: RunningBroker, used: str) -> None:
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    before = value(samples(broker), name)
    with WireClient(broker.address) as client:
        client.call(DeleteTopicsRequest(topic_names=[used], timeout_ms=10_000), 5)
    after = samples(broker)
    assert value(after, name) >= before     # groups write records to delete the topic's offsets
    assert (name, frozenset({("topic", used)})) not in after


def test_each_metric_is_one_group_with_help_and_type(broker: RunningBroker, used: str) -> None:
    seen: list[str] = []
    for line in get(broker, "/metrics").splitlines():
        if line.startswith("# TYPE "):
            seen.append(line.split()[2])
        elif not line.startswith("#"):
            assert re.match(r"[a-z_]+", line)[0].startswith(seen[-1])   # type: ignore[index]
    assert len(seen) == len(set(seen)) > 60


def test_what_dashboards_ask_for_is_there(broker: RunningBroker, used: str) -> None:
    """The names in Grafana's dashboard 7589, and in the Kafka rows of Strimzi's strimzi-kafka.json.
    """
    names = {name for name, _ in samples(broker)}
    assert {
        "kafka_topic_partition_current_offset", "kafka_consumergroup_lag",
        "kafka_consumergroup_current_offset", "kafka_topic_partitions",
        "kafka_controller_kafkacontroller_activecontrollercount",
        "kafka_server_replicamanager_leadercount", "kafka_server_replicamanager_partitioncount",
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_cluster_partition_underminisr", "kafka_cluster_partition_atminisr",
        "kafka_server_replicamanager_underminisrpartitioncount",
        "kafka_server_replicamanager_atminisrpartitioncount",
        "kafka_log_log_size", "kafka_server_app_info",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "kafka_server_socket_server_metrics_connection_creation_rate",
        "kafka_server_socketservermetrics_connection_close_rate",
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total",
        "kafka_server_brokertopicmetrics_bytesin_total",
        "kafka_server_brokertopicmetrics_bytesout_total",
        "kafka_server_brokertopicmetrics_messagesin_total",
        "kafka_server_brokertopicmetrics_totalproducerequests_total",
        "kafka_server_brokertopicmetrics_totalfetchrequests_total",
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        "kafka_network_requestmetrics_totaltimems",
        "kafka_server_socket_server_metrics_connection_count",
    } <= names


def test_the_log_says_where_it_is_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "ottla.server")
    with RunningBroker(tmp_path, ottla_http_listener="127.0.0.1:0") as broker:
        assert broker.server.http is not None
        port = broker.server.http.port
    [said] = [each.getMessage() for each in caplog.records if " HTTP " in each.getMessage()]
    assert said == f"metrics, health and status: HTTP on 127.0.0.1:{port}"


def test_rates_idle_time_and_fetch_sessions_are_measured(tmp_path: Path) -> None:
    with RunningBroker(tmp_path, ottla_http_listener="127.0.0.1:0") as broker:
        client = WireClient(broker.address)
        client.call(MetadataRequest(topics=[MetadataRequest.Topic(name="t")]), 12)
        fetch(client, "t", session_epoch=0)

        def measured() -> dict[str, float]:
            found = {name: value for (name, _), value in samples(broker).items()
                     if name.endswith(("_rate", "avgidle_percent", "sessions"))}
            return {name.removeprefix("kafka_").partition("_")[2]: value
                    for name, value in found.items()}

        pass_time(broker, 5)                    # rates are averages over five seconds
        first = measured()
        client.close()
        until(lambda: broker.server.broker.counts.closed_connections == 1, "its end")
        pass_time(broker, 5)
        second = measured()
    for name in ("socketservermetrics", "socket_server_metrics"):
        assert first[f"{name}_connection_creation_rate"] > 0
        assert first[f"{name}_connection_close_rate"] == 0
        assert second[f"{name}_connection_creation_rate"] == 0
        assert second[f"{name}_connection_close_rate"] > 0
    assert first["fetchsessioncache_numincrementalfetchsessions"] == 1
    for found in (first, second):
        assert 0 < found["socketserver_networkprocessoravgidle_percent"] <= 1
        assert 0 < found["kafkarequesthandlerpool_requesthandleravgidle_percent"] <= 1


def test_each_metric_of_our_own_is_described(broker: RunningBroker, used: str) -> None:
    own = set(re.findall(r"# TYPE (ottla_\S+)", get(broker, "/metrics")))
    page = (ROOT / "docs" / "monitoring.md").read_text()
    missing = {name for name in own if f"`{name}" not in page}
    assert len(own) > 20 and not missing, "add them to the table in docs/monitoring.md"


def test_our_board_asks_for_metrics_that_there_are(broker: RunningBroker, used: str) -> None:
    types = re.findall(r"# TYPE (\S+)", get(broker, "/metrics"))
    names = {*types, *(f"{name}_bucket" for name in types)}
    board = json.loads((ROOT / "packaging" / "grafana" / "ottla.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(asked) > 10
    for expression in asked:
        wanted = set(re.findall(r"\b((?:kafka|ottla|process)_\w+)", expression))
        assert wanted <= names, expression


def test_a_kafka_client_at_this_port_is_told_at_once_what_it_is(broker: RunningBroker) -> None:
    assert broker.server.http is not None
    address = f"127.0.0.1:{broker.server.http.port}"
    with pytest.raises(BadResponse, match=f"{address}: this is an HTTP server, .*`listeners`"):
        ClusterClient(address, connect_seconds=60).any()
    with socket.create_connection(("127.0.0.1", broker.server.http.port), 60) as raw:
        raw.sendall(b"\0\0\0\x20\0\x12\0\3")
        answer = b"".join(iter(lambda: raw.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 400 ") and b"the broker's `listeners`" in answer


def test_health_readiness_and_nonsense(broker: RunningBroker) -> None:
    assert get(broker, "/healthz") == get(broker, "/readyz?full") == "ok\n"
    assert http(broker, "GET /nothing HTTP/1.1\r\n\r\n")[0] == 404
    status, headers, _ = http(broker, "POST /metrics HTTP/1.1\r\n\r\n")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert http(broker, "what is this\r\n\r\n")[0] == 400
    assert http(broker, "HEAD /metrics HTTP/1.1\r\n\r\n")[2] == ""
    with pytest.raises((ConnectionError, IndexError)):
        http(broker, "GET /" + "x" * 20_000)
    assert get(broker, "/healthz") == "ok\n"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/api/v1/status", "/none"])
def test_head_gets_what_get_has_before_the_body(broker: RunningBroker, path: str) -> None:
    rest = f" {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    wanted, of_get, _ = http(broker, f"GET{rest}")
    code, of_head, body = http(broker, f"HEAD{rest}")
    assert (code, of_head.keys(), body) == (wanted, of_get.keys(), "")


def test_who_is_connected_is_said_with_software_and_address(broker: RunningBroker) -> None:
    with WireClient(broker.address) as client:
        client.call(MetadataRequest(topics=[]), 5)
        port = client.socket.getsockname()[1]
        listed = json.loads(get(broker, "/api/v1/connections"))
    [mine] = [each for each in listed if each["peer"] == f"127.0.0.1:{port}"]
    assert (mine["client_id"], mine["newest_request"], mine["requests"]) == ("test", "Metadata", 1)
    assert mine["sent_bytes"] > 0 < mine["received_bytes"]


def test_what_each_client_writes_and_reads_is_sampled(broker: RunningBroker, topic: str) -> None:
    """After a sample has begun, the topics of the next Produce and of the next Fetch are noted, and
    no others."""
    assert broker.server.http is not None
    monitor = broker.server.http.monitor
    topics = [topic, f"{topic}-other"]
    with WireClient(broker.address) as client:
        asked = [MetadataRequest.Topic(name=each) for each in topics]
        client.call(MetadataRequest(topics=asked), 12)

        def use(name: str) -> None:
            assert produce(client, name, batch(b"a")).error_code == 0
            fetch(client, name)

        def mine() -> tuple[list[str], list[str]]:
            port = client.socket.getsockname()[1]
            [found] = [each for each in json.loads(get(broker, "/api/v1/connections"))
                       if each["peer"] == f"127.0.0.1:{port}"]
            return found["produces_to"], found["fetches_from"]

        [connection] = [each for each in monitor.connections()
                        if each.client.peer().endswith(f":{client.socket.getsockname()[1]}")]
        use(topics[0])
        assert mine() == ([], []), "nobody has asked for a sample yet"
        broker.call(connection.client.sample, 1)
        for each in topics:
            use(each)
        assert mine() == ([topic], [topic])
        broker.call(connection.client.sample, 2)
        use(topics[1])
        assert mine() == (topics, topics)
        [row] = [each for each in json.loads(get(broker, "/api/v1/clients"))
                 if topic in each["produces_to"]]
        assert (row["client_id"], row["host"], row["connections"]) == ("test", "127.0.0.1", 1)
        assert (row["produces_to"], row["fetches_from"]) == (topics, topics)
        broker.call(connection.client.sample, 100)
        assert mine() == ([], []), "what was not seen for long is forgotten"


def test_the_command_shows_who_is_connected(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    assert broker.server.http is not None
    url = f"http://127.0.0.1:{broker.server.http.port}"

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["server", *arguments])
        return status, *capsys.readouterr()

    assert json.loads(get(broker, "/api/v1/status"))["ready"] is True
    with WireClient(broker.address) as client:
        client.call(MetadataRequest(topics=[]), 5)
        status, printed, _ = run("connections", "--url", url)
        _, everything, _ = run("connections", "--url", url, "-o", "json")
    assert status == 0 and "Metadata" in printed and printed.lower().startswith("peer")
    assert {"produces_to", "fetches_from"} <= json.loads(everything)[0].keys()
    status, _, error = run("connections", "--url", "http://127.0.0.1:1")
    assert status == 1 and "ottla.http.listener" in error and error.count("\n") == 1


def test_without_the_setting_nothing_listens_and_no_clock_is_asked(tmp_path: Path) -> None:
    with RunningBroker(tmp_path) as broker:
        assert broker.server.http is None and not broker.server.broker.counts.timing
    with pytest.raises(SettingsError, match=r"ottla\.http\.listener: 'here' is not of the form"):
        BrokerConfig.load(None, ["ottla.http.listener=here"])


def test_many_partitions_are_written_in_pieces_between_which_clients_are_served(
    tmp_path: Path,
) -> None:
    with RunningBroker(tmp_path, ottla_http_listener="127.0.0.1:0") as broker:
        with WireClient(broker.address) as client:
            topics = [
                CreateTopicsRequest.Topic(name=f"t{n}", num_partitions=500, replication_factor=1)
                for n in range(6)
            ]
            client.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)
        assert broker.server.http is not None
        pieces = broker.call(list, all_metrics(broker.server.http.monitor))
        assert get(broker, "/metrics").count("\n") > 15 * 3000
    assert max(piece.count("\n") for piece in pieces) <= ROWS_PER_PIECE + 2
