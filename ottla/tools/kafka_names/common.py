"""Code shared by the tools: a cluster from the usual flags, property files, JSON files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ottla.client.cluster import ClusterClient
from ottla.client.command_line import INT32_MOST, is_number
from ottla.client.transport import Security
from ottla.tools.kafka_names.grammar import Options, UsageError, java_integer
from ottla.tools.kafka_names.main import Failed
from ottla.tools.usage import WrongUsage

CONFIG_FLAGS = (
    "command-config",
    "admin.config",
    "consumer.config",
    "producer.config",
    "config-file",
)
SECONDS = 5.0
"""How long a tool waits for a broker to be reachable; Apache Kafka's tools wait for 60 s."""


def properties_of(options: Options) -> dict[str, str]:
    """Properties from the file of `--command-config`, or of an older flag for the same purpose."""
    from ottla.tools.properties import read_client_properties

    if options.properties is None:              # read once, to report misspelled names once
        options.properties = {}
        for flag in CONFIG_FLAGS:
            if options.has(flag) and options.one(flag):
                options.properties.update(read_client_properties(options.one(flag)))
    return dict(options.properties)


def connect(options: Options, address: str = "") -> ClusterClient:
    """A client of the cluster of `--bootstrap-server` (or `--bootstrap-controller`)."""
    properties = properties_of(options)
    given = address or options.one("bootstrap-server") or options.one("bootstrap-controller")
    return cluster_of(given or properties.get("bootstrap.servers", ""), properties)


def cluster_of(address: str, properties: Mapping[str, str]) -> ClusterClient:
    """A client of the cluster at this address, with these client properties."""
    timeout = properties.get("request.timeout.ms", "30000")
    if not is_number(timeout, INT32_MOST):
        raise WrongUsage(
            f"request.timeout.ms={timeout}: expected a whole number, {INT32_MOST} or less")
    return ClusterClient(
        address,
        client_id=properties.get("client.id", "ottla"),
        connect_seconds=SECONDS,
        request_seconds=int(timeout) / 1000,
        security=Security.from_properties(properties),
    )


def needs_server(options: Options, message: str = "--bootstrap-server must be specified") -> None:
    """Raises UsageError if no broker was named."""
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise UsageError(message)


def read_json(path: str) -> Any:
    """The JSON of a file. Raises Failed, with the path, if the file is unreadable or not JSON."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as failed:
        raise Failed(f"Unable to read file {path}: {failed.strerror}") from failed
    except ValueError as wrong:
        raise Failed(f"The input string is not a valid JSON: {path}: {wrong}") from wrong


def number_in(path: str, name: str, value: object, most: int = INT32_MOST) -> int:
    """A number in the field `name` of a file. Raises WrongUsage for a value that the field cannot
    hold."""
    try:
        return java_integer(str(value), most)
    except ValueError:
        raise WrongUsage(f"{path}: {name} {value!r}: expected a whole number from {-most - 1} to"
                         f" {most}") from None


def compact_json(value: Any) -> str:
    """JSON as Jackson writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def java_regex(pattern: str) -> re.Pattern[str]:
    """A pattern for topics' names. Commas separate alternatives; spaces and quotes are removed."""
    text = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(text)
    except re.error as wrong:
        raise Failed(f"{text} is an invalid regex: {wrong}") from wrong


def matching(pattern: str | None, names: list[str]) -> list[str]:
    """The names that match a pattern as a whole; all names if the pattern is None."""
    if pattern is None:
        return names
    fits = java_regex(pattern).fullmatch
    return [name for name in names if fits(name)]


def padded(*columns: tuple[object, int]) -> str:
    """Left-aligned columns of these widths with a space between them."""
    return " ".join(f"{value!s:<{width}}" for value, width in columns)


Run = Callable[[Options], int]
