"""One connection's authentication over SASL: which requests are allowed next, and when it ends.

    FIRST       ApiVersions, SaslHandshake
    VERSIONS    SaslHandshake               ApiVersions has been answered
    EXCHANGE    SaslAuthenticate            or bare tokens after version 0 of SaslHandshake (KIP-43)
    COMPLETE    everything; SaslHandshake authenticates again before the session ends (KIP-368)
    FAILED      nothing: the connection ends after the reply

Any other request closes the connection without an answer.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING

from ottla.broker.security.sasl.exchange import (
    AuthenticationFailed,
    Exchange,
    Identity,
    InvalidExchange,
)
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.errors import ErrorCode, MalformedMessage
from ottla.wire.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from ottla.wire.structs import EncodedMessage

if TYPE_CHECKING:
    from ottla.broker.connection import ClientConnection
    from ottla.broker.context import BrokerContext
    from ottla.broker.security.listener_security import ListenerSecurity
    from ottla.broker.security.sasl.mechanisms import Mechanism

NAME_SIZE_MAX = 250
"""How many characters of the user's name are logged at a failed login."""
LIFETIME_MS_MAX = (1 << 63) - 1
"""The longest lifetime of a session that an answer can have. connections.max.reauth.ms may be this
long, and the float `ends_at` may be rounded up."""
HANDSHAKE_INTERVAL_SECONDS = 1.0
"""A connection may start to re-authenticate at most once in this time, as in Kafka."""


class State(Enum):
    """The progress of the authentication."""

    FIRST = "before SaslHandshake"
    VERSIONS = "after ApiVersions"
    EXCHANGE = "while it authenticates"
    COMPLETE = "after it has authenticated"
    FAILED = "after it has failed to authenticate"


ALLOWED = {
    State.FIRST: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    State.VERSIONS: (ApiKey.SASL_HANDSHAKE,),
    State.EXCHANGE: (ApiKey.SASL_AUTHENTICATE,),
    State.FAILED: (),
}
OF_A_LOGIN = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
"""The requests that a client sends in order to log in. If its first request is another one, the
client is not configured to log in."""


class NotAuthenticated(MalformedMessage):
    """A request that this client may not send in this state."""


