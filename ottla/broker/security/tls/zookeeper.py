"""TLS to ZooKeeper, by the `zookeeper.ssl.…` properties of Kafka's ZooKeeper mode.

They have the same meaning as a listener's `ssl.…` settings. The broker identifies itself with its
certificate: a ZooKeeper with `ssl.clientAuth=need` admits no client without one.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime

from ottla.broker.security.tls.context import chain_of_client, context_of_client
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.listener_settings import ListenerSettings

log = logging.getLogger("ottla.tls")

PREFIX = "zookeeper."
REVOCATION = ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")


def zookeeper_context(texts: Mapping[str, str]) -> ssl.SSLContext | None:
    """The context of connections to ZooKeeper; None without TLS. Raises SettingsError."""
    if texts.get("zookeeper.ssl.client.enable", "false").strip().lower() != "true":
        return None
    for name in REVOCATION:
        if texts.get(name, "false").strip().lower() == "true":
            raise SettingsError(
                name, "must be false: Ottla does not check certificates for revocation"
            )
    own = {
        name.removeprefix(PREFIX): text
        for name, text in texts.items()
        if name.startswith(f"{PREFIX}ssl.")
    }
    # ZooKeeper's clients have one password for both the store and the key in it.
    if "ssl.keystore.password" in own:
        own["ssl.key.password"] = own["ssl.keystore.password"]
    settings = ListenerSettings(own)
    try:
        context = context_of_client(settings)
        for certificate in chain_of_client(settings):
            if text := certificate.warning(datetime.now(UTC)):
                log.warning("TLS to ZooKeeper: %s", text)
        return context
    except SettingsError as error:
        problem = str(error).removeprefix(f"{error.name}: ")
        raise SettingsError(PREFIX + error.name, problem) from error


class Contexts:
    """Makes a new context for each connection from the current files, since certificates are
    replaced from time to time and connections are rare.
    """

    def __init__(self, texts: Mapping[str, str], first: ssl.SSLContext) -> None:
        self.texts, self.newest = texts, first

    def __call__(self) -> ssl.SSLContext:
        """The context of the next connection. If the files cannot be used, the previous context
        stays in use."""
        try:
            self.newest = zookeeper_context(self.texts) or self.newest
        except SettingsError as error:
            log.error("TLS to ZooKeeper: the current files cannot be used, so the previous key and"
                      " certificates stay in use: %s", error)
        return self.newest


def zookeeper_contexts(texts: Mapping[str, str]) -> Contexts | None:
    """The contexts of connections to ZooKeeper; None without TLS. Raises SettingsError."""
    first = zookeeper_context(texts)
    return None if first is None else Contexts(texts, first)
