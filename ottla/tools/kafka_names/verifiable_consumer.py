"""kafka-verifiable-consumer: a member of a group that prints each event as a line of JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError
from ottla.tools.kafka_names.common import connect, properties_of
from ottla.tools.kafka_names.main import Failed
from ottla.tools.kafka_names.verifiable import say
from ottla.tools.stream.consumer import Consumer, RebalanceListener, Rebalancing
from ottla.tools.stream.reader import Reading, report_missing

if TYPE_CHECKING:
    from ottla.tools.admin.offsets import Place
    from ottla.tools.kafka_names.grammar import Options

PROTOCOLS = ("classic", "consumer")
ASSIGNORS = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
"""librdkafka's names of Java's assignors."""


class RebalanceEvents(RebalanceListener):
    """Prints changes of the member's partitions."""

    def assigned(self, places: list[Place]) -> None:
        say("partitions_assigned", partitions=shown(places))

    def revoked(self, places: list[Place]) -> None:
        if places:
            say("partitions_revoked", partitions=shown(places))


def run(options: Options) -> int:
    """Consumes until --max-messages records were received, or the tool is stopped."""
    options.only_flags()
    options.needs("topic", "group-id", "bootstrap-server")
    settings = consumer_settings(options)
    with connect(options) as cluster:
        # Reports an unreachable broker at once.
        report_missing(cluster, Reading([options.one("topic")]), waits=True)
        consumer = Consumer(
            cluster, settings, group=options.one("group-id"), listener=RebalanceEvents())
        consumer.commits = options.has("enable-autocommit")
        consumer.subscribe([options.one("topic")])
        say("startup_complete")
        try:
            consume(consumer, options)
        except KeyboardInterrupt:
            pass
        except ClientError as failed:
            # Apache Kafka's tool logs the error and exits with 0.
            raise Failed(str(failed), status=0) from failed
        finally:
            consumer.close()
            say("shutdown_complete")
    return 0


def consumer_settings(options: Options) -> dict[str, str]:
    """The properties of the consumer, from a file and from flags."""
    protocol = options.one("group-protocol", "classic").lower()
    if protocol not in PROTOCOLS:
        raise Failed(
            f"Invalid value {protocol} for configuration group.protocol: expected classic or"
            " consumer")
    policy = options.one("reset-policy", "earliest")
    if policy not in ("earliest", "latest", "none"):
        raise Failed(
            f"Invalid value {policy} for configuration auto.offset.reset: expected earliest, latest"
            " or none")
    properties = {**properties_of(options), "group.protocol": protocol,
                  "auto.offset.reset": "error" if policy == "none" else policy}  # fmt: skip
    if protocol == "classic":
        properties["session.timeout.ms"] = str(options.number("session-timeout", 30_000))
        if options.has("assignment-strategy"):
            name = options.one("assignment-strategy")
            properties["partition.assignment.strategy"] = ASSIGNORS.get(name, name)
    elif options.has("group-remote-assignor"):
        properties["group.remote.assignor"] = options.one("group-remote-assignor")
    if options.has("group-instance-id"):
        properties["group.instance.id"] = options.one("group-instance-id")
    return properties


def shown(places: list[Place]) -> list[dict[str, object]]:
    """Partitions as JSON."""
    return [{"topic": topic, "partition": index} for topic, index in places]


def consume(consumer: Consumer, options: Options) -> None:
    """Poll, report, commit. If the last commit was refused, it is repeated at the end."""
    most = options.number("max-messages", -1)
    count = 0
    pending: set[Place] = set()
    try:
        while most < 0 or count < most:
            taken: dict[Place, list[Any]] = defaultdict(list)
            for message in consumer.poll(0.5):
                place = (message.topic(), message.partition())
                if message.error() is None and count != most and consumer.is_next(
                    place, message.offset()
                ):
                    taken[place].append(message)
                    consumer.advance(place, message.offset() + 1)
                    count += 1
            if not taken:
                continue
            report(taken, verbose=options.has("verbose"))
            consumer.settle()
            if consumer.commits:
                consumer.commit_when_due()
                continue
            pending.update(taken)
            commit(consumer, pending, consumer.commit)
    except KeyboardInterrupt:
        pass
    commit(consumer, pending, consumer.commit_last)


def commit(consumer: Consumer, pending: set[Place], act: Callable[[], object]) -> None:
    """Commit with `act`, and report the positions of the pending partitions that the member still
    has. After a refusal, the partitions stay pending. A partition that is revoked before the next
    commit stays uncommitted, as with Apache Kafka's tool."""
    offsets = [
        {"topic": place[0], "partition": place[1], "offset": consumer.settled[place]}
        for place in sorted(pending) if place in consumer.settled]  # fmt: skip
    if not offsets:
        return
    try:
        act()
    except ClientError as failed:
        say("offsets_committed", offsets=offsets, error=str(failed), success=False)
        if not isinstance(failed, Rebalancing):
            raise
    else:
        say("offsets_committed", offsets=offsets, success=True)
        pending.clear()


def report(taken: dict[Place, list[Any]], *, verbose: bool) -> None:
    """Print the records of one poll."""
    if verbose:
        for place, messages in taken.items():
            for one in messages:
                say("record_data", key=text(one.key()), value=text(one.value()), topic=place[0],
                    partition=place[1], offset=one.offset())  # fmt: skip
    say("records_consumed", count=sum(map(len, taken.values())), partitions=[
        {"topic": place[0], "partition": place[1], "count": len(messages),
         "minOffset": messages[0].offset(), "maxOffset": messages[-1].offset()}
        for place, messages in taken.items()])  # fmt: skip


def text(data: bytes | None) -> str | None:
    """A key or value as text."""
    return None if data is None else data.decode(errors="replace")
