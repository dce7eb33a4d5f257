"""Log lines about events that repeat, such as clients' retries. If an event happens again, it is
logged again only if its text has changed, or if its last line is a minute old."""

from __future__ import annotations

import logging
from collections.abc import Callable

AGAIN_SECONDS = 60.0
KEPT_MAX = 1000
"""How many subjects are remembered; if there are more, all are forgotten."""


class Notes:
    """What was logged last about each subject. `now` is a monotonic clock, in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.told: dict[str, tuple[str, float]] = {}

    def tell(
        self, log: logging.Logger, subject: str, text: str, level: int = logging.WARNING
    ) -> None:
        """Log a text about a subject, unless it was already logged within the last minute."""
        before, told_at = self.told.get(subject, ("", 0.0))
        now = self.now()
        if text == before and now - told_at < AGAIN_SECONDS:
            return
        if len(self.told) >= KEPT_MAX:
            self.told.clear()
        self.told[subject] = text, now
        log.log(level, "%s", text)
