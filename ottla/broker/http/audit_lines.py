"""Keeps the newest lines of the audit log for /api/v1/audit. The audit log itself is part of the
broker's log."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

LINES_MAX = 1000
TEXT_SIZE_MAX = 2000
LOGGER = "ottla.audit"


class AuditLines(logging.Handler):
    """Keeps the newest lines of the audit logger, until `close`."""

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
        """Stop keeping lines."""
        logging.getLogger(LOGGER).removeHandler(self)
        super().close()
