"""All scenes by name, one file for each area; ../README.md says how to run them."""

from __future__ import annotations

from collections.abc import Callable

from compat_tests.answers.conversation import Talk
from compat_tests.answers.scenes import (
    access,
    administration,
    batches,
    classic,
    configs,
    consumers,
    fetching,
    logs,
    offsets,
    topics,
    transactions,
    waits,
)

AREAS = (
    topics, batches, fetching, logs, classic, offsets, consumers, transactions, configs,
    administration, waits,
)  # fmt: skip

SCENES: dict[str, Callable[[Talk], None]] = {
    scene.__name__.replace("_", "-"): scene for area in AREAS for scene in area.SCENES
}
GUARDED: dict[str, Callable[[Talk], None]] = {
    scene.__name__.replace("_", "-"): scene for scene in access.SCENES
}
"""Scenes for brokers with an authorizer, for which every client is a super user."""
