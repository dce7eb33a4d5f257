"""Who may read what on the HTTP port, which has no login.

- Health, metrics and /api/v1/status are open to everyone who can reach the port. The metrics
  contain names of groups, clients and users, as the metrics of Kafka's exporters do.
  docs/decisions/open_metrics.md gives the reasons.
- Everything else under /api/v1 contains names of users, clients or groups. Only clients on this
  machine, or in a network of `ottla.http.networks`, may read it.
- The Host header of a request must be a name of this broker or an IP address; for /healthz and
  /readyz it may be anything. So a web page of another site cannot read anything else by DNS
  rebinding, that is by making its own name resolve to this broker's address.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.client.addresses import names_one_of
from ottla.replication.networks import is_inside
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.settings.config import BrokerConfig

PREFIX = "/api/v1/"
LOOPBACK = ("127.0.0.0/8", "::1/128")
NETWORKS, NAMES = "ottla.http.networks", "ottla.http.names"
HEALTH = ("/healthz", "/readyz")
FOR_ALL = ("/api/v1/status",)
Refusal = tuple[int, dict[str, str]]


class Readers:
    """The rules of one broker."""

    def __init__(self, config: BrokerConfig, host: str) -> None:
        self.networks = config.ottla_http_networks
        own = (host, "localhost", socket.gethostname(), *config.hosts, *config.ottla_http_names)
        self.names = {name.lower() for name in own}

    def refusal(self, path: str, host: str | None, client: str, here: str) -> Refusal | None:
        """The status and the document of a refused request; None if it is allowed. `host` is the
        request's Host header, which only clients older than HTTP/1.1 leave out."""
        if path not in HEALTH and host is not None and not names_one_of(host, self.names):
            return 421, {
                "error": ErrorCode.INVALID_REQUEST.name,
                "message": f"{host[:200]!r} is not a known name of this broker; if it is one, add "
                f"it to {NAMES}",
            }
        if not path.startswith(PREFIX) or path in FOR_ALL:
            return None
        return outsider(client, here, self.networks)


def outsider(client: str, here: str, networks: Iterable[str]) -> Refusal | None:
    """Return the refusal if the client is on another machine and in none of the networks, otherwise
    None. A connection that does not leave the machine has the same address, `here`, at both ends,
    or comes from a loopback address."""
    if client == here or any(is_inside(client, each) for each in (*LOOPBACK, *networks)):
        return None
    return 403, {
        "error": ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name,
        "message": f"{client} is on another machine, and in none of the networks that {NETWORKS} "
        "allows",
    }
