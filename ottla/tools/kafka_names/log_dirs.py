"""kafka-log-dirs: the JSON of Apache Kafka's LogDirsCommand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.command_line import INT32_MOST
from ottla.client.similar_names import similar
from ottla.tools.admin import partitions
from ottla.tools.kafka_names.common import compact_json, connect
from ottla.tools.kafka_names.grammar import UsageError, java_integer
from ottla.tools.kafka_names.java import exception_of
from ottla.tools.kafka_names.main import Failed, complain

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.kafka_names.grammar import Options


def run(options: Options) -> int:
    """Prints the contents of the brokers' log directories."""
    options.needs("describe", "bootstrap-server")
    topics = {name for name in options.one("topic-list").split(",") if name}
    with connect(options) as cluster:
        live = cluster.live()
        wanted = brokers_of(options.one("broker-list"))
        brokers = wanted or live
        if missing := [one for one in brokers if one not in live]:
            raise Failed(
                f"ERROR: The given brokers do not exist from --broker-list: {joined(missing)}. "
                f"Current existent brokers: {joined(live)}"
            )
        print("Querying brokers for log directories information")
        report_missing(cluster, topics)
        found = [
            {
                "broker": broker,
                "logDirs": [
                    shown(directory, topics) for directory in partitions.log_dirs(cluster, broker)
                ],
            }
            for broker in brokers
        ]
    print(f"Received log directory information from brokers {joined(brokers)}")
    print(compact_json({"brokers": found, "version": 1}))
    return 0


def brokers_of(text: str) -> list[int]:
    """The ids in --broker-list. Raises UsageError."""
    try:
        return [java_integer(one, INT32_MOST) for one in text.split(",") if one.strip()]
    except ValueError:
        raise UsageError(f"--broker-list {text}: expected ids of brokers, as in 1,2") from None


def report_missing(cluster: ClusterClient, topics: set[str]) -> None:
    """Reports on stderr which topics do not exist. Kafka's tool leaves them out silently."""
    known = [topic.name for topic in cluster.metadata().topics] if topics else []
    for name in sorted(topics.difference(known)):
        complain("kafka-log-dirs", f"topic {name!r} does not exist{similar(name, known)}")


def joined(brokers: list[int]) -> str:
    """Ids with commas between them."""
    return ",".join(map(str, brokers))


def shown(directory: object, topics: set[str]) -> dict[str, object]:
    """One directory with the partitions of the wanted topics."""
    found = [
        {
            "partition": f"{topic.name}-{part.partition_index}",
            "size": part.partition_size,
            "offsetLag": part.offset_lag,
            "isFuture": part.is_future_key,
        }
        for topic in directory.topics  # type: ignore[attr-defined]
        if not topics or topic.name in topics
        for part in topic.partitions
    ]
    code = directory.error_code  # type: ignore[attr-defined]
    error = exception_of(code).partition(":")[0] if code else None
    path = directory.log_dir  # type: ignore[attr-defined]
    return {"partitions": found, "error": error, "logDir": path}
