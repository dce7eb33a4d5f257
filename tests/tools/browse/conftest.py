"""One broker for the tests of browsing."""

from tests.tools.cli.conftest import broker, ottla

__all__ = ["broker", "ottla"]
