"""Kafka's ids of topics and directories: 16 bytes, shown as 22 characters of URL-safe base64."""

from __future__ import annotations

import base64
import secrets


def show_uuid(data: bytes) -> str:
    """The 22 characters of an id."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def uuid_of(text: str) -> bytes:
    """Parses the 22 characters of an id. Raises ValueError."""
    data = base64.urlsafe_b64decode(text + "==")
    if len(data) != 16:
        raise ValueError(f"{text!r} is not an id: expected 22 characters of base64")
    return data


def random_uuid() -> str:
    """A new id that does not begin with a dash, which a command line would treat as a flag."""
    while True:
        made = show_uuid(secrets.token_bytes(16))
        if not made.startswith("-"):
            return made
