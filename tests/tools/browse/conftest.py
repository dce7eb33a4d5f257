"""The tests of browsing use the fixtures of the commands' tests."""

from tests.tools.cli.conftest import broker, ottla

__all__ = ["broker", "ottla"]
