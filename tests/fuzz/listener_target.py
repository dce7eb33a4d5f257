"""A fuzzer for live listeners: any bytes on a connection end that connection, and nothing else.

A whole broker with four listeners runs in the process: PLAINTEXT, SASL_PLAINTEXT, SSL and SASL_SSL.
A finding is a line in the broker's log at level ERROR, or a broker that no longer serves a normal
client.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import socket
import ssl
import tempfile
from pathlib import Path

from ottla.wire.messages import MetadataRequest
from tests.broker.running import RunningBroker, WireClient
from tests.broker.security.authority import Authority
from tests.broker.security.logging_in import JAAS
from tests.waiting import exhaust

SETTINGS = {
    "listeners": ",".join(f"L{at}://127.0.0.1:0" for at in range(4)),
    "listener.security.protocol.map": "L0:PLAINTEXT,L1:SASL_PLAINTEXT,L2:SSL,L3:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.l1.plain.sasl.jaas.config": JAAS,
    "listener.name.l3.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "0", "ssl.keystore.type": "PEM",
    "delegation.token.secret.key": "fuzz", "num.partitions": "1",
}  # fmt: skip
BROKER_RUNS = 3000
"""After so many runs a new broker replaces the old one, in which the runs have left topics, groups
and settings."""
CLEAN_EVERY = 100
ANSWER_SECONDS = 10.0
LONG_POLL_SECONDS = 0.05
"""The client leaves after so long without an answer, because some requests, such as a fetch, wait
for records that never come."""
ENCRYPTED = 0x80
"""If this bit of the first byte is set, and the listener has TLS, the client sends the other bytes
through TLS."""


class Failures(logging.Handler):
    """Collects the broker's log lines at level ERROR."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


class Target:
    """The fuzz target. It starts the broker at the first run."""

    def __init__(self) -> None:
        self.runs = 0
        self.failures = Failures()
        self.directory = ""
        self.broker: RunningBroker | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE

    def running(self) -> RunningBroker:
        """The broker. It is replaced by a new one after every BROKER_RUNS runs."""
        if self.broker is None or self.runs % BROKER_RUNS == 0:
            self.close()
            logging.getLogger().addHandler(self.failures)
            self.directory = tempfile.mkdtemp(prefix="ottla-fuzz-")
            key = Authority(Path(self.directory)).issue("server")
            more = {"ssl.keystore.location": str(key)}
            self.broker = RunningBroker(Path(self.directory, "data"), **SETTINGS, **more)
        self.runs += 1
        return self.broker

    def close(self) -> None:
        """Stop the broker and remove its data."""
        logging.getLogger().removeHandler(self.failures)
        if self.broker is not None:
            self.broker.stop()
            self.broker = None
            shutil.rmtree(self.directory)

    def __call__(self, data: bytes) -> None:
        broker = self.running()
        choice = data[0] if data else 0
        address = ("127.0.0.1", broker.server.listeners[choice & 3].port)
        with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
            self.speak(address, data[1:], encrypted=bool(choice & ENCRYPTED and choice & 2))
        if self.runs % CLEAN_EVERY == 0:
            with WireClient(broker.address) as client:
                assert client.call(MetadataRequest(topics=[]), 9).brokers
        found, self.failures.found = self.failures.found, []
        assert not found, found

    def speak(self, address: tuple[str, int], data: bytes, encrypted: bool) -> None:
        """Send the bytes, and read until the broker closes the connection or sends nothing more for
        a while."""
        with socket.create_connection(address, ANSWER_SECONDS) as plain:
            sock = self.context.wrap_socket(plain) if encrypted else plain
            sock.sendall(data)
            if not encrypted:
                sock.shutdown(socket.SHUT_WR)
            sock.settimeout(LONG_POLL_SECONDS)
            exhaust(lambda: sock.recv(65536))


listeners = Target()
