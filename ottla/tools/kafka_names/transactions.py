"""kafka-transactions: the tables of Apache Kafka's TransactionsCommand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ottla.client.errors import Refused
from ottla.client.similar_names import KINDS, near, near_partition
from ottla.tools.admin import transactions
from ottla.tools.kafka_names.common import connect
from ottla.tools.kafka_names.grammar import Options, sub_command
from ottla.tools.kafka_names.java import message_of, pretty_table
from ottla.tools.kafka_names.main import Failed
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place

COMMANDS = (
    "list",
    "describe",
    "describe-producers",
    "abort",
    "find-hanging",
    "forceTerminateTransaction",
)
NEEDED = {
    "describe": ("transactional-id",),
    "describe-producers": ("topic", "partition"),
    "abort": ("topic", "partition"),
    "forceTerminateTransaction": ("transactionalId",),
}


def run(options: Options) -> int:
    """Runs the sub-command that was given."""
    name = sub_command(options, COMMANDS)
    options.needs("bootstrap-server", *NEEDED.get(name, ()))
    act = {
        "list": show_list,
        "describe": describe,
        "describe-producers": describe_producers,
        "abort": abort,
        "find-hanging": find_hanging,
        "forceTerminateTransaction": terminate,
    }[name]
    with connect(options) as cluster:
        act(options, cluster)
    return 0


def show_list(options: Options, cluster: ClusterClient) -> None:
    listings = transactions.list_transactions(
        cluster,
        older_ms=options.number("duration-filter", -1),
        pattern=options.one("transactional-id-pattern") or None,
    )
    columns = "TransactionalId", "Coordinator", "ProducerId", "TransactionState"
    print(pretty_table(columns, listings))


def describe(options: Options, cluster: ClusterClient) -> None:
    wanted = options.one("transactional-id")
    try:
        coordinator, state = transactions.describe(cluster, wanted)
    except Refused as refused:
        raise Failed(
            f"Failed to describe transaction state of transactional-id `{wanted}`: "
            f"{message_of(refused.number, refused.said)}",
            near=near(cluster, refused.code, wanted) if refused.code in KINDS else "",
        ) from refused
    started = state.transaction_start_time_ms
    since = int(time.time() * 1000) - started
    places = ",".join(
        f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions
    )
    print(
        pretty_table(
            (
                "CoordinatorId",
                "TransactionalId",
                "ProducerId",
                "ProducerEpoch",
                "TransactionState",
                "TransactionTimeoutMs",
                "CurrentTransactionStartTimeMs",
                "TransactionDurationMs",
                "TopicPartitions",
            ),
            [
                (
                    coordinator,
                    wanted,
                    state.producer_id,
                    state.producer_epoch,
                    state.transaction_state,
                    state.transaction_timeout_ms,
                    started if started >= 0 else "None",
                    since if started >= 0 else "None",
                    places,
                )
            ],
        )
    )


def describe_producers(options: Options, cluster: ClusterClient) -> None:
    place = (options.one("topic"), options.number("partition", 0))
    try:
        known_producers = transactions.producers(cluster, [place])[place]
    except Refused as refused:
        raise Failed(
            f"Failed to describe producers for partition {place[0]}-{place[1]} on leader: "
            f"{message_of(refused.number, refused.said)}",
            near=near_place(cluster, refused, place),
        ) from refused
    rows = [
        (
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.last_sequence,
            one.last_timestamp,
            one.current_txn_start_offset if one.current_txn_start_offset >= 0 else "None",
        )
        for one in known_producers
    ]
    print(
        pretty_table(
            (
                "ProducerId",
                "ProducerEpoch",
                "LatestCoordinatorEpoch",
                "LastSequence",
                "LastTimestamp",
                "CurrentTransactionStartOffset",
            ),
            rows,
        )
    )


def near_place(cluster: ClusterClient, refused: Refused, place: Place) -> str:
    """The end of the message about a partition that does not exist."""
    missing = refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return near_partition(cluster, *place) if missing else ""


def abort(options: Options, cluster: ClusterClient) -> None:
    place = (options.one("topic"), options.number("partition", 0))
    name = f"{place[0]}-{place[1]}"
    if options.has("start-offset"):
        start = options.number("start-offset", 0)
        found = [
            one
            for one in transactions.producers(cluster, [place])[place]
            if one.current_txn_start_offset == start
        ]
        if not found:
            raise Failed(
                f"Could not find any open transactions starting at offset {start} on "
                f"partition {name}"
            )
        producer = (found[0].producer_id, found[0].producer_epoch, found[0].coordinator_epoch)
    else:
        options.needs("producer-id", "producer-epoch", "coordinator-epoch")
        producer = (
            options.number("producer-id", -1),
            options.number("producer-epoch", -1),
            options.number("coordinator-epoch", -1),
        )
    try:
        transactions.abort(cluster, place, *producer)
    except Refused as refused:
        raise Failed(
            f"Failed to abort transaction on partition {name}: "
            f"{message_of(refused.number, refused.said)}",
            near=near_place(cluster, refused, place),
        ) from refused


def find_hanging(options: Options, cluster: ClusterClient) -> None:
    if not options.has("topic") and not options.has("broker-id"):
        raise Failed(
            "The `find-hanging` command requires either --topic or --broker-id to limit "
            "the scope of the search"
        )
    if options.has("partition") and not options.has("topic"):
        raise Failed("The --partition argument requires --topic to be provided")
    found = transactions.hanging(
        cluster, places(options, cluster), options.number("max-transaction-timeout", 15)
    )
    rows = [
        (
            *one.place,
            one.producer.producer_id,
            one.producer.producer_epoch,
            one.producer.coordinator_epoch,
            one.producer.current_txn_start_offset,
            one.producer.last_timestamp,
            one.minutes,
        )
        for one in found
    ]
    print(
        pretty_table(
            (
                "Topic",
                "Partition",
                "ProducerId",
                "ProducerEpoch",
                "CoordinatorEpoch",
                "StartOffset",
                "LastTimestamp",
                "Duration(min)",
            ),
            rows,
        )
    )


def places(options: Options, cluster: ClusterClient) -> list[Place]:
    """The partitions to search."""
    topics = cluster.metadata([options.one("topic")] if options.has("topic") else None).topics
    if options.has("topic") and topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise Failed(
            f"Failed to describe 1 topics: {message_of(topics[0].error_code)}",
            near=near_partition(cluster, options.one("topic"), 0))
    broker = options.number("broker-id", -1)
    partition = options.number("partition", -1)
    return [
        (topic.name, part.partition_index)
        for topic in topics
        for part in topic.partitions
        if (broker < 0 or broker in part.replica_nodes)
        and (partition < 0 or part.partition_index == partition)
    ]


def terminate(options: Options, cluster: ClusterClient) -> None:
    transactions.terminate(cluster, options.one("transactionalId"))
