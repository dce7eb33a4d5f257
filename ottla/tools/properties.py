"""Reads Java property files, the configuration files of Kafka's clients."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.broker.settings.sources import read_file
from ottla.client.errors import ClientError
from ottla.tools.usage import WrongUsage


def read_properties(path: str) -> dict[str, str]:
    """The properties of a file. Raises ClientError, with the path, if the file cannot be read."""
    try:
        return {name: value for _, name, value in read_file(Path(path))}
    except OSError as failed:
        raise ClientError(f"cannot read {path}: {failed.strerror}") from failed
    except ValueError as wrong:
        raise ClientError(str(wrong)) from wrong


def read_client_properties(path: str) -> dict[str, str]:
    """Reads a client's property file. Omits unknown properties, and reports them on standard error.
    Properties of Kafka Streams are omitted without a report.

    Raises ClientError if the file cannot be read, or has entries but no setting of a client.
    """
    from ottla.tools.stream.client_settings import is_known, is_of_streams, why_unknown

    properties = read_properties(path)
    unknown = {name: value for name, value in properties.items() if not is_known(name)}
    wrong = why_unknown(
        {name: value for name, value in unknown.items() if not is_of_streams(name)})
    if properties and len(unknown) == len(properties):
        hint = next((f": {why}" for why in wrong if "; " in why), "")
        raise ClientError(f"{path} has no setting of Kafka's clients{hint}")
    for why in wrong:
        print(f"{path}: {why}", file=sys.stderr)
    return {name: value for name, value in properties.items() if name not in unknown}


def once(given: list[str], what: str) -> dict[str, str]:
    """Like `pairs`. Also raises WrongUsage for a name that is given twice."""
    names = [item.partition("=")[0].strip() for item in given]
    if twice := [name for name in names if names.count(name) > 1]:
        raise WrongUsage(f"{what} {twice[0]} is given twice")
    return pairs(given, what)


def pairs(given: list[str], what: str) -> dict[str, str]:
    """`NAME=VALUE` arguments as a dictionary. Raises WrongUsage for an argument without `=`."""
    properties = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise WrongUsage(f"{what} {item!r}: expected NAME=VALUE")
        properties[name.strip()] = value
    return properties
