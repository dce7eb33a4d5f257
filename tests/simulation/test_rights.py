"""Which versions of the ACLs a request may meet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.replication.controller.access import Operation
from tests.simulation.rights import OWNER, Granted, Rights

HOST, NAME = "10.9.0.2", "t"
READ = HOST, Operation.READ, NAME


def rights_with(shown: list[int]) -> Rights:
    """Rights whose second version grants READ from offset 10 on, and whose third one takes it away
    from offset 20 on. The brokers show images with the offsets `shown`."""
    newest = SimpleNamespace(offset=10)

    async def done(request: Any, version: int) -> Any:
        parts = "filter_results" if hasattr(request, "filters") else "results"
        return SimpleNamespace(**{parts: [SimpleNamespace(error_code=0)]})

    images: list[Any] = [SimpleNamespace(offset=each) for each in shown]
    made: Any = newest
    rights = Rights(done, lambda: made, lambda: images)

    async def change() -> None:
        await rights.begin([], Granted({READ}))
        newest.offset = 20
        await rights.change(READ)

    asyncio.run(change())
    return rights


def test_a_broker_that_lags_may_use_older_acls() -> None:
    assert rights_with([5, 25]).oldest() == 0
    assert rights_with([15, 25]).oldest() == 1
    assert rights_with([20, 25]).oldest() == 2


def test_a_right_is_possible_if_one_version_grants_it_and_certain_if_all_do() -> None:
    rights = rights_with([])
    may = [rights.possible(since, HOST, Operation.READ, NAME) for since in (0, 1, 2)]
    must = [rights.certain(since, HOST, Operation.READ, NAME) for since in (0, 1, 2)]
    assert may == [True, True, False] and must == [False, False, False]
    assert rights.certain(0, OWNER, Operation.DELETE, NAME)


def test_reading_implies_describing_and_nothing_else() -> None:
    rights = rights_with([])
    rights.versions.append(Granted({READ}))
    assert rights.certain(3, HOST, Operation.DESCRIBE, NAME)
    assert not rights.possible(3, HOST, Operation.WRITE, NAME)
    assert not rights.possible(3, HOST, Operation.READ, "other")
