"""The security of all listeners of a broker, renewed while it runs: by SIGHUP, and by changes of
its settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ottla.broker.security.listener_security import ListenerSecurity, listeners_security

if TYPE_CHECKING:
    from ottla.broker.settings.config import BrokerConfig
    from ottla.log.files.clock import Clock

log = logging.getLogger("ottla.security")


class SecuredListeners:
    """The security of new connections, by the name of the listener. Raises SettingsError."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.config, self.clock = config, clock
        self.current = listeners_security(config, config.static)

    def __getitem__(self, listener: str) -> ListenerSecurity:
        return self.current[listener]

    def check(self, texts: Mapping[str, str]) -> None:
        """Raise SettingsError if the listeners could not use these properties, or if clients might
        refuse the listeners' new certificates."""
        for name, each in listeners_security(self.config, texts).items():
            each.check_identity(self.current[name])

    def renew(self, texts: Mapping[str, str]) -> bool:
        """Use these properties from now on, and read the files of keys and certificates again.
        Returns whether anything has changed. Raises SettingsError; then the former keys,
        certificates and properties stay in use."""
        former, self.current = self.current, listeners_security(self.config, texts)
        changes = [
            f"listener {name}: new connections use {what}"
            for name, each in self.current.items()
            for what in each.changes(former[name])
        ]
        for line in changes:
            log.info("%s", line)
        return bool(changes)

    def introduce(self) -> None:
        """Log the certificates with which the listeners begin."""
        for name, each in self.current.items():
            if each.certificate is not None:
                log.info("listener %s has the certificate %s", name, each.certificate)

    def warn(self) -> None:
        """Log a warning for each certificate that has expired or will expire soon."""
        now = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)
        for name, each in self.current.items():
            for certificate in each.chain:
                if text := certificate.warning(now):
                    log.warning("listener %s: %s", name, text)
