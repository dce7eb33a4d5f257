"""Converts plans of kafka-reassign-partitions: JSON to replicas and directories, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.client.command_line import INT32_MOST
from ottla.client.errors import ClientError
from ottla.replication.placement import Rotation
from ottla.tools.admin.offsets import Place
from ottla.tools.kafka_names.common import number_in
from ottla.tools.kafka_names.grammar import java_integer


@dataclass
class Item:
    """The target of a partition: brokers, and for each broker a log directory or `any`."""

    replicas: list[int]
    directories: list[str] = field(default_factory=list)


Plan = dict[Place, Item]


class NotJson(ClientError):
    """The file of a plan is not JSON."""


def load(path: str) -> Any:
    """The JSON of a file. Raises ClientError, with the path, for a file that is unreadable or not
    JSON."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as failed:
        raise ClientError(f"Unable to read file {path}: {failed.strerror}") from failed
    except ValueError as wrong:
        raise NotJson(f"{path} is {why_not_json(wrong)}") from wrong


def why_not_json(wrong: ValueError) -> str:
    """Why a file is not JSON, for the error message."""
    if not isinstance(wrong, json.JSONDecodeError):
        return f"not JSON: {wrong}"
    if not wrong.doc.strip():
        return "empty; JSON is expected"
    ends = " (the file ends there)" if not wrong.doc[wrong.pos:].strip() else ""
    return f"not JSON: {wrong.msg.lower()}, line {wrong.lineno}, column {wrong.colno}{ends}"


def misfit(wrong: Exception) -> str:
    """What is wrong with the form of a JSON file, according to the error that its use raised."""
    return f"{wrong} is missing" if isinstance(wrong, KeyError) else "a value has the wrong type"


def read(path: str) -> Plan:
    """The plan in a file. Raises ClientError if the file has no plan, or an invalid one."""
    value = load(path)
    plan: Plan = {}
    try:
        for item in value["partitions"]:
            place = (str(item["topic"]), number_in(path, "partition", item["partition"]))
            if place in plan:
                raise ClientError(
                    "Partition reassignment contains duplicate topic partitions: "
                    f"{place[0]}-{place[1]}"
                )
            plan[place] = Item(
                [number_in(path, "replicas", one) for one in item["replicas"]],
                [str(one) for one in item.get("log_dirs", [])],
            )
    except (KeyError, TypeError) as wrong:
        raise ClientError(
            f'{path}: expected {{"partitions": [{{"topic": NAME, "partition": N, "replicas":'
            f" [N, …]}}]}}, but {misfit(wrong)}"
        ) from wrong
    if not plan:
        raise ClientError("Partition reassignment list cannot be empty")
    for (topic, index), item in plan.items():
        if not item.replicas:
            raise ClientError(f"Partition replica list cannot be empty: {topic}-{index}")
        twice = sorted({one for one in item.replicas if item.replicas.count(one) > 1})
        if twice:
            raise ClientError(
                "Partition replica lists may not contain duplicate entries: "
                f"{topic}-{index} contains multiple entries for {','.join(map(str, twice))}"
            )
        if item.directories and len(item.directories) != len(item.replicas):
            raise ClientError(
                f"Size of replicas list {item.replicas} is different from size of log "
                f"dirs list {item.directories} for partition {topic}-{index}"
            )
    return plan


def topics_of(path: str) -> list[str]:
    """The topics of a --topics-to-move-json-file."""
    value = load(path)
    try:
        return [str(item["topic"]) for item in value["topics"]]
    except (KeyError, TypeError) as wrong:
        raise ClientError(
            f'{path}: expected {{"topics": [{{"topic": NAME}}]}}, but {misfit(wrong)}') from wrong


def brokers_of(text: str) -> list[int]:
    """Parses ids separated by commas. Raises ClientError for duplicates."""
    try:
        brokers = [java_integer(part, INT32_MOST) for part in text.split(",")]
    except ValueError:
        raise ClientError(f"broker list {text!r}: expected ids with commas between them") from None
    if len(set(brokers)) < len(brokers):
        raise ClientError(f"broker list contains duplicate entries: {text}")
    return brokers


def spread(
    current: dict[Place, list[int]], racks: Mapping[int, str | None]
) -> dict[Place, list[int]]:
    """New replicas for each partition, as many as it has now, on the brokers in `racks`. The
    replicas are placed as the controller places new partitions."""
    proposed = {}
    rotation, size = Rotation(racks), len(racks)
    for number, (place, replicas) in enumerate(sorted(current.items())):
        if len(replicas) > size:
            raise ClientError(
                f"Unable to replicate the partition {len(replicas)} time(s): "
                f"partition {place[0]}-{place[1]} has {len(replicas)} replicas, but --broker-list "
                f"names only {size} broker(s)"
            )
        proposed[place] = list(rotation.replicas(number, number // size, len(replicas)))
    return proposed


def as_json(
    replicas: dict[Place, list[int]], directories: dict[tuple[str, int, int], str]
) -> dict[str, object]:
    """An assignment in the form of a --reassignment-json-file."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": topic,
                "partition": index,
                "replicas": brokers,
                "log_dirs": [directories.get((topic, index, one), "any") for one in brokers],
            }
            for (topic, index), brokers in sorted(replicas.items())
        ],
    }
