"""Ottla, a message broker that speaks Apache Kafka's wire protocol."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"
PUBLIC = {"spark_interop", "testing"}
"""Packages for users: `import ottla` alone is enough to write `ottla.testing.Broker()`."""


def __getattr__(name: str) -> ModuleType:
    if name in PUBLIC:
        return import_module(f"ottla.{name}")
    raise AttributeError(f"module 'ottla' has no attribute {name!r}")
