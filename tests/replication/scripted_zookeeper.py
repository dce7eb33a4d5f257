"""A fake ZooKeeper server on a free port: it opens sessions, and a test chooses its answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

CREATE, EXISTS, PING, MULTI, CLOSE = 1, 3, 11, 14, -11
OK, CONNECTION_BREAKS, NO_NODE, NO_AUTH = 0, 1, -101, -102
PING_XID = -2
STAT_SIZE = 68

Answer = Callable[[int, str], int]
"""From an operation and its path to an error code, or CONNECTION_BREAKS."""


class ScriptedZooKeeper:
    """Grants each client a session of `granted_ms`; `asked` has the requested operations with their
    paths."""

    def __init__(self, granted_ms: int, answer: Answer = lambda operation, path: OK) -> None:
        self.granted_ms, self.answer = granted_ms, answer
        self.asked: list[tuple[int, str]] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.connect = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            with client:
                try:
                    self._serve_one(client)
                except (OSError, EOFError):
                    pass

    def _serve_one(self, client: socket.socket) -> None:
        _read(client)
        granted = struct.pack(">iiqi16s?", 0, self.granted_ms, 77, 16, bytes(16), False)
        client.sendall(_framed(granted))
        while True:
            request = _read(client)
            xid, operation = struct.unpack_from(">ii", request)
            if xid == PING_XID or operation == CLOSE:
                client.sendall(_framed(struct.pack(">iqi", xid, 1, OK)))
                continue
            path = ""
            if operation != MULTI:
                (size,) = struct.unpack_from(">i", request, 8)
                path = request[12 : 12 + size].decode()
            self.asked.append((operation, path))
            code = self.answer(operation, path)
            if code == CONNECTION_BREAKS:
                return
            body = b""
            if operation == CREATE and not code:
                body = struct.pack(">i", len(path)) + path.encode()
            elif operation == EXISTS and not code:
                body = bytes(STAT_SIZE)
            client.sendall(_framed(struct.pack(">iqi", xid, 1, code) + body))

    def close(self) -> None:
        """Stop serving."""
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join()


def _framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _read(client: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(client, 4))
    return _exactly(client, size)


def _exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        some = client.recv(size - len(data))
        if not some:
            raise EOFError
        data += some
    return data
