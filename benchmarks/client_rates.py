"""How fast are stock clients with either broker?

Each client runs with the same arguments against both brokers in turn, on a new topic each time.
Data are on tmpfs. Ottla runs with `ottla.acks.all.flush=false`: with acks=all it answers before it
flushes, as Kafka does. Client and broker share the machine, so a rate depends on both: a broker
that uses less CPU leaves more to the client.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer

from benchmarks import load, report

TOOL = Path(__file__).with_name("peers") / "kafka" / "tool.sh"
SIZES = {100: 1_000_000, 1000: 200_000, 2500: 100_000}
# librdkafka fetches nothing for up to a second when its queue is full, and a faster broker fills
# the queue earlier. With room for all records there are no such pauses.
ROOMY = {"queued.min.messages": "10000000", "queued.max.messages.kbytes": "1000000"}
Runner = Callable[[str, str, int, int], float]


def tool(*arguments: str) -> str:
    """Run one of Kafka's own tools; returns its output."""
    environment = os.environ | {"PORT": "0", "CPORT": "0"}
    done = subprocess.run(
        [TOOL, *arguments], capture_output=True, text=True, timeout=300, env=environment
    )
    if done.returncode != 0:
        raise load.LoadFailed(done.stderr or done.stdout)
    return done.stdout


def java_producer(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Records a second that ProducerPerformance reports, with acks=all."""
    printed = tool(
        "producer-perf", "--topic", topic, "--num-records", str(count), "--record-size", str(size),
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all",
    )  # fmt: skip
    return float(re.findall(r"([\d.]+) records/sec", printed)[-1])


def java_consumer(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Records a second that ConsumerPerformance reports, without the time to join its group."""
    printed = tool(
        "consumer-perf", "--bootstrap-server", bootstrap, "--topic", topic,
        "--num-records", str(count), "--timeout", "60000",
    )  # fmt: skip
    fields = printed.strip().splitlines()[-1].split(",")
    return float(fields[-1])


def kcat_producer(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Records a second of kcat reading lines from a pipe."""
    lines = (b"x" * (size - 1) + b"\n") * count
    began = time.monotonic()
    subprocess.run(
        ["kcat", "-q", "-P", "-b", bootstrap, "-t", topic], input=lines, check=True, timeout=300
    )
    return count / (time.monotonic() - began)


def kcat_consumer(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Records a second of kcat consuming to /dev/null."""
    command = ["kcat", "-q", "-C", "-b", bootstrap, "-t", topic, "-o", "beginning"]
    command += ["-c", str(count)]
    for name, value in ROOMY.items():
        command += ["-X", f"{name}={value}"]
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=300)
    return count / (time.monotonic() - began)


def confluent_producer(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Records a second of confluent-kafka's producer with acks=all."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 100_000})
    value = os.urandom(size)
    began = time.monotonic()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(120) > 0:
        raise load.LoadFailed("confluent-kafka's producer was not done after 120 s")
    return count / (time.monotonic() - began)


def confluent_consumer(bootstrap: str, topic: str, size: int, count: int) -> float:
    """Records a second of confluent-kafka's consumer, from its first record on."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            **ROOMY,
        }
    )
    consumer.subscribe([topic])
    seen, began, first = 0, 0.0, 0
    try:
        deadline = time.monotonic() + 120
        while seen < count:
            if time.monotonic() > deadline:
                raise load.LoadFailed(f"confluent-kafka's consumer saw {seen} of {count} records")
            batch = consumer.consume(min(10_000, count - seen), timeout=1.0)
            seen += len(batch)
            if batch and not began:
                began, first = time.monotonic(), seen
    finally:
        consumer.close()
    return (count - first) / max(time.monotonic() - began, 0.001)


CLIENTS: dict[str, tuple[Runner, Runner]] = {
    "Java": (java_producer, java_consumer),
    "kcat": (kcat_producer, kcat_consumer),
    "confluent-kafka": (confluent_producer, confluent_consumer),
}


def measure(rounds: int, sizes: dict[int, int]) -> dict[str, dict[str, list[float]]]:
    """Records a second in each round, by figure (client, direction and record size) and broker."""
    results: dict[str, dict[str, list[float]]] = {}
    settings = ("group.initial.rebalance.delay.ms=0",)
    with load.both_brokers(*settings, kafkas_flush=True) as brokers:
        brokers["ottla"].stop()  # this Ottla flushes before it answers: not measured
        for number in range(-1, rounds):  # the first round compiles Kafka's code and is not kept
            for client, (produce, consume) in CLIENTS.items():
                for size, count in sizes.items():
                    count *= 1 if client == "Java" else 2  # the others are about twice as fast
                    for kind in (load.KAFKAS_FLUSH, "kafka"):
                        name = f"rates-{client}-{size}-{number}"
                        with load.topic(brokers[kind], name, 1) as topic:
                            skipped = led_offset(brokers[kind], topic)
                            rates = [
                                run(brokers[kind].bootstrap, topic, size, number_of)
                                for run, number_of in ((produce, count), (consume, count + skipped))
                            ]
                        for what, rate in zip(("produces", "consumes"), rates, strict=True):
                            key = f"{client} {what} {size:,} B"
                            if number >= 0:
                                results.setdefault(key, {}).setdefault(kind, []).append(rate)
        brokers["ottla"].start()
    return results


def led_offset(broker: load.AnyBroker, topic: str) -> int:
    """The number of records that are in the topic before the clients write to it. To find out
    whether the topic has a leader, `load.topic` writes records to Kafka, but none to Ottla."""
    from confluent_kafka import TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "rates"})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    finally:
        consumer.close()
    return int(high)


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--quick", action="store_true", help="only records of 1,000 B")
    chosen = arguments.parse_args()
    sizes = {1000: SIZES[1000]} if chosen.quick else SIZES
    results = measure(chosen.rounds, sizes)
    rows = [
        [
            name,
            report.spread(by_broker[load.KAFKAS_FLUSH], 0),
            report.spread(by_broker["kafka"], 0),
            report.ratio(by_broker[load.KAFKAS_FLUSH], by_broker["kafka"]),
        ]
        for name, by_broker in results.items()
    ]
    text = report.table(["client", "Ottla records/s", f"{report.PEER} records/s", "ratio"], rows)
    report.write("How fast are stock clients?", "client-rates", text, results)


if __name__ == "__main__":
    main()
