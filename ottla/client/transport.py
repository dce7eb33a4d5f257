"""How a connection is made: the one place that knows sockets, and where TLS and SASL belong.

`Security` is what a client has been configured with. `open_transport` returns a connected socket;
for TLS it would be the wrapped socket, and SASL would be spoken over it before it is returned.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client.addresses import Address, show_address
from ottla.client.errors import ClientError, Unreachable

RETRY_SECONDS = 0.1
"""How long to wait after a refused connection: a broker that is starting listens soon."""


@dataclass(frozen=True)
class Security:
    """How to protect connections; the names are Kafka's client properties."""

    protocol: str = "PLAINTEXT"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Security:
        """Read `security.protocol`; raises ClientError for one that this client lacks."""
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol != "PLAINTEXT":
            raise ClientError(
                f"security.protocol={protocol} is not supported by this client yet, "
                "only PLAINTEXT is"
            )
        return cls(protocol)


UNPROTECTED = Security()


def open_transport(
    address: Address, security: Security, seconds: float, *, retry_refused: bool = True
) -> socket.socket:
    """A connected socket. A refused connection is tried again until `seconds` have passed.

    Raises Unreachable with the address and the reason.
    """
    del security  # PLAINTEXT is the only protocol so far
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            made = socket.create_connection(address, max(left, 0.001))
        except ConnectionRefusedError as refused:
            if not retry_refused or left <= RETRY_SECONDS:
                raise Unreachable(f"{show_address(address)}: connection refused") from refused
            time.sleep(RETRY_SECONDS)
            continue
        except (TimeoutError, OSError) as failed:
            raise Unreachable(f"{show_address(address)}: {reason_of(failed)}") from failed
        with contextlib.suppress(OSError):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def reason_of(error: OSError) -> str:
    """An operating system's error in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved"
    return (error.strerror or str(error)).lower()
