"""Work starts at once, and becomes a task only if it pauses."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.threads.slices import Slices, begun


async def work(pauses: int, done: list[str]) -> None:
    for _ in range(pauses):
        await Slices().pause()
        done.append("pause")
    done.append("end")


def test_work_without_a_pause_is_done_when_it_is_begun() -> None:
    async def main() -> None:
        done: list[str] = []
        assert begun(work(0, done), asyncio.get_running_loop()) is None
        assert done == ["end"]

    asyncio.run(main())


def test_a_task_does_what_follows_a_pause_while_others_are_served() -> None:
    async def main() -> None:
        done: list[str] = []
        task = begun(work(2, done), asyncio.get_running_loop())
        assert task is not None and done == []
        asyncio.get_running_loop().call_soon(done.append, "other")
        await task
        assert done == ["pause", "other", "pause", "end"]

    asyncio.run(main())


def test_an_error_before_the_first_pause_is_raised_to_who_begins() -> None:
    async def fail() -> None:
        raise ValueError("as it must")

    async def main() -> None:
        with pytest.raises(ValueError, match="as it must"):
            begun(fail(), asyncio.get_running_loop())

    asyncio.run(main())
