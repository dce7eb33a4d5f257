"""Consumers that read from the closest replica (KIP-392)."""

from ottla.broker.settings.config import BrokerConfig

def redirects(config: BrokerConfig) -> bool: ...
