"""kafka-leader-election: the lines of Apache Kafka's LeaderElectionCommand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.similar_names import near_partition
from ottla.tools.admin import partitions
from ottla.tools.kafka_names.common import connect, number_in, read_json
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.java import exception_of
from ottla.tools.kafka_names.main import Failed
from ottla.tools.kafka_names.reassignment_plan import misfit
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.offsets import Place

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TYPES = {"preferred": partitions.PREFERRED, "unclean": partitions.UNCLEAN}


def run(options: Options) -> int:
    """Elects leaders, and reports the result for each partition."""
    wanted = options.one("election-type").lower()
    if options.has("election-type") and wanted not in TYPES:
        raise UsageError(
            f"Cannot parse argument '{options.one('election-type')}' of option election-type"
        )
    missing = [name for name in ("election-type", "bootstrap-server") if not options.has(name)]
    if options.has("topic") and not options.has("partition"):
        missing.append("partition")
    if missing:
        raise UsageError(f"Missing required option(s): {', '.join(missing)}")
    ways = [
        name for name in ("topic", "all-topic-partitions", "path-to-json-file") if options.has(name)
    ]
    if len(ways) != 1:
        raise UsageError(
            "One and only one of the following options is required: topic, "
            "all-topic-partitions, path-to-json-file"
        )
    places = chosen(options)
    with connect(options) as cluster:
        results = partitions.elect(cluster, TYPES[wanted], places)
        report(cluster, results, wanted.upper(), said=places is not None)
    return 0


def chosen(options: Options) -> list[Place] | None:
    """The selected partitions; None means all partitions."""
    if options.has("topic"):
        return [(options.one("topic"), options.number("partition", 0))]
    if not options.has("path-to-json-file"):
        return None
    path = options.one("path-to-json-file")
    value = read_json(path)
    try:
        places = [
            (str(item["topic"]), number_in(path, "partition", item["partition"]))
            for item in value["partitions"]
        ]
    except (KeyError, TypeError) as wrong:
        raise Failed(
            f'{path}: expected {{"partitions": [{{"topic": NAME, "partition": N}}]}}, but'
            f" {misfit(wrong)}"
        ) from wrong
    if len(set(places)) < len(places):
        raise Failed("Replica election data contains duplicate partitions")
    return places


def report(
    cluster: ClusterClient, results: dict[Place, tuple[int, str | None]], kind: str, *, said: bool
) -> None:
    """Prints the results. Raises Failed if a leader could not be elected."""
    elected = [place for place, (code, _) in results.items() if not code]
    needless = [
        place for place, (code, _) in results.items() if code == ErrorCode.ELECTION_NOT_NEEDED
    ]
    failed = {
        place: result for place, result in results.items() if result[0] and place not in needless
    }
    if elected:
        print(f"Successfully completed leader election ({kind}) for partitions {shown(elected)}")
    if needless and said:
        print(f"Valid replica already elected for partitions {shown(needless)}")
    for (topic, index), (code, message) in failed.items():
        print(
            f"Error completing leader election ({kind}) for partition: {topic}-{index}: "
            f"{exception_of(code, message)}"
        )
    if failed:
        missing = [place for place in failed if failed[place][0] == UNKNOWN]
        raise Failed(
            f"{len(failed)} replica(s) could not be elected",
            near=near_partition(cluster, *missing[0]) if missing else "",
        )


def shown(places: list[Place]) -> str:
    """Partitions with commas between them."""
    return ", ".join(f"{topic}-{index}" for topic, index in places)
