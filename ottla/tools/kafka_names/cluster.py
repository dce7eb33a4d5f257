"""kafka-cluster: the lines of Apache Kafka's ClusterTool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.errors import Refused
from ottla.tools.admin import cluster as admin
from ottla.tools.kafka_names import broker_api_versions
from ottla.tools.kafka_names.common import connect, padded
from ottla.tools.kafka_names.grammar import Options, UsageError, sub_command
from ottla.tools.kafka_names.java import exception_of
from ottla.tools.kafka_names.main import Failed

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient


COMMANDS = ("cluster-id", "unregister", "unregister-controller", "list-endpoints", "api-versions")


def run(options: Options) -> int:
    """Runs the sub-command that was given."""
    name = sub_command(options, COMMANDS)
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise UsageError("one of --bootstrap-server and --bootstrap-controller is needed")
    if name.startswith("unregister"):
        options.needs("id")
    with connect(options) as cluster:
        if name == "cluster-id":
            cluster_id = admin.brokers(cluster).cluster_id
            print(
                f"Cluster ID: {cluster_id}"
                if cluster_id
                else "No cluster ID found. The Kafka version is probably too old."
            )
        elif name == "unregister":
            unregister(cluster, options.number("id", -1))
        elif name == "unregister-controller":
            # Ottla's controllers are brokers. `kafka-cluster unregister` removes brokers.
            print("The target cluster does not support the controller unregistration API.")
        elif name == "api-versions":
            broker_api_versions.show(cluster)
        else:
            endpoints(cluster, fenced=options.has("include-fenced-brokers"))
    return 0


def unregister(cluster: ClusterClient, broker_id: int) -> None:
    try:
        admin.unregister(cluster, broker_id)
    except Refused as refused:
        raise Failed(exception_of(refused.number, refused.said)) from refused
    print(f"Broker {broker_id} is no longer registered.")


def endpoints(cluster: ClusterClient, *, fenced: bool) -> None:
    brokers = sorted(admin.brokers(cluster, fenced=fenced).brokers, key=lambda one: one.broker_id)
    host = max(4, *(len(one.host) for one in brokers))
    rack = max(10, *(len(one.rack or "null") for one in brokers))
    print(
        padded(
            ("ID", 10),
            ("HOST", host),
            ("PORT", 10),
            ("RACK", rack),
            ("STATE", 10),
            ("ENDPOINT_TYPE", 15),
        )
    )
    for one in brokers:
        state = "fenced" if getattr(one, "is_fenced", False) else "unfenced"
        print(
            padded(
                (one.broker_id, 10),
                (one.host, host),
                (one.port, 10),
                (one.rack or "null", rack),
                (state, 10),
                ("broker", 15),
            )
        )
