"""`ottla server connections`: the connections of brokers, from their HTTP ports."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.output import show
from ottla.tools.cli.why import asked, check_url, http_address, of_broker
from ottla.tools.usage import one_of

WIDE = ("broker", "principal", "listener", "received", "sent")


def connections(options: Namespace) -> None:
    one_of(url=options.url, bootstrap_server=options.bootstrap_server)
    one_of(url=options.url, command_config=options.command_config)
    if options.url:
        check_url(options.url)
        found = of_url(options.url)
    else:
        with connect(options) as cluster:
            addresses = {node: http_address(cluster, node) for node in cluster.live()}
        found = [row for node, url in addresses.items() for row in of_url(url, node)]
    show(
        options,
        ("peer", "client", "software", "newest", "requests", "in B/s", "out B/s", "seconds"),
        found,
        wide=WIDE,
    )


def of_url(url: str, wanted: int | None = None) -> list[dict[str, Any]]:
    """The connections of the broker with this HTTP port. Raises ClientError if this is not
    the broker `wanted`. None accepts any broker."""
    broker = asked(url, "/api/v1/status")["node_id"]
    answer = asked(url, "/api/v1/connections")
    if wanted is not None:
        of_broker({}, wanted, broker)
    return [
        {
            "peer": one["peer"],
            "client": one["client_id"],
            "software": " ".join(
                part for part in (one["software"], one["software_version"]) if part
            ),
            "newest": one["newest_request"],
            "requests": one["requests"],
            "in B/s": round(one["received_bytes_per_second"]),
            "out B/s": round(one["sent_bytes_per_second"]),
            "seconds": round(one["connected_seconds"]),
            "broker": broker,
            "principal": one["principal"],
            "listener": one["listener"],
            "received": one["received_bytes"],
            "sent": one["sent_bytes"],
            "produces_to": one.get("produces_to"),
            "fetches_from": one.get("fetches_from"),
        }
        for one in answer
    ]
