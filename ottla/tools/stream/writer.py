"""Sends records with confluent-kafka, in the given order.

No failure is lost: `close` sends the records that are still queued, then raises the first failure.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError, NotAllowed, cause_of
from ottla.tools.admin import topics
from ottla.tools.stream.batches import Headers, SingleSender
from ottla.tools.stream.client_settings import (
    bootstrap_servers,
    librdkafka_settings,
    open_client,
    reason_with_code,
)
from ottla.tools.stream.outages import Outages
from ottla.tools.stream.partitions import chosen_by
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import InitProducerIdRequest
from ottla.wire.records import Record
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

DEFAULTS = {"partitioner": "murmur2_random", "linger.ms": "10"}
"""Keys go to partitions as in Java's clients; batches are large, for high throughput."""
DELIVERY = {"delivery.timeout.ms", "message.timeout.ms"}
DELIVERY_MS = "120000"
"""How long a record is retried, as in Java's producers; librdkafka's default is 300 s."""
AT_LEAST_ONCE = {
    "enable.idempotence", "request.required.acks", "retries", "message.send.max.retries",
    "max.in.flight", "max.in.flight.requests.per.connection", "queuing.strategy",
}
"""Settings that may contradict idempotence: if one of them is given, idempotence is not enabled."""
BYTES_MAX = 1_000_000
"""librdkafka's own limit for a record, message.max.bytes."""
FATAL_SECONDS = 1.0
"""How long to wait for the fatal error that made a record fail: it arrives after the failure."""
CLOSE_SECONDS = 60
STALL_SECONDS = 5.0
"""After this time without an acknowledgement, the writer prints which command shows the reason.
librdkafka does not report it: if a broker refuses records, for example because its disk is full,
librdkafka only sends them again."""
SERVE_EVERY = 1000
"""After every 1000 queued records, the acknowledgements that have arrived are processed. librdkafka
queues up to 100,000 records."""


class NotWritten(ClientError):
    """The broker has refused a record, so the record was certainly not written."""


@dataclass
class SingleDelivery:
    """The acknowledgement of a record that was sent separately."""

    at: int

    def offset(self) -> int:
        """The record's offset. librdkafka's messages have this method too."""
        return self.at


