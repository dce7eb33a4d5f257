"""kafka-storage, for scripts that format log directories before they start a broker.

Ottla's directories need no formatting. `format` writes `meta.properties` with the cluster's id,
which the broker uses at its first start.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.command_line import INT32_MOST, is_number
from ottla.tools.admin.uuids import random_uuid, uuid_of
from ottla.tools.kafka_names.feature_levels import (
    LATEST,
    METADATA_VERSIONS,
    show_dependencies,
    show_mapping,
)
from ottla.tools.kafka_names.grammar import Options, UsageError, sub_command
from ottla.tools.kafka_names.main import Failed
from ottla.tools.properties import read_properties

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataRecord

META = "meta.properties"


def run(options: Options) -> int:
    """Runs the sub-command that was given."""
    name = sub_command(
        options, ("info", "format", "version-mapping", "feature-dependencies", "random-uuid")
    )
    if name == "random-uuid":
        print(random_uuid())
    elif name == "version-mapping":
        show_mapping(options.one("release-version"))
    elif name == "feature-dependencies":
        options.needs("feature")
        show_dependencies(options.all("feature"))
    elif name == "info":
        options.needs("config")
        info(directories(options))
    else:
        options.needs("config", "cluster-id")
        format_directories(options)
    return 0


def directories(options: Options) -> list[Path]:
    """The log directories of a server.properties."""
    properties = read_properties(options.one("config"))
    listed = properties.get("log.dirs") or properties.get("log.dir") or "/tmp/kafka-logs"
    return [Path(part.strip()) for part in listed.split(",") if part.strip()]


def info(paths: list[Path]) -> None:
    """Lists the directories and their metadata. Raises Failed if a directory is missing or
    unformatted."""
    found = [path for path in paths if path.is_dir()]
    problems = [f"{path} does not exist" for path in paths if not path.is_dir()]
    problems += [f"{path} is not formatted." for path in found if not (path / META).exists()]
    if found:
        print(f"Found log director{'y' if len(found) == 1 else 'ies'}:")
        print("".join(f"  {path}\n" for path in sorted(found)))
    formatted = [path for path in found if (path / META).exists()]
    if formatted:
        values = read_properties(str(formatted[0] / META))
        shown = ", ".join(f"{key}={values[key]}" for key in sorted(values))
        print(f"Found metadata: {{{shown}}}\n")
    if problems:
        print(f"Found problem{'s' * (len(problems) > 1)}:")
        print("".join(f"  {problem}\n" for problem in problems))
        raise Failed("; ".join(problems))


def node_id_of(properties: dict[str, str]) -> str:
    """The node id in a broker's properties. Like Kafka's tool, raises Failed if there is none: the
    directories keep the id for ever."""
    node_id = properties.get("node.id") or properties.get("broker.id")
    if node_id is None:
        raise Failed('Missing required configuration "node.id" which has no default value.')
    if not is_number(node_id, INT32_MOST):
        raise Failed(f"Invalid value {node_id} for configuration node.id: Value must be at least 0")
    return node_id


def as_it_is(path: Path) -> str:
    """The text that says what to do with a directory that is already formatted."""
    return (
        "A broker can start with this directory as it is. "
        f"To begin with an empty directory, move {path} away first."
    )


def format_directories(options: Options) -> None:
    cluster_id = options.one("cluster-id")
    paths = directories(options)
    done = [path for path in paths if (path / META).exists()]
    for path in done:
        known = read_properties(str(path / META)).get("cluster.id", "")
        if known != cluster_id:
            raise Failed(
                f"Invalid cluster.id in: {path / META}. Expected {cluster_id}, but read {known}. "
                f"This directory is already formatted. {as_it_is(path)}"
            )
    if done and not options.has("ignore-formatted"):
        raise Failed(
            f"Log directory {done[0]} is already formatted. Use --ignore-formatted to "
            f"ignore this directory and format the others. {as_it_is(done[0])}"
        )
    try:
        uuid_of(cluster_id)
    except ValueError as wrong:
        raise UsageError(
            f"Cluster ID string {cluster_id} does not appear to be a valid UUID: {wrong}"
        ) from wrong
    properties = read_properties(options.one("config"))
    node_id = node_id_of(properties)
    if properties.get("zookeeper.connect"):
        raise Failed(
            "zookeeper.connect is set, so there is nothing to format. A broker that uses ZooKeeper "
            "formats its directories at its first start, and takes the cluster's id from "
            "ZooKeeper. --add-scram does not work with ZooKeeper. To create SCRAM users, start a "
            "broker, and run kafka-configs. Connect to a listener that does not require SCRAM."
        )
    records: list[MetadataRecord] = []
    if options.has("add-scram"):
        from ottla.tools.kafka_names.scram_rules import records_of

        records = records_of(options.all("add-scram"))
    fresh = [path for path in paths if path not in done]
    if not fresh:
        print("All of the log directories are already formatted.")
    for path in fresh:
        path.mkdir(parents=True, exist_ok=True)
        text = (
            f"node.id={node_id}\ndirectory.id={random_uuid()}\nversion=1\ncluster.id={cluster_id}\n"
        )
        (path / META).write_text(text)
        print(
            f"Formatting metadata directory {path} with metadata.version "
            f"{METADATA_VERSIONS[LATEST]}."
        )
    if records and paths[0] in fresh:
        from ottla.broker.cluster.bootstrap import write_bootstrap

        write_bootstrap(paths[0], records)
