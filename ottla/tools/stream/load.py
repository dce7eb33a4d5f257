"""Load for measurements: batches that are built once and sent repeatedly, and fetches whose records
are only counted.

The client does as little as possible, so that the figures show the broker's speed. Produce
requests are pipelined over one connection to each leader: up to `in_flight` requests in total.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

from ottla.client.cluster import EARLY, MOVED
from ottla.client.command_line import INT32_MOST, is_at_most
from ottla.client.errors import ClientError, Refused, TimedOut, Unreachable
from ottla.tools.admin import offsets
from ottla.tools.admin.offsets import Place
from ottla.tools.admin.topics import leaders
from ottla.tools.stream.batches import (
    FETCH_MAX,
    PRODUCE_MAX,
    REPLICATION,
    check_produced,
    fetch_request,
    produce_request,
)
from ottla.tools.stream.partitions import partition_of
from ottla.tools.stream.transactions import PRODUCE, Transactions
from ottla.wire.batch import batches
from ottla.wire.compression import Codec
from ottla.wire.errors import ErrorCode
from ottla.wire.records import Record, build_batch

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.client.connection import Connection
    from ottla.client.frames import Sent

BATCH_BYTES = 16_384
RECORD_OVERHEAD = 10  # minimum bytes of a record without its value
PASSING = MOVED | EARLY | REPLICATION  # after these errors, a batch is sent again
Make = Callable[[Transactions | None, Place], bytes]


@dataclass
class Latencies:
    """The latencies of records. `counts` has the number of records for each millisecond."""

    started: float = field(default_factory=time.monotonic)
    records: int = 0
    bytes: int = 0
    total_ms: float = 0.0
    most_ms: float = 0.0
    counts: dict[int, int] = field(default_factory=dict)

    def add(self, records: int, size: int, ms: float) -> None:
        """Count a batch."""
        self.records += records
        self.bytes += size
        self.total_ms += ms * records
        self.most_ms = max(self.most_ms, ms)
        key = int(ms)
        self.counts[key] = self.counts.get(key, 0) + records

    def percentile(self, share: float) -> int:
        """The time within which this share of the records was acknowledged."""
        remaining = self.records * share
        for ms in sorted(self.counts):
            remaining -= self.counts[ms]
            if remaining <= 0:
                return ms
        return 0

    @property
    def average_ms(self) -> float:
        return self.total_ms / self.records if self.records else 0.0

    def rates(self) -> tuple[float, float]:
        """Records and MiB a second."""
        seconds = max(time.monotonic() - self.started, 1e-6)
        return self.records / seconds, self.bytes / seconds / (1 << 20)


@dataclass
class ProduceLoad:
    """The load to send: `values` in turn, `throughput` records a second (-1: no limit).

    `keys` are the records' keys, one after the other; they decide the partitions.
    """

    topic: str
    records: int
    values: Sequence[bytes]
    keys: Iterator[bytes] | None = None
    throughput: float = -1
    acks: int = -1
    codec: int = Codec.NONE
    batch_bytes: int = BATCH_BYTES
    in_flight: int = 5
    partition: int | None = None
    transactional_id: str = ""
    """If not empty, the load is sent in transactions, each committed after `transaction_ms`."""
    transaction_ms: int = 3000


@dataclass
class _Waiting:
    """A batch that waits for its answer. `sent` is None if the leader could not be reached."""

    place: Place
    request: Any
    sent: tuple[Connection, Sent] | None
    count: int
    size: int
    begun: float


def random_value(size: int, random: Random | None = None) -> bytes:
    """Random capital letters, as Kafka's tool makes them."""
    return bytes(65 + byte % 26 for byte in (random or Random()).randbytes(size))


def codec_of(name: str) -> int:
    """The number of the codec with this name. Raises ClientError for an unknown name."""
    try:
        return Codec[name.upper()]
    except KeyError:
        raise ClientError(
            f"compression {name!r}: expected none, gzip, snappy, lz4 or zstd"
        ) from None


def produce(
    cluster: ClusterClient, load: ProduceLoad, on_batch: Callable[[int, int, float], None]
) -> None:
    """Sends the load. For each acknowledged batch, `on_batch` gets the number of records, the bytes
    and the milliseconds."""
    sender = _Sender(cluster, load, on_batch)
    begin = time.monotonic()
    done = 0
    for place, count, size, make in _batches(load, sender.places):
        if load.throughput > 0:
            while (ahead := begin + done / load.throughput - time.monotonic()) > 0:
                if sender.waiting:
                    sender.settle()
                else:
                    time.sleep(min(ahead, 0.1))
        sender.send(place, count, size, make)
        done += count
    sender.settle_all()
    if sender.transactions is not None:
        sender.transactions.commit()


