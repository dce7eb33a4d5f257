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
    """asyncio's loop, in which the sockets of connections are served before it hears of them."""

    poller: Poller

    def __init__(self, clock: Clock | None = None) -> None: ...
