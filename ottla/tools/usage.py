"""Errors in a command line: exit status 2 of `ottla`, 1 of Kafka's tools and kcat."""

from __future__ import annotations

from ottla.client.errors import ClientError


class WrongUsage(ClientError):
    """The command line is wrong, whatever a broker would answer."""
