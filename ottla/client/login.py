"""Logs in with SASL before other requests, by version 1 of SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from ottla.client.errors import ClientError, LoginFailed, TimedOut, Unreachable
from ottla.client.frames import Frames, frame_size
from ottla.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from ottla.client.sasl import ClientMechanism
    from ottla.client.transport import Security

CLIENT_ID = "ottla"
VERSION = 1
"""The version of both requests. Brokers support it since Kafka 2.2 (KIP-368)."""


def log_in(sock: socket.socket, login: ClientMechanism, security: Security, where: str) -> None:
    """Log in. Raises LoginFailed if the broker refuses the password, ClientError for another
    refusal, TimedOut if it does not answer, OSError if it disconnects."""
    mechanism = security.mechanism
    frames = Frames(CLIENT_ID)
    shaken = _ask(sock, frames, SaslHandshakeRequest(mechanism=mechanism), where)
    if shaken.error_code:
        offered = ", ".join(shaken.mechanisms) or "none"
        raise ClientError(
            f"{where}: the broker does not offer SASL mechanism {mechanism} (offered: {offered})"
        )
    token: bytes | None = login.first()
    while token is not None:
        answer = _ask(sock, frames, SaslAuthenticateRequest(auth_bytes=token), where)
        if answer.error_code:
            raise LoginFailed(
                f"{where}: {answer.error_message or 'authentication failed'}", mechanism,
                security.user, token="tokenauth" in security.extensions)
        token = login.answer(bytes(answer.auth_bytes))


def _ask(sock: socket.socket, frames: Frames, request: Any, where: str) -> Any:
    frame, sent = frames.encode(request, VERSION)
    sock.sendall(frame)
    return frames.decode(sent, _take(sock, frame_size(_take(sock, 4, where), where), where))


def _take(sock: socket.socket, size: int, where: str) -> bytearray:
    data = bytearray()
    while len(data) < size:
        try:
            piece = sock.recv(size - len(data))
        except TimeoutError as late:
            raise TimedOut(f"{where}: no answer to the login within {sock.gettimeout():.3g} s;"
                           " perhaps the service at this address is not a broker") from late
        if not piece:
            raise Unreachable(f"{where}: the broker closed the connection during the login")
        data += piece
    return data
