"""Fifty megabytes arrive intact over SASL_SSL. Spark works with every protocol and mechanism, and
with a delegation token."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.brokers import Broker
from compat_tests.secured import CASES, PLAIN_MODULE, SCRAM_MODULE, Secured, start_secured
from compat_tests.write_and_read import by_spark
from ottla.wire.messages import CreateDelegationTokenRequest
from tests.broker.running import WireClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASE = ("SASL_SSL", "PLAIN")
SIZE, COUNT = 500_000, 100


@pytest.fixture(scope="module")
def secured(
    new_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    key = "delegation.token.secret.key=the-secret-of-all-tokens"
    found = start_secured(new_broker, tmp_path_factory.mktemp("authority"), key)
    yield found
    found.broker.stop()


def value(number: int) -> bytes:
    """Bytes that do not repeat, and that cannot be compressed."""
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


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_spark_writes_and_reads(
    secured: Secured, spark: SparkSession, case: tuple[str, str]
) -> None:
    topic = f"spark-{'-'.join(filter(None, case))}"
    by_spark(spark, topic, secured.java(*case), secured.bootstrap(case[0]))


def test_spark_logs_in_with_a_delegation_token(secured: Secured, spark: SparkSession) -> None:
    login = f'{PLAIN_MODULE} required username="paula" password="p-secret";'
    host, _, port = secured.bootstrap("SASL_PLAINTEXT").rpartition(":")
    with WireClient(
        (host, int(port)), security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
        sasl_jaas_config=login,
    ) as paula:
        request = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
        token = paula.call(request, 2)
    assert token.error_code == 0
    password = base64.b64encode(bytes(token.hmac)).decode()
    settings = secured.java("SASL_SSL", "SCRAM-SHA-256")
    settings["sasl.jaas.config"] = (
        f'{SCRAM_MODULE} required username="{token.token_id}" password="{password}" tokenauth=true;'
    )
    by_spark(spark, "spark-by-token", settings, secured.bootstrap("SASL_SSL"))
