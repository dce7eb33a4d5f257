"""The security of one listener: its protocol, and what TLS and SASL need if it uses them.

This module alone chooses what a listener needs. It imports the modules of TLS and SASL only for
listeners that use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.listener_settings import (
    MECHANISM_OF_PEERS,
    ListenerSettings,
    for_listener,
)

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.context import BrokerContext
    from ottla.broker.security.peer_login import PeerLogin
    from ottla.broker.security.sasl.mechanisms import Mechanism
    from ottla.broker.security.session import Session
    from ottla.broker.security.tls.certificate import Certificate
    from ottla.broker.security.tls.context import TlsSettings
    from ottla.broker.settings.config import BrokerConfig

WITH_SASL = ("SASL_PLAINTEXT", "SASL_SSL")
WITH_TLS = ("SSL", "SASL_SSL")


class ListenerSecurity:
    """The security of one listener, read from the properties. Raises SettingsError."""

    def __init__(self, listener: str, protocol: str, texts: Mapping[str, str]) -> None:
        self.listener, self.protocol = listener, protocol
        self.authenticates = protocol in WITH_SASL
        own = for_listener(listener, texts)
        self.own = own
        self.settings = ListenerSettings(own)
        self.mechanisms: dict[str, Mechanism] = {}
        self.login: PeerLogin | None = None
        """This broker's login to the other brokers, if this is the inter-broker listener."""
        self.tls: TlsSettings | None = None
        if protocol in WITH_TLS:
            self.tls = self._tls(own, texts)
        if self.authenticates:
            from ottla.broker.security.sasl.mechanisms import mechanism, require_one

            require_one(listener, self.settings.sasl_enabled_mechanisms)
            for name in self.settings.sasl_enabled_mechanisms:
                self.mechanisms[name] = mechanism(listener, name, own)

    def session(self, broker: BrokerContext, connection: ClientConnection) -> Session | None:
        """The authentication of a new connection; None if clients do not authenticate."""
        if not self.authenticates:
            return None
        from ottla.broker.security.session import Session

        return Session(self, broker, connection)

    @property
    def chain(self) -> list[Certificate]:
        """The listener's certificate and those that lead to its authority; none without TLS."""
        return [] if self.tls is None else self.tls.chain

    @property
    def certificate(self) -> Certificate | None:
        """The listener's own certificate; None without TLS."""
        return None if self.tls is None else self.tls.certificate

    def check_identity(self, former: ListenerSecurity) -> None:
        """Raise SettingsError if clients that accepted the former certificate might refuse the new
        one (ssl.allow.dn.changes, ssl.allow.san.changes)."""
        if self.tls is None or former.tls is None:
            return
        try:
            self.tls.check_identity(former.tls.certificate)
        except SettingsError as error:
            raise self._of_this(error) from error

    def changes(self, former: ListenerSecurity) -> list[str]:
        """What has changed since `former`, in words."""
        changes = []
        if self.tls is not None and former.tls is not None and self.tls.digest != former.tls.digest:
            changes.append(f"the certificate {self.tls.certificate}")
            if self.tls.certificate == former.tls.certificate:
                changes = ["a changed key, or changed trusted certificates"]
        if self.own != former.own:
            names = {*self.own, *former.own}
            changed = sorted(n for n in names if self.own.get(n) != former.own.get(n))
            changes.append(f"the new {', '.join(changed)}")
        return changes

    def _of_this(self, error: SettingsError) -> SettingsError:
        problem = str(error).removeprefix(f"{error.name}: ")
        return SettingsError(error.name, f"{problem} (listener {self.listener})")

    def serve_peers(self, mechanism: str) -> None:
        """Use this listener among the brokers of a cluster. Raises SettingsError if they could not
        log in to each other, or would not trust each other's certificates."""
        if self.authenticates:
            from ottla.broker.security.peer_login import peer_login

            modules = {name: each.module for name, each in self.mechanisms.items()}
            self.login = peer_login(self.listener, mechanism, modules)
        if self.tls is not None:
            self.tls.check_own_certificate(self.listener)

    def _tls(self, own: dict[str, str], texts: Mapping[str, str]) -> TlsSettings:
        from ottla.broker.security.tls.context import TlsSettings

        prefix = f"listener.name.{self.listener.lower()}."
        if self.authenticates and f"{prefix}ssl.client.auth" not in texts:
            # As in Kafka: clients that authenticate by SASL need no certificate.
            own = {**own, "ssl.client.auth": "none"}
        try:
            return TlsSettings(ListenerSettings(own))
        except SettingsError as error:
            raise self._of_this(error) from error


def listeners_security(
    config: BrokerConfig, texts: Mapping[str, str]
) -> dict[str, ListenerSecurity]:
    """The security of each listener by its name, from these properties. Raises SettingsError."""
    settings = {
        endpoint.name: ListenerSecurity(endpoint.name, config.protocols[endpoint.name], texts)
        for endpoint in config.endpoints()
    }
    if config.zookeeper_connect:
        # The mechanism is read from `texts` and not from `config`: `config` does not have a change
        # yet while that change is being validated.
        settings[config.inter_broker_listener()].serve_peers(
            texts.get(MECHANISM_OF_PEERS, config.declared[MECHANISM_OF_PEERS].default)
        )
    return settings
