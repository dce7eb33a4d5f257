"""A broker's memory of transactions is bounded, and expires."""

from __future__ import annotations

from ottla.broker.history.transaction_memory import (
    HELD_MAX,
    PRODUCING_MAX,
    RELEASED_MS,
    HeldBack,
    Producing,
    TransactionalClients,
)
from ottla.groups.history.rings import TEXT_CHARS_MAX


def test_a_group_was_held_back_until_a_moment_ago() -> None:
    held = HeldBack()
    held.note(("g", "t", 0), 1_000)
    assert held.ago(("g", "t", 0), 4_000) == 3_000 and held.ago(("g", "t", 1), 4_000) is None
    assert held.ago(("g", "t", 0), 1_001 + RELEASED_MS) is None
    for index in range(HELD_MAX):
        held.note(("g", "u", index), 2_000)
    assert held.ago(("g", "t", 0), 2_000) is None and held.ago(("g", "u", 0), 2_000) == 0


def test_the_newest_clients_of_transactional_ids_are_known() -> None:
    known, client = TransactionalClients(), Producing("User:a", "c", "h")
    known.note("first", client)
    for number in range(PRODUCING_MAX):
        known.note(f"id-{number}", client)
    assert known.of("first") is None and known.of("id-0") == client


def test_long_names_take_little_memory() -> None:
    known = TransactionalClients()
    known.note("id", Producing("User:a", "c" * 30_000, "h"))
    known.note("x" * 30_000, Producing("User:a", None, "h"))
    client = known.of("id")
    assert client is not None and len(client.client or "") == TEXT_CHARS_MAX + 1
    assert known.of("x" * 30_000) is None