class _Sender:
    """Pipelined requests to the leaders of a topic. A batch that a former leader refuses, or that
    is not acknowledged, is sent again. Its latency counts from the first attempt."""

    def __init__(
        self, cluster: ClusterClient, load: ProduceLoad, on_batch: Callable[[int, int, float], None]
    ) -> None:
        self.cluster, self.load, self.on_batch = cluster, load, on_batch
        self.led: dict[Place, int] = cluster.with_retries(lambda: _leaders_of(cluster, load))
        self.places = sorted(self.led)
        self.waiting: deque[_Waiting] = deque()
        self.transactions: Transactions | None = None
        if load.transactional_id:
            self.transactions = Transactions(cluster, load.transactional_id, load.transaction_ms)
            self.transactions.start()

    def send(self, place: Place, count: int, size: int, make: Make) -> None:
        """Send a batch, and await earlier batches if too many are in flight."""
        load, transactions = self.load, self.transactions
        if transactions is not None and (place not in transactions.places or transactions.due):
            self.settle_all()           # requests that change the transaction are not pipelined
            if transactions.due:
                transactions.commit()
        request = produce_request(
            place[0], place[1], make(transactions, place), acks=load.acks,
            transactional_id=load.transactional_id or None,
        )
        begun, sent = time.monotonic(), None
        try:
            sent = self._sent(place, request)
        except (Unreachable, TimedOut):
            if load.acks == 0:
                self._send_again(place, request)
        if load.acks == 0:
            self.on_batch(count, size, 0.0)
            return
        self.waiting.append(_Waiting(place, request, sent, count, size, begun))
        while self.waiting and (sent is None or len(self.waiting) >= load.in_flight):
            self.settle()

    def settle_all(self) -> None:
        """Await all answers."""
        while self.waiting:
            self.settle()

    def settle(self) -> None:
        """Await the answer to the earliest batch."""
        one = self.waiting.popleft()
        if self._is_accepted(one):
            return
        # Read the answers to all later batches first: the retry may use one of their connections.
        refused = [one, *(each for each in self.waiting if not self._is_accepted(each))]
        self.waiting.clear()
        for each in refused:
            self._send_again(each.place, each.request)
            self.on_batch(each.count, each.size, (time.monotonic() - each.begun) * 1000)

    def _is_accepted(self, one: _Waiting) -> bool:
        if one.sent is None:
            return False
        connection, sent = one.sent
        try:
            check_produced(connection.answer(sent))
        except (Unreachable, TimedOut):
            return False
        except Refused as error:
            if error.code not in PASSING:
                raise
            return False
        self.on_batch(one.count, one.size, (time.monotonic() - one.begun) * 1000)
        return True

    def _sent(self, place: Place, request: Any) -> tuple[Connection, Sent]:
        connection = self.cluster.node(self.led[place])
        at_most = PRODUCE_MAX if self.transactions is None else PRODUCE
        return connection, connection.send(request, at_most=at_most)

    def _send_again(self, place: Place, request: Any) -> None:
        def ask() -> None:
            self.led.update(_leaders_of(self.cluster, self.load))
            connection, sent = self._sent(place, request)
            if self.load.acks:
                check_produced(connection.answer(sent))

        self.cluster.with_retries(ask, REPLICATION, again=True)


def _leaders_of(cluster: ClusterClient, load: ProduceLoad) -> dict[Place, int]:
    """The leaders of the topic's partitions; the request creates the topic if brokers create topics
    automatically."""
    from ottla.wire.messages import MetadataRequest

    topic = MetadataRequest.Topic(name=load.topic)
    cluster.any().call(MetadataRequest(topics=[topic], allow_auto_topic_creation=True))
    try:
        by_place = leaders(cluster, [load.topic])
    except Refused as refused:
        if refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {load.topic!r} does not exist and is not created automatically",
            ) from None
        raise
    if load.partition is not None:
        by_place = {
            place: leader for place, leader in by_place.items() if place[1] == load.partition
        }
    if not by_place or min(by_place.values()) < 0:
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE)
    return by_place


Pair = tuple[bytes | None, bytes]
"""Key and value."""


