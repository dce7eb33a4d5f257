"""Selects the groups for a `kafka-consumer-groups` command, and prints its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.tools.admin import groups

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.kafka_names.grammar import Options


def chosen(options: Options, cluster: ClusterClient) -> list[str]:
    """The selected groups."""
    if options.has("all-groups"):
        return [
            group.id
            for group in groups.list_groups(cluster, (), ("consumer", "classic"))
            if group.type == "consumer" or group.protocol_type in ("consumer", "")
        ]
    return list(dict.fromkeys(options.all("group")))


def show_error(text: str) -> None:
    """Prints an error as Kafka's tool does: on stdout. The exit status stays 0."""
    print(f"\nError: {text}")
