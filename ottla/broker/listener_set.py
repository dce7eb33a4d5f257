"""All listeners of a broker: opened and closed together, with one count of connections, and with
security that follows the settings."""

from __future__ import annotations

import logging
import random
import resource
from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.connection_limits import ConnectionLimits
from ottla.broker.listener import Listener
from ottla.broker.settings.declaration import SettingsError

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.broker.network.poller import BrokerLoop
    from ottla.broker.security.secured_listeners import SecuredListeners
    from ottla.broker.settings.config import BrokerConfig
    from ottla.replication.metadata import MetadataImage

log = logging.getLogger("ottla.server")


class ListenerSet:
    """The listeners that the settings name; `opened` is empty before `open`."""

    def __init__(self, config: BrokerConfig, security: SecuredListeners) -> None:
        self.config, self.security = config, security
        self.opened: list[Listener] = []

    def open(self, broker: BrokerContext, loop: BrokerLoop) -> None:
        """Listen, with the settings of the current image."""
        from ottla.broker.api.records.fetch import FetchHandler
        from ottla.broker.api.records.produce import ProduceHandler
        from ottla.broker.api.records.transaction_gate import TransactionGate

        produce_handler = ProduceHandler(broker, TransactionGate(broker))
        limits = ConnectionLimits(self.config, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        fetch_handler = FetchHandler(broker, lambda: random.SystemRandom().randint(1, 2**31 - 1))
        self.renew_security(broker.image)
        self.security.introduce()
        for endpoint in self.config.endpoints():
            self.opened.append(
                Listener(
                    endpoint.name, endpoint.host, endpoint.port,
                    broker, produce_handler, fetch_handler, limits, loop,
                    self.security[endpoint.name],
                )
            )

    def follow(self, old: MetadataImage, new: MetadataImage, topics: Collection[str]) -> None:
        """Apply settings that have changed in the image."""
        own = "broker", str(self.config.node_id)
        if old.configs.get(own) is not new.configs.get(own):
            self.renew_security(new)
        if old.configs is not new.configs:
            self.limits_changed()

    def limits_changed(self) -> None:
        """Apply the current limits on connections to the open and the waiting ones."""
        if self.opened:
            self.opened[0].limits.changed()

    def renew_security(self, image: MetadataImage) -> bool:
        """Use the current settings and certificate files for new connections. Returns False if
        nothing has changed; True also after an error, which is logged."""
        try:
            changed = self.security.renew(self.config.security_texts(image))
        except SettingsError as error:
            log.error("the listeners keep their previous certificates and mechanisms, since the new"
                      " settings cannot be used: %s", error)
            return True
        for listener in self.opened:
            listener.security = self.security[listener.name]
        self.security.warn()
        return changed

    def advertised(self, listener: Listener) -> tuple[str, int]:
        """The host and port advertised to clients of a listener."""
        return self.config.advertised(listener.name, listener.port)

    def addresses(self) -> list[tuple[str, str, int]]:
        """Each listener's name, with the host and port advertised to its clients."""
        return [(listener.name, *self.advertised(listener)) for listener in self.opened]

    def close(self) -> None:
        """Stop accepting, then close the connections."""
        for listener in self.opened:
            listener.stop_accepting()
        for listener in self.opened:
            listener.close()
