"""`ottla server connections`: the connections of a broker, from its HTTP port."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any

from ottla.client.errors import Unreachable
from ottla.tools.cli.output import show

URL = "http://localhost:9308"
SECONDS = 5.0


def connections(options: Namespace) -> None:
    url = (options.url or URL).rstrip("/")
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
            for one in read(f"{url}/api/v1/connections")
        ),
        wide=("principal", "listener", "received", "sent"),
    )


def read(url: str) -> Any:
    """A JSON document of the broker. Raises Unreachable."""
    from urllib.error import URLError
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=SECONDS) as response:
            return json.load(response)
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        raise Unreachable(f"{url}: {reason}; is ottla.http.listener set?") from error
