"""The names that a topic may have. Directories are named after topics, so other names
are refused."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sized
from itertools import product
from typing import Protocol

from ottla.wire.errors import InvalidTopic

NAME_LENGTH_MAX = 249
LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
METADATA_TOPICS = frozenset({"__cluster_metadata", "__ottla_metadata"})
"""Names of metadata logs, Kafka's and ours: no topic may have these names."""


class Names(Sized, Container[str], Iterable[str], Protocol):
    """A mapping or set of names."""


def require_legal_name(name: str) -> None:
    """Raise InvalidTopic, with the reason, if no topic may have this name."""
    if not name:
        raise InvalidTopic("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidTopic(
            f"Topic name is invalid: it has {len(name)} characters, but at most"
            f" {NAME_LENGTH_MAX} are allowed"
        )
    if not LEGAL.fullmatch(name):
        raise InvalidTopic(
            f"Topic name is invalid: {name!r} has characters other than ASCII letters, digits,"
            " '.', '_' and '-'"
        )


def is_legal_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return len(name) <= NAME_LENGTH_MAX and bool(LEGAL.fullmatch(name)) and name not in (".", "..")


def colliding_name(name: str, names: Names) -> str | None:
    """Another name in `names` that differs only in '.' and '_', which metrics do not distinguish.

    If the name has few such characters, this tries all variants; otherwise it searches `names`.
    """
    spots = [index for index, character in enumerate(name) if character in "._"]
    if not spots:
        return None
    if 1 << min(len(spots), 30) <= len(names):
        candidates: Iterator[str] = (one for one in _variants(name, spots) if one in names)
    else:
        key = name.replace(".", "_")
        candidates = (
            one for one in names if len(one) == len(name) and one.replace(".", "_") == key
        )
    return next((one for one in candidates if one != name), None)


def _variants(name: str, spots: list[int]) -> Iterator[str]:
    characters = list(name)
    for choice in product("._", repeat=len(spots)):
        for spot, character in zip(spots, choice, strict=True):
            characters[spot] = character
        yield "".join(characters)
