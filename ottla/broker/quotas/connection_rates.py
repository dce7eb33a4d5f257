"""How fast clients may connect: to the broker, to a listener, and from one address (KIP-612).

Above `max.connection.creation.rate` the listeners pause accepting, and clients wait; a listener may
have its own lower rate. If an address has exceeded its `connection_creation_rate`, a connection
from it is accepted, held for the throttle time and then closed. So the client does not try again at
once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ottla.broker.quotas.windows import Rate
from ottla.broker.settings.addresses import canonical_host
from ottla.broker.settings.listener_settings import UNLIMITED
from ottla.replication.principals import IP, IP_KEYS

if TYPE_CHECKING:
    from ottla.broker.settings.config import BrokerConfig
    from ottla.replication.metadata import MetadataImage
    from ottla.replication.principals import Entity

(KEY,) = IP_KEYS
KEPT_MAX = 10_000
"""The rates of at most this many addresses are kept, since clients may use any number of them."""
BOUND_MIN = 1e-9
"""Used instead of a limit of 0, by which a rate cannot be divided."""


class ConnectionRates:
    """The rates of one broker's new connections."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.samples = config.quota_window_num
        self.sample_seconds = config.quota_window_size_seconds
        self.quotas: Mapping[Entity, Mapping[str, float]] = {}
        self.limits: dict[str | None, float] = {}
        """The limit of each address; the limit of None applies to every other address."""
        self.addresses: OrderedDict[str, Rate] = OrderedDict()
        self.all = self._rate(UNLIMITED)
        self.listeners: dict[str, Rate] = {}
        """The rates of those listeners that have a limit."""
        self.exempt = config.listener_of_brokers_alone()
        """The inter-broker listener if clients use other listeners, otherwise None. Only its own
        limit applies to it, so that clients do not delay the connections of brokers."""
        self.pauses = self.closed = 0
        self.pause_seconds = 0.0

    def _rate(self, bound: float) -> Rate:
        return Rate(self.samples, self.sample_seconds, bound)

    def follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str] = ()
    ) -> None:
        """Use the quotas of the new image; called for each change of the metadata."""
        if new.quotas is self.quotas:
            return
        self.quotas = new.quotas
        self.limits = {
            name and canonical_host(name): limits[KEY]
            for ((kind, name), *_), limits in new.quotas.items() if kind == IP and KEY in limits
        }

    def accepted(self, listener: str, now: float) -> float:
        """Count a connection; returns for how long its listener has to pause accepting."""
        bound = self.config.max_connection_creation_rate
        own_bound = self.config.listener_limits[listener].max_connection_creation_rate
        pause = 0.0
        if bound < UNLIMITED and listener != self.exempt:
            self.all.bound = max(bound, BOUND_MIN)
            pause = self.all.record(1, now)
        if own_bound < UNLIMITED:
            own = self.listeners.setdefault(listener, self._rate(own_bound))
            own.bound = own_bound
            pause = max(pause, own.record(1, now))
        pause = min(pause, self._window_seconds())
        if pause > 0:
            self.pauses += 1
            self.pause_seconds += pause
        return pause

    def held(self, host: str, now: float) -> float:
        """How many seconds a new connection is held before it is closed; 0 if it may be served.
        Only a connection that may be served counts towards the rate."""
        limit = self.limits.get(host, self.limits.get(None))
        if limit is None:
            return 0.0
        rate = self.addresses.pop(host, None) or self._rate(limit)
        self.addresses[host] = rate
        if len(self.addresses) > KEPT_MAX:
            self.addresses.popitem(last=False)
        rate.bound = max(limit, BOUND_MIN)
        seconds = rate.would_wait(1, now) if limit > 0 else self._window_seconds()
        if seconds > 0:
            self.closed += 1
            return min(seconds, self._window_seconds())
        rate.record(1, now)
        return 0.0

    def _window_seconds(self) -> float:
        """The longest wait, as in Kafka: the duration of all samples but the current one."""
        return float(max(1, self.samples - 1) * self.sample_seconds)
