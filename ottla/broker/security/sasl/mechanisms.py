"""The SASL mechanisms that a listener offers, made from its properties.

Imported only for listeners that authenticate their clients by SASL (`security/listener_security`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ottla.broker.security.sasl.exchange import Exchange
from ottla.broker.security.sasl.lookup import lookup_in
from ottla.broker.security.sasl.plain import MODULE, PlainExchange, users_of
from ottla.broker.security.sasl.scram import ScramExchange
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.listener_settings import ListenerSettings, for_mechanism
from ottla.client.jaas import JaasError, LoginModule, parse_jaas

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext

log = logging.getLogger("ottla.authentication")

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
VALIDATORS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
"""Kafka's own validator of OAUTHBEARER tokens, under both of its names. Ottla uses a validator of
its own that checks the same."""

UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
    ".OAuthBearerUnsecuredValidatorCallbackHandler"
)
"""Kafka's validator of unsecured tokens, which Ottla uses only if it is set explicitly."""

NewExchange = Callable[["BrokerContext"], Exchange]


class Mechanism:
    """One mechanism that a listener offers."""

    def __init__(
        self, name: str, module: LoginModule | None, begin: NewExchange, reauthentication_ms: int
    ) -> None:
        self.name, self.module, self.begin = name, module, begin
        self.reauthentication_ms = reauthentication_ms


def require_one(listener: str, names: Sequence[str]) -> None:
    """Raise SettingsError for an empty list: no client could log in to the listener."""
    if not names:
        raise SettingsError(
            "sasl.enabled.mechanisms",
            f"has no mechanism for listener {listener}; choose among {', '.join(MECHANISMS)}",
        )


def mechanism(listener: str, name: str, texts: Mapping[str, str]) -> Mechanism:
    """A mechanism of a listener; `texts` are the listener's properties. Raises SettingsError."""
    if name not in MECHANISMS:
        raise SettingsError(
            "sasl.enabled.mechanisms",
            f"{name} is not served on listener {listener}; choose among"
            f" {', '.join(MECHANISMS)}",
        )
    own = for_mechanism(name, texts)
    settings = ListenerSettings(own)
    where = f"listener.name.{listener.lower()}.{name.lower()}."
    handler = own.get("sasl.server.callback.handler.class", "")
    if handler and not (name == "OAUTHBEARER" and handler in (*VALIDATORS, UNSECURED)):
        raise SettingsError(
            f"{where}sasl.server.callback.handler.class",
            f"{handler!r} is Java code, which Ottla does not load",
        )
    module = _module(where + "sasl.jaas.config", settings)
    if handler == UNSECURED:
        begin = _unsecured(listener, where, module)
    else:
        begin = _beginner(listener, name, settings, module)
    return Mechanism(name, module, begin, max(0, settings.connections_max_reauth_ms))


def _beginner(
    listener: str, name: str, settings: ListenerSettings, module: LoginModule | None
) -> NewExchange:
    if name == "OAUTHBEARER":
        from ottla.broker.security.sasl.oauthbearer import OauthExchange
        from ottla.broker.security.sasl.web_tokens import TokenRules

        rules = TokenRules(settings)
        return lambda broker: OauthExchange(rules)
    if name == "PLAIN":
        key = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
        if module is None:
            raise SettingsError(
                key, f'has to be set, for example to: {MODULE} required user_alice="her password";'
            )
        if module.name != MODULE:
            raise SettingsError(
                key, f"the login module {module.name} is not available, only {MODULE} is")
        users = users_of(module.options)
        return lambda broker: PlainExchange(users)
    return lambda broker: ScramExchange(name, lookup_in(broker, name))


def _unsecured(listener: str, where: str, module: LoginModule | None) -> NewExchange:
    from ottla.broker.security.sasl.oauthbearer import OauthExchange
    from ottla.broker.security.sasl.unsecured_tokens import UnsecuredRules

    options = {} if module is None else module.options
    rules = UnsecuredRules(f"{where}sasl.jaas.config", options)
    log.warning(
        "listener %s accepts unsecured tokens: clients can claim to be any user",
        listener,
    )
    return lambda broker: OauthExchange(rules)


def _module(name: str, settings: ListenerSettings) -> LoginModule | None:
    if settings.sasl_jaas_config is None:
        return None
    try:
        return parse_jaas(settings.sasl_jaas_config)
    except JaasError as error:
        raise SettingsError(name, str(error)) from error
