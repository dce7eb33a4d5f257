"""Java property files, as clients of Kafka are configured with them."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.settings.properties import parse_properties
from ottla.client.errors import ClientError
from ottla.tools.usage import WrongUsage


def read_properties(path: str) -> dict[str, str]:
    """The properties of a file; ClientError with its name if it cannot be read."""
    try:
        return parse_properties(Path(path).read_bytes())
    except OSError as failed:
        raise ClientError(f"cannot read {path}: {failed.strerror}") from failed
    except ValueError as wrong:
        raise ClientError(f"{path}: {wrong}") from wrong


def pairs(given: list[str], what: str) -> dict[str, str]:
    """`NAME=VALUE` arguments as a dictionary; ClientError for one without an equals sign."""
    found = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise WrongUsage(f"{what} {item!r}: expected NAME=VALUE")
        found[name.strip()] = value
    return found
