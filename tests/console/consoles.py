"""A console as a process, and a small HTTP client for its API."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

WAIT_SECONDS = 30


class Answer(NamedTuple):
    """An answer; `json` is its decoded body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Console:
    """`ottla console` on a free port, with its history in a directory of its own."""

    def __init__(
        self, bootstrap: str, directory: Path, *arguments: str, tls: ssl.SSLContext | None = None
    ) -> None:
        self.log = (directory / "console.log").open("ab")
        self.tls = tls
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "console", "--bootstrap-server", bootstrap,
             "--listen", "localhost:0", "--history", str(directory / "history.sqlite"),
             *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline().decode()
        address = self.ready.rpartition("://")[2].strip()
        self.port = int(address.rpartition(":")[2] or 0)
        self.url = self.ready.rpartition(" ")[2].strip()

    def connection(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection("localhost", self.port, timeout=WAIT_SECONDS)
        return http.client.HTTPSConnection(
            "localhost", self.port, timeout=WAIT_SECONDS, context=self.tls)

    def ask(
        self, path: str, method: str = "GET", body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request; returns the answer. `path` is a path of the API, or any other path
        after an additional `/`."""
        whole = path[1:] if path.startswith("//") else f"/api/v1{path}"
        sent = dict(headers or {})
        data = None
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = self.connection()
        try:
            connection.request(method, whole, data, sent)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Any:
        """Send a GET request, and assert that its status is 200; returns the decoded body."""
        answer = self.ask(path, headers=headers)
        assert answer.status == 200, answer
        return answer.json

    def log_in(self, user: str, password: str, mechanism: str = "PLAIN") -> dict[str, str]:
        """Log in; returns the header that belongs to the new session."""
        answer = self.ask(
            "/session", "POST", {"user": user, "password": password, "mechanism": mechanism})
        assert answer.status == 200, answer
        return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}

    def stop(self) -> int:
        """Send SIGTERM; returns the exit status."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        status = self.process.wait(WAIT_SECONDS)
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                stream.close()
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            assert self.stop() == 0
