"""The task that a search process receives."""

from __future__ import annotations

from ottla.console.filters import Filters
from ottla.console.search import Wanted
from ottla.console.search_process import Task


def task_at(bootstrap: str) -> Task:
    """A search in one partition of a topic, at a broker of this address."""
    wanted = Wanted("t", "oldest", filters=Filters(text="x"))
    return Task(wanted, {0: (0, 10)}, {0: 0}, bootstrap, {})
