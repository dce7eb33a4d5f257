import socket
import ssl
from collections.abc import Callable

from ottla.broker.network.poller import BrokerLoop, Pollable
from ottla.broker.network.tls_transport import TlsTransport
from ottla.broker.threads.workers import Workers

class NotTls(ConnectionError): ...

class TlsHandshake(Pollable):
    def __init__(
        self,
        loop: BrokerLoop,
        workers: Workers,
        sock: socket.socket,
        wrap: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject],
        done: Callable[[TlsHandshake, TlsTransport | None, Exception | None], None],
    ) -> None: ...
    @property
    def sock(self) -> socket.socket: ...
    @property
    def began_at(self) -> float: ...
    def fail(self, error: Exception) -> None: ...
    def cancel(self) -> None: ...
