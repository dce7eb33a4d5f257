"""Over SASL_SSL: fifty megabytes intact, Spark, and Java's client with a signed token."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.brokers import Broker, KafkaBroker
from compat_tests.kafka_tools import KafkaTools
from compat_tests.secured import Secured, start_secured
from compat_tests.signed_tokens import OAUTH, Signer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
CASE = ("SASL_SSL", "PLAIN")
SIZE, COUNT = 500_000, 100


@pytest.fixture(scope="module")
def secured(
    new_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    found = start_secured(new_broker, tmp_path_factory.mktemp("authority"))
    yield found
    found.broker.stop()


def value(number: int) -> bytes:
    """Bytes that do not repeat, and that compress to nothing less."""
    block = hashlib.shake_256(b"%d" % number)
    return block.digest(SIZE)


def test_fifty_megabytes_arrive_intact_over_tls(secured: Secured) -> None:
    settings = secured.librdkafka(*CASE)
    producer = Producer({**settings, "message.max.bytes": 1_000_000})
    for number in range(COUNT):
        producer.produce("megabytes", value(number), partition=0)
        producer.poll(0)
    assert producer.flush(120) == 0
    consumer = Consumer({**settings, "group.id": "megabytes", "auto.offset.reset": "earliest"})
    consumer.subscribe(["megabytes"])
    read: list[bytes] = []
    while len(read) < COUNT:
        for message in consumer.consume(10, 60.0):
            assert message.error() is None
            read.append(hashlib.sha256(message.value()).digest())
    consumer.close()
    assert read == [hashlib.sha256(value(number)).digest() for number in range(COUNT)]


def test_spark_writes_and_reads_over_sasl_ssl(secured: Secured, spark: SparkSession) -> None:
    options = {f"kafka.{name}": text for name, text in secured.java(*CASE).items()}
    options["kafka.bootstrap.servers"] = secured.bootstrap("SASL_SSL")
    rows = spark.range(1000).selectExpr("cast(id as string) as key", "cast(id * 2 as string) value")
    rows.write.format("kafka").options(**options).option("topic", "spark").save()
    frame = spark.read.format("kafka").options(**options).option("subscribe", "spark").load()
    found = frame.selectExpr("cast(key as string)", "cast(value as string)").collect()
    assert sorted(int(row.key) for row in found) == list(range(1000))
    assert all(int(row.value) == 2 * int(row.key) for row in found)


def test_javas_client_logs_in_with_a_signed_token(
    new_broker: Callable[..., Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer, token = Signer(tmp_path), tmp_path / "token.jwt"
    token.write_text(signer.token()[0])
    keys, (broker, port) = signer.keys, signer.broker(new_broker)
    allowed = " ".join(
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{what}={value}"
        for what, value in (("urls", f"file:{keys},file:{token}"), ("files", f"{keys},{token}"))
    )
    if isinstance(broker, KafkaBroker):
        broker.java_options(allowed)
    broker.start()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
    tools, config = KafkaTools(), tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={OAUTH}.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url=file:{token}\n"
    )
    try:
        where = ["--bootstrap-server", f"localhost:{port}", "--command-config", str(config)]
        made = tools.run("kafka-topics", [*where, "--create", "--topic", "by-java-token"])
        assert "Created topic by-java-token." in made.stdout, made.stdout + made.stderr
    finally:
        tools.close()
        broker.stop()
