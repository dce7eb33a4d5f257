"""The limits on connections, counted over all listeners of a broker; limits may change at run time.

A lower limit closes no existing connection, as in Kafka.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.settings.config import BrokerConfig

log = logging.getLogger("ottla.connections")

UNLIMITED = 2**31 - 1
DESCRIPTORS_FOR_FILES = 1000
"""Descriptors left for segments and indexes, of which a few hundred are open at a time."""


class ConnectionLimits:
    """The counts for max.connections, max.connections.per.ip and max.connection.creation.rate.

    `descriptors` is the process's limit (RLIMIT_NOFILE). A connection without a descriptor could
    not be refused properly, so the effective max.connections is only a part of that limit.
    """

    def __init__(self, config: BrokerConfig, descriptors: int) -> None:
        self.config, self.descriptors = config, descriptors
        self.possible = max(1, descriptors // 2, descriptors - DESCRIPTORS_FOR_FILES)
        if descriptors < 0:                 # RLIM_INFINITY
            self.possible = UNLIMITED
        self.count = 0
        self.per_host: Counter[str] = Counter()
        self.accepted_at: deque[float] = deque()
        self.told = UNLIMITED
        self._tell()

    @property
    def connections_max(self) -> int:
        """The effective value of max.connections."""
        wanted = self.config.max_connections
        if wanted != self.told:
            self._tell()
        return min(wanted, self.possible)

    def _tell(self) -> None:
        wanted = self.told = self.config.max_connections
        if wanted > self.possible:
            log.log(
                logging.INFO if wanted == UNLIMITED else logging.WARNING,
                "max.connections=%d is reduced to %d: the process has %d descriptors (ulimit -n)",
                wanted, self.possible, self.descriptors,
            )

    def admits(self, host: str, now: float) -> bool:
        """Whether one more connection from `host` is allowed; `now` is in seconds.

        If it is, it counts for the creation rate.
        """
        config = self.config
        host_max = config.max_connections_by_host.get(host, config.max_connections_per_ip)
        if self.per_host[host] >= host_max or self.count >= self.connections_max:
            return False
        rate_max = config.max_connection_creation_rate
        if rate_max < UNLIMITED:
            while self.accepted_at and now - self.accepted_at[0] > 1.0:
                self.accepted_at.popleft()
            if len(self.accepted_at) >= rate_max:
                return False
            self.accepted_at.append(now)
        return True

    def opened(self, host: str) -> None:
        """Count a new connection."""
        self.count += 1
        self.per_host[host] += 1

    def closed(self, host: str) -> None:
        """Count the end of a connection."""
        self.count -= 1
        self.per_host[host] -= 1
        if self.per_host[host] <= 0:
            del self.per_host[host]
