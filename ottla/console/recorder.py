"""Writes the history: every ten seconds a point of each total, topic and group.

It reads the same views as the pages. If the brokers ask for no login, it reads the views without a
login. Otherwise it reads them as the console's own user, if one is configured, and as the users who
are logged in. Without any of these users nothing is recorded. Totals and group lags cover only the
topics that a user may see, so each user has their own series of totals and groups.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError
from ottla.console import group_pages, picture
from ottla.console.history import LEVELS, Sample

if TYPE_CHECKING:
    from ottla.console.history import History
    from ottla.console.sessions import Sessions, Visitor

log = logging.getLogger("ottla.console")

TRIM_SECONDS = 300.0
GROUP_MEASURES = ("lag", "lag_bytes", "lag_seconds", "offset")
EACH_MAX = 300
"""At most this many topics (the busiest) have series, and at most this many groups (with the
highest lag)."""


async def record(history: History, sessions: Sessions) -> None:
    """Write a point of everything periodically, until cancelled."""
    trimmed = 0.0
    while True:
        try:
            await once(history, sessions)
            if time.monotonic() - trimmed > TRIM_SECONDS:
                await asyncio.to_thread(history.trim)
                trimmed = time.monotonic()
        except Exception:
            log.exception("the history could not be recorded; trying again in %d s", LEVELS[0][0])
        await asyncio.sleep(LEVELS[0][0])


async def once(history: History, sessions: Sessions) -> None:
    """Write one point of everything."""
    sessions.expire()
    observers = sessions.observers()
    if not observers:
        await sessions.contact.look()
    for visitor in observers:
        try:
            await record_view(history, visitor)
        except ClientError as failed:
            sessions.contact.note(failed)
            log.info("no history is recorded for %s: %s", visitor.name or "the console", failed)
        else:
            sessions.contact.note(None)


def series_of(kind: str, visitor: Visitor) -> str:
    """The kind under which the history stores a visitor's series."""
    return kind if kind == "topic" or visitor.name is None else f"{kind} seen by {visitor.name}"


async def record_view(history: History, visitor: Visitor) -> None:
    """Write one point of everything that a visitor sees. Raises ClientError."""
    taken = await visitor.views.get(picture.take)
    groups: list[dict[str, Any]] = []
    try:
        groups = await visitor.views.get(group_pages.group_rows)
    except ClientError:
        pass                                # for example, groups are hidden from this user
    await asyncio.to_thread(write, history, visitor, taken, groups)


def write(
    history: History, visitor: Visitor, taken: picture.Picture, groups: list[dict[str, Any]]
) -> None:
    """Write the values of one moment."""
    history.begin(taken.members.cluster_id or "")
    history.write([
        one._replace(kind=series_of(one.kind, visitor)) for one in samples_of(taken, groups)
    ])


def samples_of(taken: picture.Picture, groups: list[dict[str, Any]]) -> Iterator[Sample]:
    """The values of one moment, from a complete picture."""
    offsets, disks = taken.offsets, taken.disks
    assert offsets is not None and disks is not None
    rates = offsets.rates
    yield Sample("total", "", "offset", sum(topic.total(offsets.ends) for topic in taken.topics))
    if rates is not None:
        yield Sample("total", "", "records_per_second", sum(rates.values()))
    yield Sample("total", "", "lag", sum(one["lag"] or 0 for one in groups))
    if disks.directories:
        yield Sample(
            "total", "", "bytes", sum(topic.total(disks.sizes) for topic in taken.topics))
    busiest = nlargest(EACH_MAX, taken.topics, key=lambda topic: (
        rates.get(topic.name, 0.0) if rates is not None else 0.0, picture.records(topic, offsets)))
    for topic in busiest:
        yield Sample("topic", topic.name, "offset", topic.total(offsets.ends))
        if rates is not None:
            rate = rates.get(topic.name, 0.0)
            yield Sample("topic", topic.name, "records_per_second", rate)
        if disks.directories:
            yield Sample("topic", topic.name, "bytes", topic.total(disks.sizes))
    for row in sorted(groups, key=lambda one: one["lag"] or 0, reverse=True)[:EACH_MAX]:
        for measure in GROUP_MEASURES:
            if row[measure] is not None:
                yield Sample("group", row["group"], measure, row[measure])
