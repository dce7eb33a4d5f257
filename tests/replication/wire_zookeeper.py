"""The ZooKeeper in memory behind ZooKeeper's wire protocol, for sessions of kazoo."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from ottla.replication.coordination import (
    BadVersion,
    Check,
    CoordinationRefused,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Stat,
    Watch,
)
from tests.simulation.zookeeper import ZooKeeperServer

CREATE, DELETE, EXISTS, GET, SET, CHILDREN, SYNC, PING, CHECK, MULTI, CLOSE = (
    1, 2, 3, 4, 5, 8, 9, 11, 13, 14, -11)
CODES: dict[type[CoordinationRefused], int] = {
    NoNode: -101, BadVersion: -103, NodeExists: -110, NotEmpty: -111}
ROLLED_BACK, NOT_TRIED = 0, -2
WATCH_XID = -1
CHANGED_EVENT, CHILD_EVENT, CONNECTED_STATE = 3, 4, 3
EPHEMERAL = 1


class CountingServer(ZooKeeperServer):
    """A server that counts how many operations of a multi were applied."""

    applied = 0

    def _apply(self, session: int, each: Operation) -> None:
        super()._apply(session, each)
        self.applied += 1


class WireZooKeeper:
    """Serves any number of clients, on a free port, with sessions of `granted_ms`.

    The next `lose_answers` requests are executed, but not answered: their connections end. While
    `refusing`, new connections are closed at once.
    """

    def __init__(self, granted_ms: int = 9000) -> None:
        self.granted_ms = granted_ms
        self.memory = CountingServer()
        self.lock = threading.RLock()
        self.lose_answers = 0
        self.refusing = False
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.connect = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.connections: list[Connection] = []
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            connection = Connection(self, client)
            self.connections.append(connection)
            connection.start()

    def expire(self, session: int) -> None:
        """End a session: its client learns of it when it connects again."""
        with self.lock:
            self.memory.expire(session)

    def close(self) -> None:
        """Stop serving."""
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join()
        for each in self.connections:
            each.break_off()
            each.join()


class Connection(threading.Thread):
    """One connection of a client, with the methods that `ZooKeeperServer` calls."""

    def __init__(self, server: WireZooKeeper, client: socket.socket) -> None:
        super().__init__(daemon=True)
        self.server, self.memory, self.client = server, server.memory, client
        self.session = 0
        self.missed: dict[Watch, None] = {}
        """kazoo calls these itself."""

    def run(self) -> None:
        with self.client:
            try:
                self._serve()
            except (OSError, EOFError):
                pass
        with self.server.lock:
            here: Any = self.memory.sessions.get(self.session)
            if here is self:
                self.memory.forget_watches(self.session, here)

    def break_off(self) -> None:
        """Break the connection."""
        try:
            self.client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass                        # it is broken already

    def deliver(self, session: int, watch: Watch) -> None:
        """Call a watch that is due."""
        watch()

    def session_ended(self, session: int) -> None:
        """Close the connection of a session that has ended, as a server does."""
        self.break_off()

    def _serve(self) -> None:
        _, _, _, known = struct.unpack_from(">iqiq", _read(self.client))
        this: Any = self
        with self.server.lock:
            if known == 0:
                self.session = self.memory.connect(this)
            elif known in self.memory.sessions:
                self.session, self.memory.sessions[known] = known, this
        granted = self.server.granted_ms if self.session else 0
        self._send(struct.pack(">iiqi16s?", 0, granted, self.session, 16, bytes(16), False))
        while self.session:
            request = Reader(_read(self.client))
            xid, operation = request.number(), request.number()
            with self.server.lock:
                try:
                    code, body = 0, self._answer(operation, request)
                except CoordinationRefused as error:
                    code, body = CODES[type(error)], b""
                if self.server.lose_answers and operation not in (PING, CLOSE):
                    self.server.lose_answers -= 1
                    return
                self._send(struct.pack(">iqi", xid, self.memory.zxid, code) + body)

    def _send(self, data: bytes) -> None:
        self.client.sendall(struct.pack(">i", len(data)) + data)

    def _answer(self, operation: int, request: Reader) -> bytes:
        memory, session = self.memory, self.session
        if operation in (PING, CLOSE):
            if operation == CLOSE:
                memory.sessions[session] = _Gone()      # type: ignore[assignment]
                memory.expire(session)
            return b""
        if operation == MULTI:
            return self._multi(request.multi())
        if operation == CREATE:
            made = request.operation(CREATE)
            memory.multi(session, [made])
            return _text(made.path)
        path = request.text()
        if operation == EXISTS:
            stat = memory.exists(session, path, self._watch(CHANGED_EVENT, path, request))
            if stat is None:
                raise NoNode(path)
            return _stat(stat)
        if operation == GET:
            data, stat = memory.get(session, path)
            return struct.pack(">i", len(data)) + data + _stat(stat)
        if operation == CHILDREN:
            names = memory.children(session, path, self._watch(CHILD_EVENT, path, request))
            return struct.pack(">i", len(names)) + b"".join(map(_text, reversed(names)))
        assert operation == SYNC
        return _text(path)

    def _watch(self, event: int, path: str, request: Reader) -> Callable[[], None] | None:
        told = struct.pack(">iqiii", WATCH_XID, -1, 0, event, CONNECTED_STATE) + _text(path)
        return (lambda: self._send(told)) if request.flag() else None

    def _multi(self, operations: list[Operation]) -> bytes:
        self.memory.applied = 0
        try:
            self.memory.multi(self.session, operations)
        except CoordinationRefused as error:
            codes = [NOT_TRIED] * len(operations)
            codes[:self.memory.applied] = [ROLLED_BACK] * self.memory.applied
            codes[self.memory.applied] = CODES[type(error)]
            results = b"".join(struct.pack(">iBii", -1, 0, code, code) for code in codes)
        else:
            results = b"".join(map(self._result, operations))
        return results + struct.pack(">iBi", -1, 1, -1)

    def _result(self, each: Operation) -> bytes:
        if isinstance(each, Create):
            return struct.pack(">iBi", CREATE, 0, 0) + _text(each.path)
        if isinstance(each, Set):
            return struct.pack(">iBi", SET, 0, 0) + _stat(self.memory.nodes[each.path].stat)
        return struct.pack(">iBi", DELETE if isinstance(each, Delete) else CHECK, 0, 0)


class _Gone:
    """A client that has ended its session itself."""

    def __init__(self) -> None:
        self.missed: dict[Watch, None] = {}

    def deliver(self, session: int, watch: Watch) -> None:
        """The client does not listen any more."""

    def session_ended(self, session: int) -> None:
        """The client knows this already."""


class Reader:
    """Reads a request."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self) -> int:
        return self._take(4, ">i")

    def flag(self) -> bool:
        return self._take(1, "?") != 0

    def _take(self, size: int, form: str) -> int:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += size
        return int(value)

    def bytes(self) -> bytes:
        size = max(0, self.number())
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self) -> str:
        return self.bytes().decode()

    def multi(self) -> list[Operation]:
        """The operations of a multi, each after its header."""
        operations = []
        while (kind := self.number()) != -1:
            self.at += 5
            operations.append(self.operation(kind))
        return operations

    def operation(self, kind: int) -> Operation:
        """Read one operation."""
        path = self.text()
        if kind == CREATE:
            data = self.bytes()
            for _ in range(self.number()):              # the access rules
                self.number(), self.bytes(), self.bytes()
            return Create(path, data, self.number() == EPHEMERAL)
        if kind == SET:
            return Set(path, self.bytes(), self.number())
        return (Delete if kind == DELETE else Check)(path, self.number())


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">i", len(data)) + data


def _stat(stat: Stat) -> bytes:
    return struct.pack(
        ">qqqqiiiqiiq", stat.czxid, stat.mzxid, 0, 0, stat.version, 0, 0, stat.owner, 0, 0, 0)


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
