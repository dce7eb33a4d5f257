"""`ottla server connections`: the connections of a broker, from its HTTP port."""

from __future__ import annotations

from argparse import Namespace

from ottla.tools.cli.output import show
from ottla.tools.cli.why import asked

URL = "http://localhost:9308"


def connections(options: Namespace) -> None:
    show(
        options,
        ("peer", "client", "software", "newest", "requests", "in B/s", "out B/s", "seconds"),
        (
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
                "principal": one["principal"],
                "listener": one["listener"],
                "received": one["received_bytes"],
                "sent": one["sent_bytes"],
            }
            for one in asked(options.url or URL, "/api/v1/connections")
        ),
        wide=("principal", "listener", "received", "sent"),
    )
