"""Connections to other brokers over TLS, SASL or both, as the inter-broker listener's settings say.

A thread does the computations of a handshake and of a login; the loop only moves bytes. A refusal
by the other broker is raised as `NotLoggedIn` or as an error of `ssl`, both of which are OSErrors.
Callers wait and try again, since the settings of the other broker may be corrected.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.network.transport import Transport
from ottla.broker.peers.network import connected
from ottla.broker.peers.peer_connection import PeerConnection, PeerUnavailable
from ottla.client.errors import ClientError
from ottla.wire.messages import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from ottla.broker.network.poller import BrokerLoop
    from ottla.broker.network.tls_handshake import TlsHandshake
    from ottla.broker.network.tls_transport import TlsTransport
    from ottla.broker.security.listener_security import ListenerSecurity
    from ottla.broker.security.peer_login import PeerLogin
    from ottla.broker.security.tls.context import TlsSettings
    from ottla.broker.threads.workers import Workers

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
RENEWED_AFTER = 0.85
"""The share of a login session's lifetime after which a new connection replaces the old one
(KIP-368)."""


class NotLoggedIn(ConnectionError):
    """The other broker refuses this broker's login, or this broker does not trust the other one."""


class SecuredNetwork:
    """A `Network`. `security` returns the current security of the inter-broker listener, which may
    change at run time."""

    def __init__(
        self,
        loop: BrokerLoop,
        workers: Workers,
        security: Callable[[], ListenerSecurity],
        client_id: str,
    ) -> None:
        self.loop, self.workers, self.security = loop, workers, security
        self.client_id = client_id

    async def connect(self, host: str, port: int, listener: str) -> Transport:
        """Connect, encrypt, log in. Raises OSError."""
        security = self.security()
        sock = await connected(host, port)
        if security.tls is None:
            transport = Transport(sock)
        else:
            transport = await self._encrypt(sock, host, security.tls)
        if security.login is None:
            return transport
        return await self._log_in(transport, f"{host}:{port}", security.login)

    async def _encrypt(self, sock: socket.socket, host: str, tls: TlsSettings) -> TlsTransport:
        from ottla.broker.network.tls_handshake import TlsHandshake

        made: asyncio.Future[TlsTransport] = self.loop.create_future()

        def done(
            handshake: TlsHandshake, transport: TlsTransport | None, error: Exception | None
        ) -> None:
            if made.done():                 # the caller gave up
                if transport is not None:
                    transport.close()
            elif transport is not None:
                made.set_result(transport)
            else:
                made.set_exception(_explained(error))

        handshake = TlsHandshake(
            self.loop, self.workers, sock,
            lambda incoming, outgoing: tls.connect(incoming, outgoing, host), done,
        )
        try:
            return await made
        except asyncio.CancelledError:
            handshake.cancel()
            raise

    async def _log_in(self, transport: Transport, where: str, login: PeerLogin) -> Transport:
        connection = PeerConnection(self.loop, transport, self.client_id, where, None)
        try:
            lifetime_ms = await self._exchange(connection, login)
            transport = connection.hand_over()
        except BaseException as error:
            connection.close(ConnectionError(str(error)))
            raise
        if lifetime_ms > 0:
            transport.expires_at = self.loop.time() + RENEWED_AFTER * lifetime_ms / 1000
        return transport

    async def _exchange(self, connection: PeerConnection, login: PeerLogin) -> int:
        """Authenticate; returns the session's lifetime in ms, 0 if it has no end."""
        as_whom = f"as {login.user} by {login.mechanism}"
        shaken = await self._ask(
            connection, SaslHandshakeRequest(mechanism=login.mechanism), HANDSHAKE_VERSION
        )
        if shaken.error_code:
            raise NotLoggedIn(
                f"the other broker offers {', '.join(shaken.mechanisms) or 'no SASL mechanism'},"
                f" but this one logs in by {login.mechanism} (sasl.mechanism.inter.broker.protocol)"
            )
        exchange = login.begin()
        token: bytes | None = exchange.first()
        lifetime_ms = 0
        while token is not None:
            answer = await self._ask(
                connection, SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE_VERSION
            )
            if answer.error_code:
                raise NotLoggedIn(
                    f"the other broker refused the login {as_whom}: {answer.error_message}")
            lifetime_ms = answer.session_lifetime_ms
            received = bytes(answer.auth_bytes)
            try:
                token = await self.workers.run(partial(exchange.answer, received))
            except (ClientError, ValueError, KeyError) as error:
                raise NotLoggedIn(f"the login {as_whom} failed: {error}") from error
        return lifetime_ms

    async def _ask(self, connection: PeerConnection, request: Any, version: int) -> Any:
        try:
            return await connection.ask(request, version)
        except PeerUnavailable as error:
            raise NotLoggedIn(
                f"{error} (is its listener's security protocol the same as this broker's?)"
            ) from error


def _explained(error: Exception | None) -> OSError:
    """Describe a failed handshake; the message says which side has to be corrected."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return NotLoggedIn(
            f"the other broker's certificate is not accepted: {error.verify_message}"
            " (ssl.truststore.… of this broker must contain the authority that signed the"
            " certificate, and the certificate must contain the other broker's host name)"
        )
    if isinstance(error, ssl.SSLError):
        return NotLoggedIn(f"the TLS handshake fails: {error.reason or error}")
    return error if isinstance(error, OSError) else NotLoggedIn(f"the TLS handshake fails: {error}")
