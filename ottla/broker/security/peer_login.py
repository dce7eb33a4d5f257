"""How this broker logs in to the other brokers of its cluster. The mechanism is
`sasl.mechanism.inter.broker.protocol`; the user and the password are in the JAAS configuration of
that mechanism on the inter-broker listener.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.broker.settings.declaration import SettingsError
from ottla.client.errors import ClientError
from ottla.client.jaas import LoginModule
from ottla.client.sasl import ClientMechanism, client_mechanism

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class PeerLogin:
    """The mechanism, user and password with which this broker logs in."""

    mechanism: str
    user: str
    password: str = field(repr=False)

    def begin(self) -> ClientMechanism:
        """The client's side of a new exchange."""
        return client_mechanism(self.mechanism, self.user, self.password)


def peer_login(
    listener: str, mechanism: str, modules: Mapping[str, LoginModule | None]
) -> PeerLogin:
    """The login to the other brokers' inter-broker listener; `modules` are the login modules of the
    mechanisms that this listener offers. Raises SettingsError."""
    name = "sasl.mechanism.inter.broker.protocol"
    if mechanism not in MECHANISMS:
        raise SettingsError(
            name,
            f"brokers cannot log in to each other by {mechanism}; choose among"
            f" {', '.join(MECHANISMS)}",
        )
    if mechanism not in modules:
        raise SettingsError(
            name, f"{mechanism} must be in sasl.enabled.mechanisms of listener {listener}"
        )
    jaas = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    module = modules[mechanism]
    options = {} if module is None else module.options
    if not options.get("username") or "password" not in options:
        raise SettingsError(
            jaas,
            "needs username=\"…\" and password=\"…\", which this broker uses to log in to the"
            " other brokers"
        )
    login = PeerLogin(mechanism, options["username"], options["password"])
    try:
        login.begin()
    except ClientError as error:
        raise SettingsError(jaas, str(error)) from error
    return login
