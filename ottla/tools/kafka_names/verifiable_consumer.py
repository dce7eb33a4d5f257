"""kafka-verifiable-consumer: a member of a group, and a line of JSON for each event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.tools.kafka_names.common import connect, properties_of
from ottla.tools.kafka_names.main import Failed
from ottla.tools.kafka_names.verifiable import say
from ottla.tools.stream.client_settings import bootstrap_servers, keyword_arguments, known_to

if TYPE_CHECKING:
    from ottla.tools.kafka_names.grammar import Options


def run(options: Options) -> int:
    """Consumes until enough has been received, or it is stopped."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    options.needs("topic", "group-id", "bootstrap-server")
    if options.one("group-protocol", "classic").lower() != "classic":
        raise Failed("kafka-python supports only the classic group protocol")
    policy = options.one("reset-policy", "earliest")
    if policy not in ("earliest", "latest", "none"):
        raise Failed(f"Invalid value {policy} for configuration auto.offset.reset")
    with connect(options) as cluster:
        servers = bootstrap_servers(cluster)  # reports an unreachable broker at once

    # kafka-python joins before it knows the topic, and says so: changes of nothing are not shown.
    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                say("partitions_revoked", partitions=shown(revoked))

        def on_partitions_assigned(self, assigned: Any) -> None:
            if assigned:
                say("partitions_assigned", partitions=shown(assigned))

    settings = {
        "auto_offset_reset": policy,
        "session_timeout_ms": options.number("session-timeout", 30_000),
        "enable_auto_commit": options.has("enable-autocommit"),
        **known_to(KafkaConsumer, keyword_arguments(properties_of(options))),
    }
    if options.has("group-instance-id"):
        settings["group_instance_id"] = options.one("group-instance-id")
    consumer = KafkaConsumer(
        bootstrap_servers=servers, group_id=options.one("group-id"), **settings
    )
    consumer.subscribe([options.one("topic")], listener=Listener())
    say("startup_complete")
    try:
        consume(consumer, options)
    except KeyboardInterrupt:
        pass
    except KafkaError as failed:
        # Apache Kafka's logs it and ends with 0.
        raise Failed(f"{type(failed).__name__}: {failed}", status=0) from failed
    finally:
        consumer.close()
        say("shutdown_complete")
    return 0


def shown(places: Any) -> list[dict[str, object]]:
    """Partitions as JSON."""
    return [{"topic": one.topic, "partition": one.partition} for one in places or ()]


def consume(consumer: Any, options: Options) -> None:
    """Poll, report, commit."""
    from kafka import OffsetAndMetadata

    most = options.number("max-messages", -1)
    count = 0
    while most < 0 or count < most:
        batches = consumer.poll(1000, max_records=most - count if most > 0 else None)
        if not batches:
            continue
        partitions, commits = [], {}
        for place, records in batches.items():
            count += len(records)
            commits[place] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
            partitions.append(
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "count": len(records),
                    "minOffset": records[0].offset,
                    "maxOffset": records[-1].offset,
                }
            )
            if options.has("verbose"):
                for one in records:
                    say(
                        "record_data",
                        key=text(one.key),
                        value=text(one.value),
                        topic=one.topic,
                        partition=one.partition,
                        offset=one.offset,
                    )
        say("records_consumed", count=sum(map(len, batches.values())), partitions=partitions)
        if not options.has("enable-autocommit"):
            consumer.commit(commits)
            say(
                "offsets_committed",
                offsets=[
                    {"topic": place.topic, "partition": place.partition, "offset": one.offset}
                    for place, one in commits.items()
                ],
                success=True,
            )


def text(data: bytes | None) -> str | None:
    """A key or value as text."""
    return None if data is None else data.decode(errors="replace")
