"""confluent-kafka under those methods of kafka-python that `consume` and `mirror` call.

Positions are followed here: the end of a partition is reported by librdkafka as an event, so that a
reader also gets past what holds no records at an end, as markers of transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka import TopicPartition

from ottla.client.errors import ClientError
from ottla.tools.stream.client_settings import librdkafka_settings

if TYPE_CHECKING:
    from ottla.tools.stream.batches import Headers

RECORDS_MAX = 5000
"""Records that one poll returns at most."""
GROUP = "ottla"
"""librdkafka wants the name of a group, also of a reader that never joins it or commits."""
COMMON: dict[str, Any] = {"log_level": 0}


class ConsumedRecord(NamedTuple):
    """A record by the names that kafka-python gives its parts."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int | None


def record_of(message: Any) -> ConsumedRecord:
    """A message of confluent-kafka as a record."""
    kind, timestamp = message.timestamp()
    return ConsumedRecord(
        message.topic(), message.partition(), message.offset(),
        timestamp if kind else -1, max(0, kind - 1),
        message.key(), message.value(), message.headers() or [], message.leader_epoch(),
    )  # fmt: skip


def library() -> Any:
    """The module confluent_kafka; ClientError where it is not installed."""
    try:
        import confluent_kafka
    except ImportError as missing:
        raise ClientError(
            "confluent-kafka is not installed: pip install confluent-kafka"
        ) from missing
    return confluent_kafka


class ConfluentConsumer:
    """Reads with confluent-kafka. Nothing is committed but by `commit`."""

    def __init__(
        self, servers: Iterable[str], group: str, properties: Mapping[str, str], start: str
    ) -> None:
        self._library = library()
        settings = {
            **COMMON, "auto.offset.reset": start,
            "isolation.level": "read_uncommitted",      # as with kafka-python, and Java's clients
            **librdkafka_settings(properties),
            "bootstrap.servers": ",".join(servers), "group.id": group or GROUP,
            "enable.auto.commit": False, "enable.partition.eof": True,
        }  # fmt: skip
        try:
            self._consumer = self._library.Consumer(settings)
        except self._library.KafkaException as wrong:
            raise ClientError(f"cannot make a consumer: {wrong}") from wrong
        self._positions: dict[TopicPartition, int] = {}
        self._to_assign = False

    def assign(self, places: Iterable[TopicPartition]) -> None:
        """Read these partitions; `seek` says from where, before the first poll."""
        self._positions = dict.fromkeys(places, 0)
        self._to_assign = True

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Where to begin."""
        self._positions[place] = offset

    def subscribe(self, topics: list[str]) -> None:
        """Read these topics as a member of the group."""
        self._consumer.subscribe(topics)

    def poll(self, milliseconds: int) -> dict[TopicPartition, list[ConsumedRecord]]:
        """The records that are there; waits for the first one."""
        if self._to_assign:
            kind, self._to_assign = self._library.TopicPartition, False
            self._consumer.assign([kind(*place, offset) for place, offset in
                                   self._positions.items()])  # fmt: skip
        first = self._consumer.poll(milliseconds / 1000)
        if first is None:
            return {}
        found: dict[TopicPartition, list[ConsumedRecord]] = {}
        for message in [first, *self._consumer.consume(RECORDS_MAX - 1, 0)]:
            failed = message.error()
            place = TopicPartition(message.topic(), message.partition())
            if failed is None:
                found.setdefault(place, []).append(record_of(message))
                self._positions[place] = message.offset() + 1
            elif failed.code() == self._library.KafkaError._PARTITION_EOF:
                self._positions[place] = max(self._positions.get(place, 0), message.offset())
            else:
                raise ClientError(f"{failed.name()}: {failed.str()}")
        return found

    def position(self, place: TopicPartition) -> int:
        """The next offset that a partition is read at; 0 as long as nothing came of it."""
        return self._positions.get(place, 0)

    @property
    def joined(self) -> bool:
        """Whether the coordinator has let it join its group."""
        return bool(self._consumer.memberid())

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return [TopicPartition(one.topic, one.partition) for one in self._consumer.assignment()]

    def commit(self, offsets: Mapping[TopicPartition, Any]) -> None:
        """Commit these offsets for the group, and wait for it."""
        kind = self._library.TopicPartition
        wanted = [kind(*place, committed.offset) for place, committed in offsets.items()]
        try:
            self._consumer.commit(offsets=wanted, asynchronous=False)
        except self._library.KafkaException as failed:
            raise ClientError(f"offsets were not committed: {failed}") from failed

    def close(self, autocommit: bool = False) -> None:
        """Leave; nothing is committed."""
        self._consumer.close()


class NotWritten(ClientError):
    """The broker has refused a record: it is certain that it was not written."""


@dataclass
class Sent:
    """A record that is on its way, and its offset later."""

    offset: int = -1
    failure: Any = field(default=None)

    def done(self, failure: Any, message: Any) -> None:
        """What librdkafka calls."""
        self.failure = failure
        if failure is None:
            self.offset = message.offset()

    def get(self, _: float) -> Sent:
        """Itself, after a flush. Raises ClientError if it was not acknowledged."""
        if self.failure is not None or self.offset < 0:
            refused = self.failure is not None and self.failure.code() > 0
            raise (NotWritten if refused else ClientError)(
                f"a record was not acknowledged: {self.failure or 'no answer'}"
            )
        return self


class ConfluentProducer:
    """Sends with confluent-kafka: everything in order, once, to all in-sync replicas."""

    def __init__(self, servers: Iterable[str], properties: Mapping[str, str]) -> None:
        self._library = library()
        settings = {
            **COMMON, "linger.ms": 20, "compression.type": "lz4", "message.max.bytes": 16 << 20,
            **librdkafka_settings(properties), "bootstrap.servers": ",".join(servers),
            "enable.idempotence": True, "acks": "all",
        }  # fmt: skip
        try:
            self._producer = self._library.Producer(settings)
        except self._library.KafkaException as wrong:
            raise ClientError(f"cannot make a producer: {wrong}") from wrong

    def send(
        self, topic: str, *, value: bytes | None, key: bytes | None, headers: Headers,
        partition: int, timestamp_ms: int | None,
    ) -> Sent:  # fmt: skip
        """Queue a record; waits where too many are queued."""
        sent = Sent()
        more = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        while True:
            try:
                self._producer.produce(
                    topic, value=value, key=key, headers=list(headers), partition=partition,
                    on_delivery=sent.done, **more,
                )  # fmt: skip
            except BufferError:
                self._producer.poll(0.1)
            except self._library.KafkaException as refused:
                raise ClientError(f"{topic}: {refused}") from refused
            else:
                return sent

    def flush(self, seconds: float) -> None:
        """Wait until everything was acknowledged or has failed; ClientError after `seconds`."""
        if left := self._producer.flush(seconds):
            raise ClientError(f"{left} records were not acknowledged within {seconds:.0f} s")

    def close(self, seconds: float) -> None:
        """Send what is queued."""
        self._producer.flush(seconds)
