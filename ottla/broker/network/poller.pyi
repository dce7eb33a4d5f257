import asyncio
import selectors

from ottla.log.clock import Clock

class Pollable: ...

class Poller:
    clock: Clock
    touched: bool

    def __init__(self, epoll_fd: int, clock: Clock) -> None: ...
    def wait(self, timeout_seconds: float | None) -> list[tuple[int, int]]: ...

class ConnectionSelector(selectors.EpollSelector):
    poller: Poller

    def __init__(self, clock: Clock) -> None: ...

class BrokerLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with a selector that serves the sockets of connections itself."""

    poller: Poller

    def __init__(self, clock: Clock | None = None) -> None: ...
