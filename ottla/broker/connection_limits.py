"""The limits on the number of connections, over all listeners of a broker and for one listener;
they may change at run time. `quotas/connection_rates` limits how fast clients may connect.

As in Kafka (KIP-402), clients above max.connections or a listener's limit wait in the kernel's
accept queue until a connection ends. A connection above the limit for its address is closed. If
brokers have a listener of their own, they are admitted beyond max.connections: clients that take
all connections must not stop replication. While there are more connections than max.connections,
connections of the clients' listeners are closed, beginning with the one that has been silent for
longest.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from heapq import nsmallest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.listener import Listener
    from ottla.broker.settings.config import BrokerConfig

log = logging.getLogger("ottla.connections")

UNLIMITED = 2**31 - 1
DESCRIPTORS_FOR_FILES = 1000
"""Descriptors reserved for segments and indexes; a few hundred of these files are open at a
time."""
DESCRIPTORS_FOR_BROKERS = 100
"""How many of the reserved descriptors other brokers may take; each broker opens a few
connections."""


class ConnectionLimits:
    """The counts for max.connections, for the same limit of each listener, and for
    max.connections.per.ip.

    `descriptors` is the process's limit (RLIMIT_NOFILE). Even a connection that is refused needs a
    descriptor first, so the effective max.connections is only a part of that limit.
    """

    def __init__(self, config: BrokerConfig, descriptors: int) -> None:
        self.config, self.descriptors = config, descriptors
        self.possible = max(1, descriptors // 2, descriptors - DESCRIPTORS_FOR_FILES)
        if descriptors < 0:                 # RLIM_INFINITY
            self.possible = UNLIMITED
        self.of_brokers = config.listener_of_brokers_alone()
        self.count = 0
        self.per_host: Counter[str] = Counter()
        self.per_listener: Counter[str] = Counter()
        self.listeners: list[Listener] = []
        self.waiting: dict[str, Callable[[], None]] = {}
        """For each listener that waits for a free slot, the function to call once there is one."""
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
                logging.DEBUG if wanted == UNLIMITED else logging.WARNING,  # UNLIMITED: the default
                "max.connections=%d is reduced to %d: the process may have only %d files open"
                " (ulimit -n)",
                wanted, self.possible, self.descriptors,
            )

    def has_slot(self, listener: str) -> bool:
        """Whether a listener may accept one more client."""
        count_max = self.connections_max
        if listener == self.of_brokers:
            count_max = self.possible + DESCRIPTORS_FOR_BROKERS
        listener_max = self.config.listener_limits[listener].max_connections
        return self.count < count_max and self.per_listener[listener] < listener_max

    def admits(self, host: str) -> bool:
        """Whether one more connection from `host` is allowed."""
        config = self.config
        host_max = config.max_connections_by_host.get(host, config.max_connections_per_ip)
        return self.per_host[host] < host_max

    def wait(self, listener: str, slot_is_free: Callable[[], None]) -> None:
        """Call `slot_is_free` once, when the listener has a slot."""
        self.waiting[listener] = slot_is_free

    def changed(self) -> None:
        """Apply changed settings: notify listeners that have a slot now, and close excess
        connections."""
        self._use_slots()
        self._close_excess()

    def _use_slots(self) -> None:
        for listener in [name for name in self.waiting if self.has_slot(name)]:
            self.waiting.pop(listener)()

    def _close_excess(self) -> None:
        too_many = self.count - self.connections_max
        if too_many > 0:
            others = (
                connection for each in self.listeners if each.name != self.of_brokers
                for connection in each.connections
            )
            for silent in nsmallest(too_many, others, key=lambda one: one.active_at):
                silent.close()

    def opened(self, host: str, listener: str) -> None:
        """Count a new connection."""
        self.count += 1
        self.per_host[host] += 1
        self.per_listener[listener] += 1
        self._close_excess()

    def closed(self, host: str, listener: str) -> None:
        """Count the end of a connection."""
        self.count -= 1
        self.per_listener[listener] -= 1
        self.per_host[host] -= 1
        if self.per_host[host] <= 0:
            del self.per_host[host]
        self._use_slots()
