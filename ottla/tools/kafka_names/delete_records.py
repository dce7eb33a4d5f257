"""kafka-delete-records: the lines of Apache Kafka's DeleteRecordsCommand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.command_line import INT64_MOST
from ottla.client.errors import Refused
from ottla.client.similar_names import near_partition
from ottla.tools.admin import offsets
from ottla.tools.kafka_names.common import connect, number_in, read_json
from ottla.tools.kafka_names.java import exception_of
from ottla.tools.kafka_names.main import Failed, complain
from ottla.tools.kafka_names.reassignment_plan import misfit
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.tools.admin.offsets import Place
    from ottla.tools.kafka_names.grammar import Options


def run(options: Options) -> int:
    """Deletes the records below the offsets in the file."""
    options.needs("offset-json-file", "bootstrap-server")
    below = plan(options.one("offset-json-file"))
    with connect(options) as cluster:
        print("Executing records delete operation")
        try:
            done = offsets.delete_records(cluster, below)
        except Refused as refused:      # its error holds for every partition
            done = dict.fromkeys(below, (refused.number, -1))
        print("Records delete operation completed:")
        for (topic, index), (code, low) in done.items():
            result = f"error: {exception_of(code)}" if code else f"low_watermark: {low}"
            print(f"partition: {topic}-{index}\t{result}")
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                near = near_partition(cluster, topic, index)
                complain("kafka-delete-records", f"{topic}-{index} does not exist{near}")
    return 0


def plan(path: str) -> dict[Place, int]:
    """The offsets in the file. Raises Failed if the file does not have the form that the help
    shows, or names a partition twice."""
    value = read_json(path)
    below: dict[Place, int] = {}
    twice: list[str] = []
    try:
        for item in value["partitions"]:
            place = (str(item["topic"]), number_in(path, "partition", item["partition"]))
            twice += [f"{place[0]}-{place[1]}"] * (place in below)
            below[place] = number_in(path, "offset", item["offset"], INT64_MOST)
    except (KeyError, TypeError) as wrong:
        raise Failed(
            f'{path}: expected {{"partitions": [{{"topic": NAME, "partition": N, "offset": N}}]}},'
            f" but {misfit(wrong)}"
        ) from wrong
    if twice:
        raise Failed(f"Offset json file contains duplicate topic partitions: {', '.join(twice)}")
    return below