class Session:
    """The authentication state of one connection, which decides about each request."""

    def __init__(
        self, security: ListenerSecurity, broker: BrokerContext, connection: ClientConnection
    ) -> None:
        self.security, self.broker, self.connection = security, broker, connection
        self.state = State.FIRST
        self.mechanism: Mechanism | None = None
        self.exchange: Exchange | None = None
        self.identity: Identity | None = None
        self.ends_at: float | None = None
        self.handshake_at = float("-inf")

    @property
    def over(self) -> bool:
        """Whether authentication has failed, so that the connection ends after the reply."""
        return self.state is State.FAILED

    @property
    def authenticated(self) -> bool:
        """Whether the client has authenticated at least once."""
        return self.identity is not None

    def admit(self, api_key: int, version: int) -> None:
        """Raise NotAuthenticated if the client may not send this request now."""
        if self.state is State.COMPLETE:
            if (
                self.ends_at is not None
                and self._now() > self.ends_at
                and api_key != ApiKey.SASL_HANDSHAKE
            ):
                raise NotAuthenticated(
                    "the client's session has expired, and the client did not authenticate again")
            return
        if api_key not in ALLOWED[self.state]:
            known = APIS[ApiKey(api_key)].name if api_key in APIS else f"API key {api_key}"
            came = f"{known} came {self.state.value}"
            if self.state in (State.FIRST, State.VERSIONS) and api_key not in OF_A_LOGIN:
                came = f"the client did not log in (security.protocol without SASL?): {came}"
            raise NotAuthenticated(came)
        if api_key == ApiKey.API_VERSIONS and version in APIS[ApiKey.API_VERSIONS].versions:
            self.state = State.VERSIONS

    async def handshake(self, mechanism: str, version: int) -> SaslHandshakeResponse:
        """Start a mechanism; after version 0 of SaslHandshake the tokens are bare."""
        # Even an old connection uses the current settings: a user of PLAIN may have been removed.
        self.security = self.connection.listener.security
        offered = list(self.security.mechanisms)
        if self.state is State.COMPLETE and not self._may_begin_again():
            return SaslHandshakeResponse(
                error_code=int(ErrorCode.ILLEGAL_SASL_STATE), mechanisms=[]
            )
        chosen = self.security.mechanisms.get(mechanism)
        if chosen is None:
            await self._fail(AuthenticationFailed(f"Unsupported SASL mechanism {mechanism}"))
            return SaslHandshakeResponse(
                error_code=int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), mechanisms=offered
            )
        before, self.mechanism = self.mechanism, chosen
        if before is not None and self.identity is not None and before.name != mechanism:
            self.exchange = RefusedExchange(
                f"SASL mechanism '{mechanism}' requested by client is not supported for"
                f" re-authentication of mechanism '{before.name}'"
            )
        else:
            self.exchange = chosen.begin(self.broker)
        self.state = State.EXCHANGE
        self.connection.expect_tokens(version == 0)
        return SaslHandshakeResponse(error_code=0, mechanisms=offered)

    def _may_begin_again(self) -> bool:
        now = self._now()
        if self.ends_at is None or now - self.handshake_at < HANDSHAKE_INTERVAL_SECONDS:
            return False
        self.handshake_at = now
        return True

    async def authenticate(self, token: bytes, version: int) -> SaslAuthenticateResponse:
        """Process the client's next token."""
        try:
            answer = await self._step(token)
        except AuthenticationFailed as error:
            await self._fail(error)
            return SaslAuthenticateResponse(
                error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED),
                error_message=self._told(error),
                auth_bytes=b"",
            )
        response = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=answer)
        if version >= 1 and self.state is State.COMPLETE:
            response.session_lifetime_ms = self._lifetime_ms()
        return response

    async def bare_token(self, token: bytes) -> EncodedMessage:
        """Process a token without a request around it; the reply has no response header either."""
        try:
            return EncodedMessage(await self._step(token))
        except AuthenticationFailed as error:
            await self._fail(error)
            return EncodedMessage(b"")

    async def _step(self, token: bytes) -> bytes:
        assert self.exchange is not None and self.mechanism is not None
        answer = await self.exchange.answer(token)
        identity = self.exchange.identity
        if identity is not None:
            if self.identity is not None and identity.principal != self.identity.principal:
                raise AuthenticationFailed(
                    "Cannot change principals during re-authentication from"
                    f" {self.identity.principal}: {identity.principal}"
                )
            self._complete(identity, self.mechanism)
        return answer

    def _complete(self, identity: Identity, mechanism: Mechanism) -> None:
        first = self.identity is None
        self.identity, self.exchange = identity, None
        self.state = State.COMPLETE
        self.connection.expect_tokens(False)
        lifetimes = [mechanism.reauthentication_ms] if mechanism.reauthentication_ms > 0 else []
        if identity.expires_at_ms is not None:
            lifetimes.append(max(0, identity.expires_at_ms - self.broker.clock.now_ms()))
        self.ends_at = self._now() + min(lifetimes) / 1000 if lifetimes else None
        self.connection.authenticated(identity.principal, identity.by_token)
        client = self.connection.client
        self.connection.listener.logins.success(
            identity.principal, client.host, client.peer(), mechanism.name, not first
        )

    def _lifetime_ms(self) -> int:
        if self.ends_at is None:
            return 0
        left_ms = round((self.ends_at - self._now()) * 1000)
        return min(max(0, left_ms), LIFETIME_MS_MAX)

    def _told(self, error: AuthenticationFailed) -> str:
        if not isinstance(error, InvalidExchange):
            return str(error)
        again = "re-authentication" if self.identity is not None else "authentication"
        name = "" if self.mechanism is None else self.mechanism.name
        return (
            f"Authentication failed during {again} due to invalid credentials with SASL mechanism"
            f" {name}"
        )

    async def _fail(self, error: AuthenticationFailed) -> None:
        """Note a failure. Returns after connection.failed.authentication.delay.ms; then the caller
        replies, and the connection is closed."""
        listener, claimed = self.connection.listener, self.exchange and self.exchange.claimed
        self.state, self.exchange = State.FAILED, None
        listener.logins.failure(self.identity is not None)
        user = f" of {claimed[:NAME_SIZE_MAX]!r}" if claimed else ""
        by = f" by {self.mechanism.name}" if self.mechanism is not None else ""
        listener.refused(self.connection, AuthenticationFailed(f"login{user}{by} failed: {error}"))
        await asyncio.sleep(self.broker.config.connection_failed_authentication_delay_ms / 1000)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class RefusedExchange(Exchange):
    """An exchange that cannot succeed; the client's first token is answered with the error."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.identity: Identity | None = None

    async def answer(self, token: bytes) -> bytes:
        """Raise AuthenticationFailed with the message."""
        raise AuthenticationFailed(self.message)
