"""The newest lines of the audit log, for /api/v1/audit: the log itself is wherever the broker's log
goes.

The lines name users and what they have changed, and the port asks for no login. So only clients on
this machine read them, and those of `ottla.http.audit.networks`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Any

from ottla.replication.networks import is_inside
from ottla.wire.errors import ErrorCode

LINES_MAX = 1000
TEXT_SIZE_MAX = 2000
LOGGER = "ottla.audit"
LOOPBACK = ("127.0.0.0/8", "::1/128")
NETWORKS = "ottla.http.audit.networks"


def refusal(client: str, here: str, networks: Iterable[str]) -> dict[str, str] | None:
    """Why a client may not read the lines, None if it may. A connection that does not leave the
    machine has the same address, `here`, at both ends, or comes from a loopback address."""
    if client == here or any(is_inside(client, each) for each in (*LOOPBACK, *networks)):
        return None
    return {
        "error": ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name,
        "message": f"{client} is on another machine, and in no network of {NETWORKS}",
    }


class AuditLines(logging.Handler):
    """Keeps what the logger of the audit is given, until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: deque[dict[str, Any]] = deque(maxlen=LINES_MAX)
        self.written = 0
        logging.getLogger(LOGGER).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one line."""
        fields: dict[str, Any] = getattr(record, "fields", {})
        self.written += 1
        self.rows.append({
            "number": self.written,
            "at_ms": int(record.created * 1000),
            "refused": record.levelno > logging.INFO,
            **{name: fields.get(name) for name in ("principal", "address", "client_id", "api")},
            "what": str(fields.get("what", ""))[:TEXT_SIZE_MAX],
            "outcome": str(fields.get("outcome", record.getMessage()))[:TEXT_SIZE_MAX],
        })

    def close(self) -> None:
        """Keep nothing further."""
        logging.getLogger(LOGGER).removeHandler(self)
        super().close()