def _batches(load: ProduceLoad, places: Sequence[Place]) -> Iterator[tuple[Place, int, int, Make]]:
    """Yields for each batch: its partition, number of records, bytes of keys and values, and the
    function that builds it."""
    size = max(len(value) for value in load.values) + RECORD_OVERHEAD
    most = max(1, load.batch_bytes // size)
    if load.throughput > 0:  # a batch has at most the records of a twentieth of a second
        most = max(1, min(most, int(load.throughput / 20)))
    same = len(set(load.values)) == 1 and load.keys is None
    built: dict[int, bytes] = {}
    for place, pairs in _runs(load, places, most):

        def make(
            transactions: Transactions | None, place: Place, pairs: list[Pair] = pairs
        ) -> bytes:
            """Build a batch; equal batches are built once."""
            count = len(pairs)
            if same and transactions is None and count in built:
                return built[count]
            now = int(time.time() * 1000)
            records = (Record(-1, now, key, value) for key, value in pairs)
            if transactions is not None:
                sequence = transactions.sequence(place, count)
                return build_batch(
                    records, codec=load.codec, producer_id=transactions.producer_id,
                    producer_epoch=transactions.epoch, base_sequence=sequence, transactional=True,
                )
            built[count] = build_batch(records, codec=load.codec)
            return built[count]

        yield place, len(pairs), sum(len(key or b"") + len(value) for key, value in pairs), make


def _runs(
    load: ProduceLoad, places: Sequence[Place], most: int
) -> Iterator[tuple[Place, list[Pair]]]:
    """Yields one partition at a time, together with at most `most` records for it. Without keys,
    the partitions take turns."""
    done = turn = 0
    while done < load.records:
        count = min(most if load.keys is None else most * len(places), load.records - done)
        values = [load.values[(done + one) % len(load.values)] for one in range(count)]
        done += count
        if load.keys is None:
            yield places[turn % len(places)], [(None, value) for value in values]
            turn += 1
            continue
        by_place: dict[Place, list[Pair]] = defaultdict(list)
        for key, value in zip(islice(load.keys, count), values, strict=True):
            by_place[places[partition_of(key, len(places))]].append((key, value))
        for place, pairs in by_place.items():
            for first in range(0, len(pairs), most):
                yield place, pairs[first : first + most]


@dataclass
class FetchLoad:
    """The records to fetch. After `idle_ms` without records, fetching ends."""

    topics: Sequence[str]
    records: int
    start: int = offsets.EARLIEST
    partition_bytes: int = 1 << 20
    idle_ms: int = 10_000
    committed: bool = False


def fetch(
    cluster: ClusterClient, load: FetchLoad, on_fetch: Callable[[int, int], bool | None]
) -> int:
    """Fetches until `load.records` records have arrived, or none has arrived for `load.idle_ms`.
    `on_fetch` gets the number of new records and their bytes. Returns the number of records."""
    led: dict[Place, int] = {}
    at: dict[Place, int] = {}
    records = size = 0

    def fetch_from_all() -> None:
        nonlocal records, size
        if not led:
            for topic in load.topics:
                led.update(leaders(cluster, [topic]))
        if not at:
            at.update(offsets.required(
                cluster, dict.fromkeys(led, load.start), committed=load.committed))
        try:
            for leader in sorted(set(led.values())):
                for topic in load.topics:
                    mine = {
                        place: at[place] for place in at
                        if place[0] == topic and led[place] == leader
                    }
                    more, bytes_of = _fetch_once(cluster, leader, topic, mine, load)
                    at.update(mine)
                    records, size = records + more, size + bytes_of
        except ClientError:
            led.clear()             # leaders may have moved
            raise

    got, since = 0, time.monotonic()
    while got < load.records:
        records, size = 0, 0
        cluster.with_retries(fetch_from_all, again=True)
        if records:
            since = time.monotonic()
            got += records
            on_fetch(records, size)
        elif (time.monotonic() - since) * 1000 >= load.idle_ms:
            break
    return got


def _fetch_once(
    cluster: ClusterClient, leader: int, topic: str, at: dict[Place, int], load: FetchLoad
) -> tuple[int, int]:
    """Fetches once. Returns the records and bytes, and advances the offsets in `at`."""
    if not at:
        return 0, 0
    request = fetch_request(
        topic,
        [(index, offset) for (_, index), offset in at.items()],
        partition_bytes=load.partition_bytes,
        committed=load.committed,
        wait_ms=min(500, max(load.idle_ms, 1)),
    )
    response: Any = cluster.node(leader).call(request, at_most=FETCH_MAX)
    records, size = 0, 0
    for answer in response.responses:
        for part in answer.partitions:
            if part.error_code:
                raise Refused(part.error_code, what=f"{topic}-{part.partition_index}")
            for batch in batches(part.records or b""):
                records += batch.record_count if not batch.control else 0
                size += batch.size
                at[topic, part.partition_index] = batch.next_offset
    return records, size


def numbers(properties: Mapping[str, str], name: str, default: int) -> int:
    """A property as a number of 32 bits. Raises ClientError for any other value."""
    text = str(properties.get(name, default))
    if not (text.removeprefix("-").isdecimal() and is_at_most(text, INT32_MOST)):
        raise ClientError(f"{name}={text}: expected a whole number, {INT32_MOST} or less")
    return int(text)
