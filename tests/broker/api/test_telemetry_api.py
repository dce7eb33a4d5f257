"""GetTelemetrySubscriptions and PushTelemetry (KIP-714), and their metrics on /metrics."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.api import telemetry
from ottla.client.cluster import ClusterClient
from ottla.tools.admin import configs
from ottla.wire.messages import (
    ApiVersionsRequest,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from tests.broker.running import RunningBroker, WireClient
from tests.broker.telemetry.protobuf import field, gauge, pushed, total

TELEMETRY = {71, 72}
FAST = {"metrics": "*", "interval.ms": "100"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data = tmp_path_factory.mktemp("data")
    with RunningBroker(
        data, ottla_http_listener="127.0.0.1:0", telemetry_max_bytes=5000
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def subscription(broker: RunningBroker) -> Iterator[None]:
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        configs.alter(cluster, configs.CLIENT_METRICS, "all", FAST, [])
        yield
        configs.alter(cluster, configs.CLIENT_METRICS, "all", {}, list(FAST))


def ask(client: WireClient, instance_id: bytes = bytes(16)) -> GetTelemetrySubscriptionsResponse:
    return client.call(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


def push(
    client: WireClient, asked: GetTelemetrySubscriptionsResponse, metrics: bytes, codec: int = 0,
    terminating: bool = False,
) -> int:
    request = PushTelemetryRequest(
        client_instance_id=asked.client_instance_id, subscription_id=asked.subscription_id,
        terminating=terminating, compression_type=codec, metrics=metrics,
    )
    return int(client.call(request, 0).error_code)


def exposed(broker: RunningBroker) -> dict[tuple[str, str], float]:
    """The values of all samples that clients pushed or that are about telemetry, by metric and
    topic."""
    assert broker.server.http is not None
    with urlopen(f"http://127.0.0.1:{broker.server.http.port}/metrics") as answer:
        text = answer.read().decode()
    return {
        (sample.name, sample.labels.get("topic", "")): sample.value
        for family in text_string_to_metric_families(text) for sample in family.samples
        if "client_instance_id" in sample.labels or "telemetry" in sample.name
    }


def test_a_client_is_asked_for_what_is_subscribed(
    broker: RunningBroker, client: WireClient
) -> None:
    # The interval is longer than two calls take, so the second one comes too early.
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        configs.alter(cluster, configs.CLIENT_METRICS, "all", {"interval.ms": "60000"}, [])
    asked = ask(client)
    assert asked.client_instance_id != bytes(16) and asked.subscription_id != 0
    limits = asked.push_interval_ms, asked.telemetry_max_bytes
    assert (asked.error_code, *limits) == (0, 60_000, 5000)
    assert (asked.accepted_compression_types, asked.requested_metrics) == ([4, 3, 1, 2], ["*"])
    again = ask(client, asked.client_instance_id)
    assert again.error_code == 89 and again.throttle_time_ms == 0


def test_without_a_subscription_a_client_is_asked_for_nothing(
    broker: RunningBroker, client: WireClient
) -> None:
    with ClusterClient(f"127.0.0.1:{broker.port}") as cluster:
        configs.alter(cluster, configs.CLIENT_METRICS, "all", {}, list(FAST))
        assert TELEMETRY.isdisjoint(served(client))      # new connections are not offered the APIs
    asked = ask(client)
    assert (asked.requested_metrics, asked.push_interval_ms) == ([], 300_000)


def served(client: WireClient) -> set[int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {api.api_key for api in client.call(request, 3).api_keys}


def test_the_apis_are_named_while_there_is_a_subscription(client: WireClient) -> None:
    assert served(client) >= TELEMETRY


def test_what_is_pushed_is_in_the_metrics_in_every_codec(
    broker: RunningBroker, client: WireClient
) -> None:
    from ottla.wire.compression import compress

    for codec in range(5):
        topic = f'codec "{codec}"\n'
        payload = pushed(
            gauge("org.apache.kafka.consumer.lag", field(4, 2.5), topic=topic),
            total("org.apache.kafka.consumer.fetch.total", 7.0, topic=topic),
            total("plain.sum", 8.0, topic=topic),
        )
        assert push(client, ask(client), compress(codec, payload), codec) == 0
        found = exposed(broker)
        assert found["org_apache_kafka_consumer_lag", topic] == 2.5
        assert found["org_apache_kafka_consumer_fetch_total", topic] == 7
        assert found["plain_sum_total", topic] == 8


def test_no_client_forges_metrics_or_spoils_the_others(
    broker: RunningBroker, client: WireClient
) -> None:
    payload = pushed(
        gauge("kafka.brokers", field(4, 5.0)), gauge("ottla.build.info", field(4, 5.0)),
        gauge("9 lives\n# TYPE x", field(4, 9.0), __name__="up", topic="9"),
        gauge("same", field(4, 1.0), topic="s", client_id="forged"),
        gauge("clash.total", field(4, 1.0), topic="c"), total("clash", 2.0, topic="d"),
        gauge("", field(4, float("nan"))),
        gauge("twice", field(4, 1.0), **{"a_": "1", "a": "2", "_": "3", "": "4"}),
    )
    before = exposed(broker)
    assert push(client, ask(client), payload) == 0
    found = {key: value for key, value in exposed(broker).items() if key not in before}
    assert {name for name, _ in found} == {
        "_9_lives___TYPE_x", "same", "clash_total", "_", "twice"}
    assert found["_9_lives___TYPE_x", "9"] == 9


def test_what_cannot_be_read_is_refused_and_the_client_goes_on(
    client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = zlib.compress(bytes(1 << 20), wbits=31)
    monkeypatch.setattr(telemetry, "PAYLOAD_SIZE_MAX", 1 << 19)
    for codec, payload, code in (
        (0, b"\x0b", 87), (1, b"no gzip", 87), (1, bomb, 87), (5, b"", 76), (0, bytes(5001), 118),
        (4, b"\x28\xb5\x2f\xfd", 87), (0, b"", 0),
    ):
        assert push(client, ask(client), payload, codec) == code, (codec, payload[:10])
    nobody = GetTelemetrySubscriptionsResponse(client_instance_id=bytes(16))
    assert push(client, nobody, b"") == 42
    asked = ask(client)
    asked.subscription_id += 1
    assert push(client, asked, b"") == 117


def test_pushes_are_logged_at_debug(
    client: WireClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "ottla.telemetry"):
        assert push(client, ask(client), pushed(gauge("m.n", field(4, 2.5), topic="t"))) == 0
    said = [record.getMessage() for record in caplog.records if record.name == "ottla.telemetry"]
    assert "pushed metrics: 1 values were stored and 0 were dropped" in said[0]
    assert said[1].endswith("m.n 2.5 (('topic', 't'),)")
