"""Holds the metrics that clients push; set up when the first client offers some."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.telemetry.client_instances import ClientInstances
    from ottla.log.files.clock import Clock


class ClientTelemetry:
    """The clients that offer their metrics (KIP-714). Most brokers have no such clients, and never
    import the modules that decode metrics."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.instances: ClientInstances | None = None
        """None until a client asks for its subscription."""

    def made_instances(self) -> ClientInstances:
        """The instances, made at the first call."""
        if self.instances is None:
            from ottla.broker.telemetry.client_instances import ClientInstances

            self.instances = ClientInstances(self.clock)
        return self.instances
