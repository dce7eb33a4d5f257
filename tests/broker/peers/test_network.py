"""Sockets of connections to other brokers."""

from __future__ import annotations

import asyncio
import socket

import pytest

from ottla.broker.peers.network import connected


def test_what_was_not_sent_when_a_connection_is_given_up_does_not_arrive_later() -> None:
    """The request was sent again on another connection, and may have been served there."""
    with socket.socket() as listener:
        # The buffer is so small that most data wait at the sender until the other end reads.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sender = asyncio.run(connected(*listener.getsockname()))
        other, _ = listener.accept()
    with other:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        sender.send(bytes(1 << 18))
        sender.close()
        arrived = 1
        with pytest.raises(ConnectionResetError):
            while arrived:
                arrived = len(other.recv(1 << 16))
