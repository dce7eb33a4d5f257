import socket
import ssl

from ottla.broker.network.transport import Transport

class TlsTransport(Transport):
    def __init__(
        self,
        sock: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
    ) -> None: ...
    @property
    def tls(self) -> ssl.SSLObject: ...
