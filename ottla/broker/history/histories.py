"""What this broker remembers for whoever asks why. The groups' events are in their runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.history.lag_samples import LagSamples

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.broker.http.lag import Lags

ROUND_SECONDS = 60.0


class Histories:
    """The memory of one broker."""

    def __init__(self, broker: BrokerContext) -> None:
        self.broker = broker
        self.samples = LagSamples()
        self._lags: Lags | None = None
        self._round_at = 0.0

    def lags(self) -> Lags:
        """Measures lag. What was not asked for in a round of a minute is forgotten after two."""
        now = self.broker.clock.monotonic()
        if self._lags is None:
            from ottla.broker.http.lag import Lags

            self._lags, self._round_at = Lags(self.broker), now
        if now - self._round_at > ROUND_SECONDS:
            self._lags.begin()
            self._round_at = now
        return self._lags
