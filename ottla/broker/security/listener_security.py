"""The security of one listener: its protocol and SASL mechanisms."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.security.sasl.exchange import Exchange
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.listener_settings import (
    ListenerSettings,
    for_listener,
    for_mechanism,
)
from ottla.client.jaas import JaasError, LoginModule, parse_jaas

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext
    from ottla.broker.security.peer_login import PeerLogin
    from ottla.broker.security.tls.context import TlsSettings
    from ottla.broker.settings.config import BrokerConfig

log = logging.getLogger("ottla.authentication")

WITH_SASL = ("SASL_PLAINTEXT", "SASL_SSL")
WITH_TLS = ("SSL", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
"""Kafka's own validator of OAUTHBEARER tokens, under both of its names; ours does the same."""

UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
    ".OAuthBearerUnsecuredValidatorCallbackHandler"
)
"""Kafka's validator of unsecured tokens, which has to be asked for here."""

NewExchange = Callable[["BrokerContext"], Exchange]


class Mechanism:
    """One mechanism that a listener offers."""

    def __init__(self, name: str, begin: NewExchange, reauthentication_ms: int) -> None:
        self.name, self.begin = name, begin
        self.reauthentication_ms = reauthentication_ms


class ListenerSecurity:
    """The security of one listener, read from the properties. Raises SettingsError."""

    def __init__(self, listener: str, protocol: str, texts: Mapping[str, str]) -> None:
        self.listener, self.protocol = listener, protocol
        self.authenticates = protocol in WITH_SASL
        own = for_listener(listener, texts)
        self.settings = ListenerSettings(own)
        self.mechanisms: dict[str, Mechanism] = {}
        self.modules: dict[str, LoginModule | None] = {}
        self.login: PeerLogin | None = None
        """The login of this broker at the others, if brokers use this listener among themselves."""
        self.tls: TlsSettings | None = None
        if protocol in WITH_TLS:
            self.tls = self._tls(own, texts)
        if self.authenticates:
            for name in self.settings.sasl_enabled_mechanisms:
                self.mechanisms[name] = self._mechanism(name, own)

    def serve_peers(self, mechanism: str) -> None:
        """Use this listener among the brokers of a cluster. Raises SettingsError if they could not
        log in to each other, or would not trust each other's certificates."""
        if self.authenticates:
            from ottla.broker.security.peer_login import peer_login

            self.login = peer_login(self.listener, mechanism, self.modules)
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
            raise SettingsError(
                error.name, f"{str(error).removeprefix(f'{error.name}: ')} (listener"
                f" {self.listener})"
            ) from error

    def _mechanism(self, name: str, texts: Mapping[str, str]) -> Mechanism:
        if name not in MECHANISMS:
            raise SettingsError(
                "sasl.enabled.mechanisms",
                f"{name} is not served on listener {self.listener}; choose among"
                f" {', '.join(MECHANISMS)}",
            )
        own = for_mechanism(name, texts)
        settings = ListenerSettings(own)
        where = f"listener.name.{self.listener.lower()}.{name.lower()}."
        handler = own.get("sasl.server.callback.handler.class", "")
        if handler and not (name == "OAUTHBEARER" and handler in (*VALIDATORS, UNSECURED)):
            raise SettingsError(
                f"{where}sasl.server.callback.handler.class",
                f"{handler!r} is Java code, which Ottla does not load",
            )
        module = self.modules[name] = _module(where + "sasl.jaas.config", settings)
        if handler == UNSECURED:
            begin = self._unsecured(where, module)
        else:
            begin = self._beginner(name, settings, module)
        return Mechanism(name, begin, max(0, settings.connections_max_reauth_ms))

    def _beginner(
        self, name: str, settings: ListenerSettings, module: LoginModule | None
    ) -> NewExchange:
        if name == "OAUTHBEARER":
            from ottla.broker.security.sasl.oauthbearer import OauthExchange
            from ottla.broker.security.sasl.web_tokens import TokenRules

            rules = TokenRules(settings)
            return lambda broker: OauthExchange(rules)
        if name == "PLAIN":
            from ottla.broker.security.sasl.plain import MODULE, PlainExchange, users_of

            key = f"listener.name.{self.listener.lower()}.plain.sasl.jaas.config"
            if module is None:
                raise SettingsError(
                    key, f'has to be set: {MODULE} required user_alice="her password";'
                )
            if module.name != MODULE:
                raise SettingsError(key, f"{module.name} is not available, only {MODULE} is")
            users = users_of(module.options)
            return lambda broker: PlainExchange(users)
        from ottla.broker.security.sasl.lookup import lookup_in
        from ottla.broker.security.sasl.scram import ScramExchange

        return lambda broker: ScramExchange(name, lookup_in(broker, name))


    def _unsecured(self, where: str, module: LoginModule | None) -> NewExchange:
        from ottla.broker.security.sasl.oauthbearer import OauthExchange
        from ottla.broker.security.sasl.unsecured_tokens import UnsecuredRules

        options = {} if module is None else module.options
        rules = UnsecuredRules(f"{where}sasl.jaas.config", options)
        log.warning(
            "listener %s accepts unsecured tokens: its clients are whoever they say they are",
            self.listener,
        )
        return lambda broker: OauthExchange(rules)


def _module(name: str, settings: ListenerSettings) -> LoginModule | None:
    if settings.sasl_jaas_config is None:
        return None
    try:
        return parse_jaas(settings.sasl_jaas_config)
    except JaasError as error:
        raise SettingsError(name, str(error)) from error


def listeners_security(
    config: BrokerConfig, texts: Mapping[str, str]
) -> dict[str, ListenerSecurity]:
    """The security of each listener by its name, from these properties. Raises SettingsError."""
    found = {
        endpoint.name: ListenerSecurity(endpoint.name, config.protocols[endpoint.name], texts)
        for endpoint in config.endpoints()
    }
    if config.zookeeper_connect:
        found[config.inter_broker_listener()].serve_peers(
            config.sasl_mechanism_inter_broker_protocol
        )
    return found
