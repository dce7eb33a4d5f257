"""kafka-client-metrics: the lines of Apache Kafka's ClientMetricsCommand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.tools.admin import configs
from ottla.tools.admin.uuids import random_uuid
from ottla.tools.kafka_names.common import connect
from ottla.tools.kafka_names.grammar import Options, UsageError

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

NAMES = ("interval.ms", "match", "metrics")
FLAGS = {"interval": "interval.ms", "match": "match", "metrics": "metrics"}


def run(options: Options) -> int:
    """Performs the action that a flag names."""
    given = [name for name in options.command.actions if options.has(name)]
    if len(given) != 1:
        raise UsageError(
            "Command must include exactly one action: --alter, --delete, --describe or --list."
        )
    options.needs("bootstrap-server")
    action = given[0]
    if action == "alter" and not (options.has("name") or options.has("generate-name")):
        raise UsageError("One of --name or --generate-name must be specified with --alter.")
    if action == "delete" and not options.has("name"):
        raise UsageError("A client metrics resource name must be specified with --delete.")
    with connect(options) as cluster:
        if action == "list":
            print("\n".join(configs.resources(cluster, configs.CLIENT_METRICS)))
        elif action == "describe":
            describe(options, cluster)
        elif action == "alter":
            name = options.one("name") or random_uuid()
            given_values = {
                setting: options.one(flag) for flag, setting in FLAGS.items() if options.has(flag)
            }
            set_to = {key: value for key, value in given_values.items() if value}
            configs.alter(
                cluster,
                configs.CLIENT_METRICS,
                name,
                set_to,
                [key for key, value in given_values.items() if not value],
            )
            print(f"Altered client metrics config for {name}.")
        else:
            name = options.one("name")
            configs.alter(cluster, configs.CLIENT_METRICS, name, {}, set_names(cluster, name))
            print(f"Deleted client metrics config for {name}.")
    return 0


def set_names(cluster: ClusterClient, name: str) -> list[str]:
    """The settings that a subscription has."""
    settings = configs.describe(cluster, configs.CLIENT_METRICS, name)
    return [item.name for item in settings if item.config_source == 7]


def describe(options: Options, cluster: ClusterClient) -> None:
    known = configs.resources(cluster, configs.CLIENT_METRICS)
    name = options.one("name")
    if name and name not in known:
        print(f"The client metric resource {name} doesn't exist and doesn't have dynamic config.")
        return
    for each in [name] if name else known:
        print(f"Client metrics configs for {each} are:")
        for item in configs.describe(cluster, configs.CLIENT_METRICS, each):
            print(f"  {item.name}={item.value}")