@dataclass
class Failure:
    """The KafkaError of a record, with the record's topic; or the fatal error of a producer."""

    error: Any
    topic: str = ""

    def __str__(self) -> str:
        more = ""
        if self.topic and self.error.code() == ErrorCode.MESSAGE_TOO_LARGE:
            more = (f"; the limit is the topic's max.message.bytes: ottla config show"
                    f" topic/{self.topic}")
        return f"topic {self.topic}: " * bool(self.topic) + reason_with_code(self.error) + more

    @property
    def is_purge(self) -> bool:
        """Whether the record failed because of a fatal error, which arrives a moment later."""
        return self.error.code() in (self.error._PURGE_QUEUE, self.error._PURGE_INFLIGHT)

    @property
    def refusal(self) -> ErrorCode | None:
        """The error code if the user is not allowed to write; None for other errors. An idempotent
        producer needs the right to write at least one topic (KIP-679)."""
        code = (ErrorCode.TOPIC_AUTHORIZATION_FAILED if self.topic
                else ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return code if self.error.code() == code else None


Delivered = Callable[[Any, Any], None]


def producer_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """librdkafka's settings of a producer with these properties, with Ottla's own defaults."""
    given = librdkafka_settings(properties)
    settings: dict[str, Any] = {**DEFAULTS, **given}
    if not DELIVERY & given.keys():
        settings["delivery.timeout.ms"] = DELIVERY_MS
    # As in Java's producers: idempotence prevents a duplicate after a lost answer.
    if given.get("acks", "all") in ("all", "-1") and not AT_LEAST_ONCE & given.keys():
        settings["enable.idempotence"] = "true"
    return settings


class Writer:
    """Sends records. `cluster` must stay open as long as the writer is used."""

    def __init__(
        self, cluster: ClusterClient, properties: Mapping[str, str]
    ) -> None:
        import confluent_kafka

        self._cluster, self._library = cluster, confluent_kafka
        self._apart: SingleSender | None = None
        self._failure: Failure | None = None    # the first failure, or the fatal one
        self._failure_reported = False
        self._topic = ""                        # of the last record
        self._settled = 0               # how many records have left librdkafka's queue
        self._moved_at = time.monotonic()
        self._stall_reported = False
        self.sent = 0
        """Records that were queued."""
        self.written = 0
        """Records that were acknowledged."""
        settings = producer_settings(properties)
        self._partitioner = str(settings["partitioner"]).lower()
        self._counts: dict[str, int] = {}       # of partitions, for the records sent separately
        self._bytes_max = settings.get("message.max.bytes", BYTES_MAX)
        settings["bootstrap.servers"] = addresses = bootstrap_servers(cluster)
        self._outages = Outages(addresses)
        settings["error_cb"] = self._outages.note
        self._producer = open_client("Producer", settings)
        self._produce, self._done = self._producer.produce, self._delivered

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        delivered: Delivered | None = None,
    ) -> None:
        """Queue one record; waits if too many are queued. `delivered` is called with librdkafka's
        result: an error or None, and the message."""
        if timestamp_ms == 0:       # librdkafka would send the present time
            offset = self._send_apart(topic, Record(-1, 0, key, value, headers), partition)
            if delivered is not None:
                delivered(None, SingleDelivery(offset))
            return
        self._topic = topic
        while True:
            try:
                self._produce(
                    topic, value, key, -1 if partition is None else partition,
                    on_delivery=delivered or self._done, timestamp=timestamp_ms or 0,
                    headers=list(headers),
                )  # fmt: skip
                break
            except BufferError:
                self._serve(self._producer.poll, 0.1)
                self._report_stall()
            except self._library.KafkaException as refused:
                raise ClientError(self._why_not_queued(topic, key, value, refused)) from refused
        self.sent += 1
        if self.sent % SERVE_EVERY == 0:
            self.serve()

    def _send_apart(self, topic: str, record: Record, partition: int | None) -> int:
        """Sends a record without librdkafka, which would change its timestamp. Waits first until
        all earlier records are acknowledged. Returns the record's offset."""
        self.flush()
        if self._apart is None:
            self._apart = SingleSender(self._cluster)
        if partition is None and record.key is not None:
            count = self._counts.get(topic) or self._count(topic)
            partition = chosen_by(self._partitioner, record.key, count)
        offset = self._apart.send(topic, record, partition)
        self.sent += 1
        self.written += 1
        return offset

    def _count(self, topic: str) -> int:
        """Asks for a topic's number of partitions; waits while the topic is being created."""

        def ask() -> int:
            return len(topics.leaders(self._cluster, [topic]))

        self._counts[topic] = count = int(self._cluster.with_retries(ask, again=True))
        return count

    def _why_not_queued(
        self, topic: str, key: bytes | None, value: bytes | None, refused: Any
    ) -> str:
        """The text about librdkafka's error. If a record exceeds the client's own limit, the text
        is Ottla's own: librdkafka's text says that the limit is the broker's."""
        if refused.args[0].code() != self._library.KafkaError.MSG_SIZE_TOO_LARGE:
            return f"{topic}: {refused.args[0].str()}"
        size = len(key or b"") + len(value or b"")
        return (f"{topic}: a record of {size} bytes exceeds the client's own limit: "
                f"raise it from {self._bytes_max}, as with -X message.max.bytes={2 * size}")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.written += 1
        elif self._failure is None:
            self._failure = Failure(error, message.topic())

    def serve(self) -> None:
        """Process the acknowledgements that have arrived, without waiting."""
        self._serve(self._producer.poll, 0)
        self._report_failure()
        self._report_stall()

    def left(self, seconds: float) -> int:
        """Waits up to `seconds`. Returns how many records are still not acknowledged."""
        self._serve(self._producer.flush, seconds)
        return len(self._producer)

    def _serve(self, serve: Callable[[float], object], seconds: float) -> None:
        """Makes librdkafka call its callbacks. confluent-kafka raises a fatal error here, and does
        not call `error_cb`. A fatal error makes all unacknowledged records fail."""
        try:
            serve(seconds)
        except (self._library.KafkaException, SystemError) as failed:
            fatal = cause_of(failed, self._library.KafkaException)
            self._failure = Failure(fatal.args[0] if fatal else self._lost_error(failed))

    def _lost_error(self, failed: BaseException) -> Any:
        """The fatal error behind a SystemError of confluent-kafka, which does not name that error.
        Requests a producer id: if the broker refuses the request, its error is the fatal error."""
        answer = self._cluster.any().call(InitProducerIdRequest(transactional_id=None))
        if not answer.error_code:
            raise ClientError(
                "librdkafka ended with a fatal error that confluent-kafka does not name. Send"
                " the unacknowledged records again") from failed
        return self._library.KafkaError(answer.error_code)

    def _report_failure(self) -> None:
        """Prints the first failure at once, since the input may never end. `flush` raises it."""
        if self._failure is None or self._failure.is_purge or self._failure_reported:
            return
        if not self._failure.topic:     # it ends the producer: the next `send` or `flush` raises
            return
        self._failure_reported = True
        print(f"a record was not acknowledged: {self._failure}. Later records are still sent",
              file=sys.stderr, flush=True)

    def _report_stall(self) -> None:
        """Prints once that records are not acknowledged, and which command shows the reason."""
        now, queued = time.monotonic(), len(self._producer)
        if not queued or self.sent - queued != self._settled:
            self._settled, self._moved_at = self.sent - queued, now
        elif now - self._moved_at > STALL_SECONDS and not self._stall_reported:
            self._stall_reported = True
            if not self._outages.reason():
                print(f"no record was acknowledged for {STALL_SECONDS:g} s; waiting."
                      f" {self._advice()}", file=sys.stderr, flush=True)

    def _advice(self) -> str:
        return f"`ottla topic why {self._topic}` shows what is wrong with the topic"

    def flush(self) -> None:
        """Wait up to CLOSE_SECONDS for all acknowledgements; raises ClientError with the first
        failure, or if records are still unanswered."""
        self._moved_at = time.monotonic()
        deadline = self._moved_at + CLOSE_SECONDS
        while (left := self.left(0.5)) and time.monotonic() < deadline:
            self._report_stall()            # in small steps, so that signals are handled
        if self._failure is not None and self._failure.is_purge:
            self._serve(self._producer.poll, FATAL_SECONDS)
        failed, self._failure = self._failure, None
        self._failure_reported = False
        if failed is not None or left:
            why = str(failed or f"{counted(left, 'record')} got no reply within"
                      f" {CLOSE_SECONDS} s")
            if outage := self._outages.reason():
                why = f"{outage}; {why}"
            elif failed is None:
                why = f"{why}; {self._advice()}"
            text = f"records were not acknowledged: {why}"
            if failed is not None and (code := failed.refusal) is not None:
                raise NotAllowed(text, code, self._cluster.security.principal, "write",
                                 f"topic/{failed.topic or self._topic}")
            raise ClientError(text)

    def close(self) -> None:
        """Sends all queued records. Raises ClientError as `flush` does."""
        self.flush()
