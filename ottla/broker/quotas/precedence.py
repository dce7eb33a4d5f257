"""Which quota applies to a client, and which clients share it.

As in Kafka (KIP-55), the quota of the most specific entity applies, and a user's quota takes
precedence over that of a client id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.replication.principals import CLIENT_ID, USER, Entity

DEFAULT: Final = None
Scope = tuple[str, str]
"""The user and the client id whose requests share a quota. The user is empty if all users share the
quota. The client id is empty if all client ids share it."""


def quota_of(
    quotas: Mapping[Entity, Mapping[str, float]], key: str, user: str, client_id: str
) -> tuple[float, Scope] | None:
    """The limit that applies to a client, and its scope; None if the client has no limit."""
    both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
    candidates: tuple[tuple[Entity, Scope], ...] = (
        (((CLIENT_ID, client_id), (USER, user)), both),
        (((CLIENT_ID, DEFAULT), (USER, user)), both),
        (((USER, user),), of_user),
        (((CLIENT_ID, client_id), (USER, DEFAULT)), both),
        (((CLIENT_ID, DEFAULT), (USER, DEFAULT)), both),
        (((USER, DEFAULT),), of_user),
        (((CLIENT_ID, client_id),), of_client),
        (((CLIENT_ID, DEFAULT),), of_client),
    )
    for entity, scope in candidates:
        limits = quotas.get(entity)
        if limits is not None and key in limits:
            return limits[key], scope
    return None
