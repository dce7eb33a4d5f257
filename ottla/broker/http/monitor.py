"""Measurements while metrics are enabled: the loop's lag and idle time, and connection rates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.audit_lines import AuditLines
from ottla.broker.http.lag import Lags

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.context import BrokerContext
    from ottla.broker.listener import Listener
    from ottla.broker.network.poller import BrokerLoop

LAG_EVERY_SECONDS = 0.5
RATES_EVERY_SECONDS = 5.0
ROUND_SECONDS = 60.0


class LoopLag:
    """Measures how late the loop runs a timer."""

    def __init__(self, loop: BrokerLoop) -> None:
        self.loop = loop
        self.max = self.sum = 0.0
        self.count = 0
        self.due = loop.time() + LAG_EVERY_SECONDS
        self.timer = loop.call_at(self.due, self._tick)

    def _tick(self) -> None:
        now = self.loop.time()
        late = max(0.0, now - self.due)
        self.max, self.sum, self.count = max(self.max, late), self.sum + late, self.count + 1
        self.due = now + LAG_EVERY_SECONDS
        self.timer = self.loop.call_at(self.due, self._tick)

    def take_max(self) -> float:
        """Return the largest delay since the previous call, in seconds."""
        largest, self.max = self.max, 0.0
        return largest


class Monitor:
    """The parts of a broker from which metrics are read, and the rates that a timer measures."""

    def __init__(
        self, broker: BrokerContext, listeners: list[Listener], address: str, loop: BrokerLoop
    ) -> None:
        self.broker, self.listeners, self.address, self.loop = broker, listeners, address, loop
        self.started_seconds = time.time()
        self.lag = LoopLag(loop)
        self.lags = Lags(broker)
        self.audit = AuditLines()
        self._asked_lags, self._round_at = Lags(broker), loop.time()
        self.counted: tuple[object, tuple[int, int, int, int]] = None, (0, 0, 0, 0)
        """The image's topics when partitions were last counted, and the four results: how many
        partitions there are, how many have no leader, how many have a leader that is not the
        preferred one, and how many are being reassigned."""
        self.rates: dict[ClientConnection, tuple[float, float]] = {}
        self.opened_rate = self.closed_rate = 0.0
        """Connections opened and closed per second."""
        self.fetch_rate = 0.0
        """The lowest rate of fetch requests to a leader, per second; 0.0 if this broker fetches
        from no leader."""
        self.idle = 1.0
        """The share of time in which the loop's thread used no CPU."""
        self.samples = 0
        """The number of the newest sample of the topics that clients use (`Client.sample`)."""
        self._before: dict[ClientConnection, tuple[int, int]] = {}
        self._fetches: dict[int, int] = {}
        self._marks = self._mark()
        self._timer = loop.call_later(RATES_EVERY_SECONDS, self._measure)
        broker.counts.timing = True

    def asked_lags(self) -> Lags:
        """The lags for HTTP requests about one group. This `Lags` object caches where each group
        reads next (`lag.Place`). A round lasts at least a minute, and a place that was not used in
        a whole round is dropped."""
        now = self.loop.time()
        if now - self._round_at > ROUND_SECONDS:
            self._asked_lags.begin()
            self._round_at = now
        return self._asked_lags

    def connections(self) -> Iterator[ClientConnection]:
        """All connections of all listeners."""
        for listener in self.listeners:
            yield from list(listener.connections)

    def _mark(self) -> tuple[float, float, int, int]:
        counts = self.broker.counts
        return self.loop.time(), time.thread_time(), counts.opened, counts.closed_connections

    def _measure(self) -> None:
        marks = self._mark()
        wall, cpu, opened, closed = (
            new - old for new, old in zip(marks, self._marks, strict=True))
        self._marks = marks
        self.idle = min(1.0, max(0.0, 1.0 - cpu / wall))
        self.opened_rate, self.closed_rate = opened / wall, closed / wall
        fetches = self.broker.role.fetch_requests()
        self.fetch_rate = min(
            (max(0, count - self._fetches.get(node_id, 0)) / wall
             for node_id, count in fetches.items()), default=0.0)
        self._fetches = fetches
        now = {each: (each.received, each.sent) for each in self.connections()}
        self.rates = {
            each: (
                (received - self._before.get(each, (0, 0))[0]) / wall,
                (sent - self._before.get(each, (0, 0))[1]) / wall,
            )
            for each, (received, sent) in now.items()
        }
        self._before = now
        self.samples += 1
        for connection in now:
            connection.client.sample(self.samples)
        self._timer = self.loop.call_later(RATES_EVERY_SECONDS, self._measure)

    def close(self) -> None:
        """Stop measuring."""
        self.lag.timer.cancel()
        self.audit.close()
        self._timer.cancel()
        self.broker.counts.timing = False
