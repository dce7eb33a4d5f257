"""A command line that is wrong: exit status 2 of `ottla`, 1 under Kafka's names and kcat's."""

from __future__ import annotations

from ottla.client.errors import ClientError


class WrongUsage(ClientError):
    """A command line that no broker needs to be asked about."""
