"""`python -m compat_tests.tool_chaos.calls BOOTSTRAP TOPIC NAME SECONDS CLIENT`: a stock client
makes one call after the other, and the program reports calls that exceeded their own time-out.

Prints a line for each kind of call. Ends with status 1 if a call was late, or if a kind of call
still fails USEFUL_SECONDS after all brokers are back.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

TIMEOUT = 3.0
SLACK = 7.0
"""Seconds by which a call may exceed its time-out, because the machine may be busy, and because
some calls finish a step after their time is over."""
USEFUL_SECONDS = 60.0
"""How long a client may need to find its brokers again."""
Call = tuple[str, Callable[[], Any]]


class Watched:
    """Makes calls, counts them, and notes those that were late."""

    def __init__(self) -> None:
        self.done, self.failed = Counter[str](), Counter[str]()
        self.late: list[str] = []
        self.error: Exception | None = None

    def make(self, name: str, call: Callable[[], Any]) -> bool:
        """Make one call; return whether it succeeded."""
        began = time.monotonic()
        try:
            call()
            self.done[name] += 1
            return True
        except Exception as error:
            self.failed[name], self.error = self.failed[name] + 1, error
            return False
        finally:
            took = time.monotonic() - began
            if took > TIMEOUT + SLACK:
                self.late.append(f"{name} took {took:.1f} s with a time-out of {TIMEOUT} s")


def confluent(bootstrap: str, topic: str, name: str) -> list[Call]:
    """Calls of librdkafka's clients. The admin client sends no requests to a coordinator, because
    it aborts the process if this broker goes away meanwhile (a known fault of librdkafka)."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

    usual = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda _: None}
    admin = AdminClient(usual)
    producer = Producer({**usual, "delivery.timeout.ms": int(TIMEOUT * 1000)})
    member = Consumer({
        **usual, "group.id": name, "auto.offset.reset": "earliest", "session.timeout.ms": 3000,
    })
    member.subscribe([topic])
    single = Consumer({**usual, "group.id": f"{name}-single"})
    single.assign([TopicPartition(topic, 0, 0)])
    place = TopicPartition(topic, 0)

    def all_of(futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(TIMEOUT)

    def produce() -> None:
        producer.produce(topic, b"x")
        if producer.flush(TIMEOUT):
            raise TimeoutError

    def offsets() -> None:
        # librdkafka keeps the leader epoch of its last metadata. After FENCED_LEADER_EPOCH it
        # repeats the request with the same epoch, until another call renews the metadata.
        try:
            all_of(admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=TIMEOUT))
        except KafkaException:
            admin.list_topics(timeout=TIMEOUT)
            raise

    def settings() -> None:
        wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic)]
        all_of(admin.describe_configs(wanted, request_timeout=TIMEOUT))

    return [
        ("list_topics", lambda: admin.list_topics(timeout=TIMEOUT)),
        ("produce", produce),
        ("poll of a member", lambda: member.poll(TIMEOUT)),
        ("poll", lambda: single.poll(TIMEOUT)),
        ("committed", lambda: member.committed([place], timeout=TIMEOUT)),
        ("watermarks", lambda: single.get_watermark_offsets(place, timeout=TIMEOUT)),
        ("offsets_for_times", lambda: single.offsets_for_times(
            [TopicPartition(topic, 0, 1000)], timeout=TIMEOUT)),
        ("describe_configs", settings),
        ("describe_cluster", lambda: admin.describe_cluster(
            request_timeout=TIMEOUT).result(TIMEOUT)),
        ("list_groups", lambda: admin.list_consumer_groups(
            request_timeout=TIMEOUT).result(TIMEOUT)),
        ("list_offsets", offsets),
    ]  # fmt: skip


def transactional(bootstrap: str, topic: str, name: str) -> list[Call]:
    """Calls of a transactional librdkafka producer; a new producer replaces it after an error."""
    from confluent_kafka import Producer

    held: list[Any] = []

    def producer() -> Any:
        if not held:
            held.append(Producer({
                "bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0,
                "transaction.timeout.ms": 10_000, "error_cb": lambda _: None,
            }))  # fmt: skip
            held[0].init_transactions(TIMEOUT)
        return held[0]

    def guarded(call: Callable[[], Any]) -> Callable[[], Any]:
        def made() -> None:
            try:
                call()
            except Exception:
                held.clear()
                raise

        return made

    def transaction(end: str) -> Callable[[], None]:
        def run() -> None:
            one = producer()
            one.begin_transaction()
            one.produce(topic, b"t")
            getattr(one, end)(TIMEOUT)

        return run

    return [
        ("init_transactions", guarded(producer)),
        ("commit_transaction", guarded(transaction("commit_transaction"))),
        ("abort_transaction", guarded(transaction("abort_transaction"))),
    ]


def kafka_python(bootstrap: str, topic: str, name: str) -> list[Call]:
    """Calls of kafka-python's clients."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

    servers, ms = bootstrap.split(","), int(TIMEOUT * 1000)
    # No short delivery_timeout_ms: after a batch has expired, kafka-python 3.0 requests no new
    # producer id, and sends nothing any more.
    producer = KafkaProducer(
        bootstrap_servers=servers, max_block_ms=ms, request_timeout_ms=ms, linger_ms=0)
    member = KafkaConsumer(
        topic, bootstrap_servers=servers, group_id=name, auto_offset_reset="earliest",
        session_timeout_ms=3000, heartbeat_interval_ms=500, request_timeout_ms=ms + 1000)
    admin = KafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=ms)
    place = TopicPartition(topic, 0)
    return [
        ("send", lambda: producer.send(topic, b"x").get(TIMEOUT)),
        ("flush", lambda: producer.flush(TIMEOUT)),
        ("poll", lambda: member.poll(timeout_ms=ms)),
        ("committed", lambda: member.committed(place, timeout_ms=ms)),
        ("end_offsets", lambda: member.end_offsets([place], timeout_ms=ms)),
        ("list_topics", admin.list_topics),
        ("describe_cluster", admin.describe_cluster),
    ]


CLIENTS = {"confluent": confluent, "transactional": transactional, "kafka-python": kafka_python}


def main() -> int:
    bootstrap, topic, name, seconds, client = sys.argv[1:]
    calls = CLIENTS[client](bootstrap, topic, name)
    watched = Watched()
    print("ready", flush=True)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        for called, call in calls:
            watched.make(called, call)
        time.sleep(0.02)
    useless = []
    for called, call in calls:          # by now, all brokers are back
        until = time.monotonic() + USEFUL_SECONDS
        while not watched.make(called, call):
            if time.monotonic() > until:
                useless.append(f"{called} does not work any more: {watched.error!r}")
                break
            time.sleep(0.2)
    for called, _ in calls:
        print(f"{called}: {watched.done[called]} done, {watched.failed[called]} failed")
    wrong = [*watched.late, *useless]
    print(*wrong, sep="\n", file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.stdout.flush()
        status = main()
        sys.stdout.flush()
        import os

        os._exit(status)        # without librdkafka's shutdown, which is not tested here
