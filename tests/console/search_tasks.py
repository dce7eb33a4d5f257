"""Tasks for search processes."""

from __future__ import annotations

from dataclasses import replace

from ottla.console.filters import Filters
from ottla.console.search import Wanted
from ottla.console.search_process import Task


def task_at(bootstrap: str) -> Task:
    """A search in one partition of a topic, at a broker of this address."""
    wanted = Wanted("t", "oldest", filters=Filters(text="x"))
    return Task(wanted, {0: (0, 10)}, {0: 0}, bootstrap, {})


def nothing_to_search() -> Task:
    """A search in an empty partition; it needs no broker."""
    return replace(task_at("127.0.0.1:1"), bounds={0: (0, 0)})
