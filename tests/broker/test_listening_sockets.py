"""A listener serves every address of its host: clients of `localhost` may try ::1 first."""

from __future__ import annotations

import contextlib
import errno
import socket
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.listening_sockets import listen
from ottla.wire.messages import MetadataRequest
from tests.broker.running import RunningBroker, WireClient

BOTH = ("::1", "127.0.0.1")


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, ...]]:
    """`localhost` has both addresses, as in the hosts file of Debian, Fedora, macOS and Docker's
    images. Tests may add names."""
    lines: dict[str, tuple[str, ...]] = {"localhost": BOTH}
    system = socket.getaddrinfo

    def found(host: str | None, port: int, *rest: Any, **more: Any) -> Any:
        return [info for each in lines.get(host or "", (host,))
                for info in system(each, port, *rest, **more)]  # fmt: skip

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return lines


def addresses(name: str, port: int = 0) -> list[str]:
    with contextlib.ExitStack() as opened:
        socks = [opened.enter_context(each) for each in listen("L", name, port, 5, -1)]
        assert len({each.getsockname()[1] for each in socks}) == 1, "one port"
        return [each.getsockname()[0] for each in socks]


def test_a_client_is_served_at_each_address_of_localhost(
    tmp_path: Path, hosts: dict[str, tuple[str, ...]]
) -> None:
    """An earlier version listened on 127.0.0.1 alone, so clients that chose ::1 were refused."""
    with RunningBroker(tmp_path, listeners="PLAINTEXT://localhost:0") as broker:
        for address in BOTH:
            with WireClient((address, broker.port)) as client:
                assert client.call(MetadataRequest(topics=[]), 9).brokers[0].host == "localhost"
        listener = broker.server.listeners[0]
        port, socks = broker.port, listener.socks
    for address in BOTH:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, port))
    assert all(each.fileno() < 0 for each in socks)


def test_a_pause_holds_at_each_address(tmp_path: Path, hosts: dict[str, tuple[str, ...]]) -> None:
    settings = {
        "listeners": "PLAINTEXT://localhost:0", "quota.window.num": 2,
        "listener.name.plaintext.max.connection.creation.rate": 1,
    }
    with RunningBroker(tmp_path, **settings) as broker:
        clients = [WireClient((address, broker.port)) for address in BOTH * 3]
        listener = broker.server.listeners[0]
        assert broker.call(lambda: listener.paused is not None)
        before = broker.call(lambda: listener.accepted)
        assert broker.call(lambda: listener.accepted) == before < len(clients)
        for client in clients:
            client.close()


def test_addresses_are_bound_once_ipv4_first(hosts: dict[str, tuple[str, ...]]) -> None:
    assert addresses("localhost") == ["127.0.0.1", "::1"]
    hosts["twice"] = ("127.0.0.1", "::1", "127.0.0.1")
    assert addresses("twice") == ["127.0.0.1", "::1"]
    assert addresses("") == ["0.0.0.0", "::"]
    assert addresses("0.0.0.0") == ["0.0.0.0"]


def test_an_address_that_the_machine_lacks_is_left_out(
    hosts: dict[str, tuple[str, ...]]
) -> None:
    hosts["named"] = ("192.0.2.1", "127.0.0.1")
    assert addresses("named") == ["127.0.0.1"]
    with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:0: .* set another address"):
        addresses("192.0.2.1")


def test_an_address_that_is_in_use_ends_the_start(hosts: dict[str, tuple[str, ...]]) -> None:
    """Otherwise, some clients of localhost would reach the other program."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=rf"cannot listen on localhost:{port}: ::1: ") as raised:
            addresses("localhost", port)
        assert raised.value.errno == errno.EADDRINUSE
        with socket.create_server(("127.0.0.1", port)):
            pass                        # the failed call has closed its socket at this address
