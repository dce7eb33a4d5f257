"""The broker's own loop, driven by a World: time passes only when the world advances it.

It is asyncio's loop with the real poller on real socket pairs; the only differences are that it
never waits, and that a thread's work is an event of the world.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.broker.network.poller import BrokerLoop
from ottla.log.clock import Clock

if TYPE_CHECKING:
    from tests.simulation.world import World


class SimClock(Clock):
    """The times of one process in a world."""

    def __init__(self, world: World, wall_ms: Callable[[], int] | None = None) -> None:
        self.world, self.wall_ms = world, wall_ms or world.wall_ms

    def now_ms(self) -> int:
        return self.wall_ms()

    def monotonic(self) -> float:
        return self.world.spent()


class SimExecutor:
    """A pool of threads of a simulated process: the world decides when its work is done."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        self.width, self.name = max_workers, thread_name_prefix
        self.queue: deque[Work] = deque()
        self.free_at = 0.0

    def __enter__(self) -> SimExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Done at once: used at the start, before any client is served."""
        return _Done(function(*arguments))

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Finish what has begun, which is the first of the queue, and usually the rest."""
        begun = True
        while self.queue:
            work = self.queue.popleft()
            if begun or not cancel_futures:
                work.run()
            begun = False


class _Done:
    def __init__(self, result: Any) -> None:
        self.value = result

    def result(self) -> Any:
        return self.value


class Work:
    """One call in a thread, and the future that waits for it."""

    def __init__(
        self, loop: SimLoop, future: asyncio.Future[Any], function: Callable[[], Any]
    ) -> None:
        self.loop, self.future, self.function = loop, future, function
        self.done = False

    def run(self) -> None:
        if self.done or self.loop.dead:
            return
        self.done = True
        try:
            with running(None):
                result = self.function()
        except Exception as error:
            self.loop.call_soon(self._end, None, error)
        else:
            self.loop.call_soon(self._end, result, None)

    def _end(self, result: Any, error: Exception | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class SimLoop(BrokerLoop):
    """One process: killed, it never runs again."""

    def __init__(
        self, world: World, sockets: bool = True, wall_ms: Callable[[], int] | None = None
    ) -> None:
        """`wall_ms` is the wall clock of its machine, the world's if there is none."""
        super().__init__(SimClock(world, wall_ms))
        self.world, self.dead = world, False
        self.poked = True
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context))
        select = self._selector.select
        # The clients' loop has only timers and events: no system call in each turn.
        self._selector.select = (lambda _=None: select(0)) if sockets else (lambda _=None: [])

    def due(self) -> float:
        """When this loop has something to do next."""
        if self._ready or self.poked:
            return 0.0
        return self._scheduled[0]._when if self._scheduled else float("inf")

    def turn(self) -> None:
        """One turn of asyncio's loop."""
        self.poked = False
        if self.world.turned is not self:           # setting it is a system call
            asyncio._set_running_loop(self)
            self.world.turned = self
        self._run_once()

    def run_in_executor(self, executor: Any, function: Any, *arguments: Any) -> Any:
        """Execute it at some later moment; one thread's calls keep their order."""
        future = self.create_future()
        work = Work(self, future, lambda: function(*arguments))
        executor.queue.append(work)
        at = self.world.now + self.world.thread_latency(executor.name)
        if executor.width == 1:
            at = executor.free_at = max(executor.free_at, at)

        def run() -> None:
            with contextlib.suppress(ValueError):
                executor.queue.remove(work)
            work.run()

        self.world.at(at, run)
        return future

    def kill(self) -> None:
        """Nothing in it runs any more."""
        self.dead = True
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False


@contextlib.contextmanager
def running(loop: SimLoop | None) -> Iterator[None]:
    """Make `loop` the running one, for what constructs tasks and futures outside of a turn; or
    none, as in a thread."""
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(before)
