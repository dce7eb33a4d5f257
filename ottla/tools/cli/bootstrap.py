"""Connects a command to a cluster. The address comes from a flag, a property, the environment or
the default, localhost, in this order of precedence."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping

from ottla.client.addresses import default_addresses
from ottla.client.cluster import ClusterClient
from ottla.client.transport import Security
from ottla.tools.printable import printable
from ottla.tools.usage import WrongUsage, is_given

REFUSED_SECONDS = 2.0
"""Without --timeout, a command fails after all addresses have refused connections for this long.
That is enough for a broker that was started just now. A longer wait would look like a hang."""
ANSWER_SECONDS_MIN = 1.0
"""Even if --timeout is shorter, brokers have this time to answer, since they may be busy."""

FLAGS = {
    "bootstrap.servers": "bootstrap_server", "group.id": "group", "acks": "acks",
    "compression.type": "compression", "isolation.level": "committed",
}
"""Client settings that a flag can set, each with the flag's name in the options."""


def properties_of(options: Namespace) -> dict[str, str]:
    """The properties of --command-config, and those of --property, which take precedence."""
    if "properties" in options:                 # read once, to report misspelled names once
        return dict(options.properties)
    given = getattr(options, "property", [])
    if not options.command_config and not given:
        return {}
    from ottla.tools.cli.units import without_units
    from ottla.tools.properties import once, read_client_properties
    from ottla.tools.stream.client_settings import check_names, check_values

    named = without_units(once(given, "--property"))
    check_flags(options, named)
    check_names(named)
    check_values(named)
    found = read_client_properties(options.command_config) if options.command_config else {}
    options.properties = {**found, **named}
    return dict(options.properties)


def check_flags(options: Namespace, named: Mapping[str, str]) -> None:
    """Raises WrongUsage for a setting of --property that a flag sets too."""
    for name, flag in FLAGS.items():
        if name in named and is_given(getattr(options, flag, None)):
            raise WrongUsage(f"--{flag.replace('_', '-')} and --property {name} exclude each other:"
                             " give one of them")
    if "group.id" in named and "group" in options:
        raise WrongUsage("--property group.id has no effect: --group names the group")


def address_of(options: Namespace, properties: dict[str, str]) -> str:
    """The bootstrap servers."""
    return (
        options.bootstrap_server
        or properties.get("bootstrap.servers")
        or default_addresses()
    )


def check_zookeeper(given: str | None) -> None:
    """Raises WrongUsage if the value of --zookeeper is not an address of ZooKeeper."""
    from ottla.broker.settings import addresses
    from ottla.broker.settings.declaration import SettingsError

    try:
        addresses.check_zookeeper(given or "localhost:2181")
    except SettingsError as wrong:
        raise WrongUsage(str(wrong).replace("zookeeper.connect:", "--zookeeper:", 1)) from None


def connect(options: Namespace, *, retry: bool = True) -> ClusterClient:
    """A client of the cluster that the common flags name."""
    properties = properties_of(options)
    patience = options.timeout if options.timeout is not None else 5.0

    def waiting(reason: str) -> None:
        print(
            f"{printable(reason)}; trying again for up to {patience:g} s (--timeout), because the"
            " broker may be starting",
            file=sys.stderr,
        )

    return ClusterClient(
        address_of(options, properties),
        client_id=properties.get("client.id", "ottla"),
        connect_seconds=patience,
        request_seconds=30.0 if options.timeout is None else max(patience, ANSWER_SECONDS_MIN),
        patience_seconds=patience,
        security=Security.from_properties(properties),
        retry_refused=retry,
        refused_seconds=REFUSED_SECONDS if options.timeout is None else None,
        waiting=waiting if sys.stderr is not None and sys.stderr.isatty() else None,
    )
