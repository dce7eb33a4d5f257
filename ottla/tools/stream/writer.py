"""Records sent with kafka-python, or with confluent-kafka where that is asked for.

Failures do not get lost: `close` raises the first one after everything else has been sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.transport import Security
from ottla.tools.stream.batches import Headers, SingleSender, sendable
from ottla.tools.stream.client_settings import (
    keyword_arguments,
    known_to,
    librdkafka_settings,
    quiet,
)
from ottla.wire.records import Record

BATCHING = {"linger_ms": 10, "batch_size": 131_072}
"""Larger batches than kafka-python's own: a command sends many records, or waits for the end."""
AT_LEAST_ONCE = {
    "enable.idempotence", "request.required.acks", "retries", "message.send.max.retries",
    "max.in.flight", "max.in.flight.requests.per.connection", "queuing.strategy",
}
"""Settings with which librdkafka may refuse idempotence: whoever gives one says what he wants."""
CLOSE_SECONDS = 60
IN_FLIGHT_MAX = 10_000
"""Records that are sent and not acknowledged; a faster reader waits."""


class Writer(Protocol):
    """Somewhere to send records to."""

    sent: int

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def record_of(
    key: bytes | None, value: bytes | None, headers: Headers, timestamp_ms: int | None
) -> Record:
    """A record of now, unless it has a timestamp."""
    now = int(time.time() * 1000)
    return Record(-1, now if timestamp_ms is None else timestamp_ms, key, value, headers)


class Apart:
    """Sends records that the library cannot send; those before them must have been flushed."""

    def __init__(self, servers: Sequence[str], properties: Mapping[str, str]) -> None:
        security = Security.from_properties(properties)
        self._cluster = Cluster(",".join(servers), security=security)
        self._sender = SingleSender(self._cluster)

    def send(self, topic: str, record: Record, partition: int | None) -> None:
        """Returns once it is acknowledged."""
        self._sender.send(topic, record, partition)

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()


class KafkaPythonWriter:
    """Sends with kafka-python."""

    def __init__(self, servers: Sequence[str], properties: Mapping[str, str]) -> None:
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        quiet()
        self._apart = Apart(servers, properties)
        self.failure: BaseException | None = None
        self.sent = 0
        self._error = KafkaError
        given = keyword_arguments(properties)
        settings = {"acks": "all", **BATCHING, **known_to(KafkaProducer, given)}
        try:
            self._producer = KafkaProducer(bootstrap_servers=list(servers), **settings)
        except (AssertionError, ValueError, KafkaError) as wrong:
            raise ClientError(f"cannot make a producer: {wrong}") from wrong

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue one record. Raises ClientError where the producer refuses it, or earlier ones."""
        if not sendable(key, value, headers):
            self.flush()
            record = record_of(key, value, headers, timestamp_ms)
            self._apart.send(topic, record, partition)
            self.sent += 1
            return
        try:
            future = self._producer.send(
                topic,
                value=value,
                key=key,
                headers=list(headers),
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        except (self._error, AssertionError, ValueError, TypeError) as refused:
            raise ClientError(f"{topic}: {refused}") from refused
        future.add_errback(self._failed)
        self.sent += 1
        if self.sent % IN_FLIGHT_MAX == 0:
            self.flush()

    def _failed(self, error: BaseException) -> None:
        self.failure = self.failure or error

    def flush(self) -> None:
        """Wait until everything is acknowledged; ClientError for the first that was not."""
        try:
            self._producer.flush(CLOSE_SECONDS)
        except self._error as late:
            raise ClientError(f"records were not acknowledged: {late}") from late
        if self.failure is not None:
            failed, self.failure = self.failure, None
            raise ClientError(f"a record was not acknowledged: {type(failed).__name__}: {failed}")

    def close(self) -> None:
        """Send what is queued and end."""
        try:
            self.flush()
        finally:
            self._producer.close(CLOSE_SECONDS)
            self._apart.close()


class ConfluentWriter:
    """Sends with confluent-kafka, several times faster where it is installed."""

    def __init__(self, servers: Sequence[str], properties: Mapping[str, str]) -> None:
        from ottla.tools.stream.confluent import COMMON, library

        found = library()
        self.failure: Any = None
        self.sent = 0
        self._apart = Apart(servers, properties)
        self._error = found.KafkaException
        # Keys go to partitions as Java's clients and kafka-python send them.
        given = librdkafka_settings(properties)
        settings = {**COMMON, "partitioner": "murmur2_random", **given}
        settings["bootstrap.servers"] = ",".join(servers)
        # As with Java's producers and kafka-python: a lost answer does not make a second record.
        if given.get("acks", "all") in ("all", "-1") and not AT_LEAST_ONCE & given.keys():
            settings["enable.idempotence"] = True
        try:
            self._producer = found.Producer(settings)
        except found.KafkaException as wrong:
            raise ClientError(f"cannot make a producer: {wrong}") from wrong

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue one record; waits where too many are queued."""
        if timestamp_ms == 0:       # librdkafka would send the present time
            self.flush()
            record = record_of(key, value, headers, timestamp_ms)
            self._apart.send(topic, record, partition)
            self.sent += 1
            return
        more: dict[str, Any] = {} if partition is None else {"partition": partition}
        if timestamp_ms is not None:
            more["timestamp"] = timestamp_ms
        while True:
            try:
                self._producer.produce(
                    topic,
                    value=value,
                    key=key,
                    headers=list(headers),
                    on_delivery=self._done,
                    **more,
                )
                break
            except BufferError:
                self._producer.poll(0.1)
            except self._error as refused:
                raise ClientError(f"{topic}: {refused}") from refused
        self.sent += 1
        self._producer.poll(0)

    def _done(self, error: Any, _: Any) -> None:
        self.failure = self.failure or error

    def flush(self) -> None:
        """Wait until everything is acknowledged; ClientError for the first that was not."""
        left = self._producer.flush(CLOSE_SECONDS)
        if self.failure is not None or left:
            failed, self.failure = self.failure, None
            raise ClientError(f"records were not acknowledged: {failed or f'{left} are left'}")

    def close(self) -> None:
        """Send what is queued and end."""
        try:
            self.flush()
        finally:
            self._apart.close()


def open_writer(
    servers: Sequence[str], properties: Mapping[str, str], client: str = "kafka-python"
) -> Writer:
    """A writer with one of the two libraries."""
    if client == "confluent-kafka":
        return ConfluentWriter(servers, properties)
    return KafkaPythonWriter(servers, properties)
