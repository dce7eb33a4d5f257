"""The broker's event loop, driven by a World: time passes only when the world advances it.

It is asyncio's loop with the broker's poller on real socket pairs. It differs in two points: it
never waits, and a call that the broker gives to a thread runs as an event of the world. asyncio's
code for each turn and each callback took half of a run's time, so this module replaces it by code
without debug mode.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import copy_context
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from ottla.broker.network.poller import BrokerLoop
from ottla.log.files.clock import Clock

if TYPE_CHECKING:
    from tests.simulation.world import World


NEVER = float("inf")


class SimClock(Clock):
    """The clock of one process in a world."""

    def __init__(self, world: World, wall_ms: Callable[[], int] | None = None) -> None:
        self.world, self.wall_ms = world, wall_ms or world.wall_ms

    def now_ms(self) -> int:
        return self.wall_ms()

    def monotonic(self) -> float:
        return self.world.spent()


class SimExecutor:
    """A thread pool of a simulated process: the world decides when each call runs."""

    def __init__(self, max_workers: int = 1, thread_name_prefix: str = "") -> None:
        self.width, self.name = max_workers, thread_name_prefix
        self.queue: deque[Work] = deque()
        self.free_at = 0.0

    def __enter__(self) -> SimExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function at once. This is used at the start, before the broker serves
        clients."""
        return _Done(function(*arguments))

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Finish the first call of the queue, because it has already begun. Unless `cancel_futures`
        is set, run the other calls too."""
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
    """One call in a thread, and the future that receives its result."""

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


class SimHandle:
    """A scheduled callback, with the interface of asyncio's handles, without their debug mode.

    A loop creates a handle with `NEW` and then assigns each field, because a call of `__init__`
    would take longer than all other work on the handle. A run has thousands of handles.
    """

    __slots__ = ("arguments", "callback", "context", "due_at", "loop", "scheduled")

    callback: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    context: contextvars.Context
    due_at: float
    loop: SimLoop
    scheduled: bool

    def when(self) -> float:
        return self.due_at

    def cancelled(self) -> bool:
        return self.callback is None

    def cancel(self) -> None:
        if self.callback is not None:
            if self.scheduled:
                self.loop.timers_cancelled += 1
            self.callback, self.arguments = None, ()

    def __lt__(self, other: SimHandle) -> bool:
        """Return False: timers with the same time are equal, as in asyncio."""
        return False


NEW = object.__new__


class SimLoop(BrokerLoop):
    """The loop of one process. After a kill it never runs again."""

    def __init__(
        self, world: World, sockets: bool = True, wall_ms: Callable[[], int] | None = None
    ) -> None:
        """`wall_ms` is the wall clock of the process's machine, by default the world's."""
        super().__init__(SimClock(world, wall_ms))
        self.world, self.dead = world, False
        self.poked = True
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context))
        self.time = world.spent
        # The clients' loop has no sockets, so its turns need no system call.
        self.sockets = sockets
        self.ready = self._ready
        self.timers: list[tuple[float, SimHandle]] = []
        """The timers, as a heap."""
        self.timers_cancelled = 0

    def call_soon(                      # type: ignore[override]
        self, callback: Callable[..., Any], *arguments: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        handle = NEW(SimHandle)
        handle.callback, handle.arguments, handle.scheduled = callback, arguments, False
        handle.context = copy_context() if context is None else context
        self.ready.append(handle)
        return handle

    def call_at(                        # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *arguments: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        handle = NEW(SimHandle)
        handle.callback, handle.arguments, handle.scheduled = callback, arguments, True
        handle.context = copy_context() if context is None else context
        handle.loop, handle.due_at = self, when
        heappush(self.timers, (when, handle))
        return handle

    def call_later(                     # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *arguments: Any,
        context: contextvars.Context | None = None,
    ) -> SimHandle:
        return self.call_at(self.time() + delay, callback, *arguments, context=context)

    def due(self) -> float:
        """The time at which this loop next has something to do; 0 means now."""
        if self.ready or self.poked or self.poller.soon:
            return 0.0
        return self.timers[0][0] if self.timers else NEVER

    def turn(self) -> None:
        """Run one turn: serve the sockets, take the timers that are due, and run every callback
        that is ready by then.

        The clock is read as often as in asyncio, because each reading advances it.
        """
        world, ready, timers = self.world, self.ready, self.timers
        # While callbacks are ready, a socket can be ready only if something has arrived since the
        # last turn.
        looks = self.sockets and (self.poked or not ready or bool(self.poller.soon))
        self.poked = False
        if world.turned is not self:                # this is a system call
            asyncio._set_running_loop(self)
            world.turned = self
        if timers:
            if timers[0][1].callback is None or len(timers) > 100:
                self._forget_cancelled()
            if timers and not ready:
                self.time()
        if looks:
            self._pass_over_closed(self.poller.wait(0))
        if timers:
            until = self.time() + self._clock_resolution
            while timers and timers[0][0] < until:
                handle = heappop(timers)[1]
                handle.scheduled = False
                ready.append(handle)
        else:
            self.time()
        for _ in range(len(ready)):
            handle = ready.popleft()
            callback = handle.callback
            if callback is None:
                continue
            try:
                handle.context.run(callback, *handle.arguments)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                message = f"Exception in callback {callback}"
                self.call_exception_handler({"message": message, "exception": error})

    def _pass_over_closed(self, ready: list[tuple[int, int]]) -> None:
        """Skip the descriptors in `ready`, which the poller did not serve. They must all be closed:
        one may have been closed while the poller served another one of the same epoll result. In a
        simulation the poller serves every descriptor that is open."""
        for fd, _ in ready:
            try:
                self._selector._selector.modify(fd, 0)
            except OSError:
                continue
            raise RuntimeError("only the sockets of connections are ready in a simulation")

    def _forget_cancelled(self) -> None:
        """Remove cancelled timers from the front of the heap, or all of them if most timers are
        cancelled."""
        timers = self.timers
        if len(timers) > 100 and self.timers_cancelled / len(timers) > 0.5:
            timers[:] = [each for each in timers if each[1].callback is not None]
            heapq.heapify(timers)
            self.timers_cancelled = 0
            return
        while timers and timers[0][1].callback is None:
            self.timers_cancelled -= 1
            heappop(timers)

    def run_in_executor(self, executor: Any, function: Any, *arguments: Any) -> Any:
        """Schedule the function as an event of the world; returns the future of its result. The
        calls of an executor with one thread keep their order."""
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
        """End this loop: none of its callbacks runs any more."""
        self.dead = True
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False


@contextlib.contextmanager
def running(loop: SimLoop | None) -> Iterator[None]:
    """Make `loop` the running loop of asyncio within a block, for code that creates tasks and
    futures outside of a turn. With None there is no running loop, as in a thread."""
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(before)
