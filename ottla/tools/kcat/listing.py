"""kcat -L and -Q: metadata, and offsets by time."""

from __future__ import annotations

import json
import sys
from typing import Any

from ottla.client.addresses import parse_addresses, show_address
from ottla.client.cluster import ClusterClient
from ottla.client.command_line import INT32_MOST, is_at_most
from ottla.client.similar_names import near
from ottla.client.transport import Security
from ottla.tools.admin import offsets
from ottla.tools.kcat.options import Chosen, Misused
from ottla.tools.stream.client_settings import FORMER_NAMES, check_names, check_values
from ottla.wire.errors import ErrorCode

COMMITTED = "read_committed"
"""librdkafka's default isolation level, and so kcat's."""


def checked(chosen: Chosen) -> dict[str, str]:
    """The settings of -X under the names of Java's clients. Raises WrongUsage for an unknown name
    and for a value that no client takes."""
    properties = {FORMER_NAMES.get(name, name): text for name, text in chosen.properties.items()}
    properties.pop("bootstrap.servers", None)
    check_names(properties)
    check_values(properties)
    return properties


def connected(chosen: Chosen) -> ClusterClient:
    """A client of the cluster whose brokers -b names."""
    return ClusterClient(
        chosen.brokers,
        client_id=chosen.properties.get("client.id", "kcat"),
        connect_seconds=chosen.seconds,
        security=Security.from_properties(chosen.properties),
    )


def metadata(chosen: Chosen) -> None:
    """Prints brokers, topics and partitions. With -t, prints only one topic."""
    checked(chosen)
    wanted = chosen.topics[-1:] or None
    with connected(chosen) as cluster:
        found = cluster.metadata(wanted)
        for topic in found.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                similar = near(cluster, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic.name)
                print(f"% topic {topic.name!r} does not exist{similar}", file=sys.stderr)
    first = show_address(parse_addresses(chosen.brokers)[0])
    if chosen.json:
        print(json.dumps(as_json(found, first, wanted), separators=(",", ":"), ensure_ascii=False))
        return
    lines = [f"Metadata for {wanted[0] if wanted else 'all topics'} (from broker -1:"
             f" {first}/bootstrap):", f" {len(found.brokers)} brokers:"]
    lines += [
        f"  broker {broker.node_id} at {broker.host}:{broker.port}"
        + (" (controller)" if broker.node_id == found.controller_id else "")
        for broker in found.brokers
    ]
    lines.append(f" {len(found.topics)} topics:")
    for topic in found.topics:
        said = f": {message(topic.error_code)}" if topic.error_code else ""
        lines.append(f'  topic "{topic.name}" with {len(topic.partitions)} partitions{said}')
        lines[-1] += "" if said else ":"
        for part in topic.partitions:
            replicas = ",".join(map(str, part.replica_nodes))
            isrs = ",".join(map(str, part.isr_nodes))
            line = (f"    partition {part.partition_index}, leader {part.leader_id},"
                    f" replicas: {replicas}, isrs: {isrs}")
            lines.append(line + (f", {message(part.error_code)}" if part.error_code else ""))
    print("\n".join(lines))


def message(code: int) -> str:
    """librdkafka's text about an error code."""
    from confluent_kafka import KafkaError

    return str(KafkaError(code).str())


def as_json(found: Any, first: str, wanted: list[str] | None) -> dict[str, Any]:
    """The metadata in kcat's JSON form."""
    def replicas(ids: list[int]) -> list[dict[str, int]]:
        return [{"id": each} for each in ids]

    return {
        "originating_broker": {"id": -1, "name": f"{first}/bootstrap"},
        "query": {"topic": wanted[0] if wanted else "*"},
        "controllerid": found.controller_id,
        "brokers": [
            {"id": each.node_id, "name": f"{each.host}:{each.port}"} for each in found.brokers
        ],
        "topics": [
            {
                "topic": topic.name,
                **({"error": message(topic.error_code)} if topic.error_code else {}),
                "partitions": [
                    {
                        "partition": part.partition_index,
                        **({"error": message(part.error_code)} if part.error_code else {}),
                        "leader": part.leader_id,
                        "replicas": replicas(part.replica_nodes),
                        "isrs": replicas(part.isr_nodes),
                    }
                    for part in topic.partitions
                ],
            }
            for topic in found.topics
        ],
    }


def offsets_by_time(chosen: Chosen) -> None:
    """Prints `topic [partition] offset N` for each -t TOPIC:PARTITION:MS. N is -1 if no record has
    this timestamp or a later one."""
    times: dict[tuple[str, int], int] = {}
    for text in chosen.topics:
        topic, _, numbers = text.partition(":")
        index, _, time = numbers.partition(":")
        if not index.isdecimal() or not time.removeprefix("-").isdecimal():
            raise Misused(f"-t {text}: expected TOPIC:PARTITION:TIMESTAMP")
        if not is_at_most(index, INT32_MOST) or not is_at_most(time):
            raise Misused(f"-t {text}: the partition or the timestamp is too large")
        if (topic, int(index)) in times:
            raise Misused(f"-t {text}: the partition is given twice")
        times[topic, int(index)] = int(time)
    if not times:
        raise Misused("-t <topic>:<partition>:<timestamp> missing")
    committed = checked(chosen).get("isolation.level", COMMITTED) == COMMITTED
    with connected(chosen) as cluster:
        results = offsets.required(cluster, times, committed=committed)
    for place in sorted(times):
        sys.stdout.write(f"{place[0]} [{place[1]}] offset {results[place]}\n")
