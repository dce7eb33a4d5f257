"""kafka-broker-api-versions: the lists of Apache Kafka's BrokerApiVersionsCommand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.client.addresses import show_address
from ottla.tools.admin import cluster as admin
from ottla.tools.kafka_names.common import connect
from ottla.wire.apis import APIS, ApiKey

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.kafka_names.grammar import Options


def run(options: Options) -> int:
    """Print the versions of each broker."""
    options.needs("bootstrap-server")
    with connect(options) as cluster:
        show(cluster)
    return 0


def show(cluster: ClusterClient) -> None:
    """Print the versions of each broker of a cluster."""
    for broker in admin.brokers(cluster).brokers:
        address = show_address((broker.host, broker.port))
        rack = broker.rack or "null"
        fenced = "true" if getattr(broker, "is_fenced", False) else "false"
        print(f"{address} (id: {broker.broker_id} rack: {rack} isFenced: {fenced}) -> (")
        print(",\n".join(versions(cluster, broker.broker_id)))
        print(")")


def versions(cluster: ClusterClient, broker_id: int) -> list[str]:
    """A line for each API that clients may use, or that the broker serves."""
    connection = cluster.node(broker_id)
    connection.version_of(ApiKey.API_VERSIONS)
    served = connection.frames.served
    lines = []
    for key in sorted({*served, *(key for key, api in APIS.items() if "broker" in api.listeners)}):
        api = APIS.get(key)
        name = api.name if api else f"UNKNOWN({key})"
        if key not in served:
            lines.append(f"\t{name}({key}): UNSUPPORTED")
            continue
        low, high = served[key]
        span = str(low) if low == high else f"{low} to {high}"
        usable = min(high, api.versions[-1]) if api else -1
        known = str(usable) if api and usable >= max(low, api.versions[0]) else "none"
        lines.append(f"\t{name}({key}): {span} [usable: {known}]")
    return lines
