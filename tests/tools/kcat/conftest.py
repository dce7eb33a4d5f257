"""One broker for kcat's options."""

from tests.tools.cli.conftest import broker, ottla

__all__ = ["broker", "ottla"]
