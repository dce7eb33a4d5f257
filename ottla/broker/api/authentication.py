"""SaslHandshake (key 17) and SaslAuthenticate (36)."""

from __future__ import annotations

from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.decisions import everybody
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


@handles(ApiKey.SASL_HANDSHAKE, access=everybody)
async def sasl_handshake(
    request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    """Choose a mechanism; a listener that does not authenticate offers none."""
    if context.session is None:
        return SaslHandshakeResponse(
            error_code=int(ErrorCode.ILLEGAL_SASL_STATE), mechanisms=[]
        )
    return await context.session.handshake(request.mechanism, context.version)


@handles(ApiKey.SASL_AUTHENTICATE, access=everybody)
async def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Process the next step of the mechanism's exchange."""
    if context.session is not None and context.session.exchange is not None:
        return await context.session.authenticate(bytes(request.auth_bytes), context.version)
    reason = (
        f"Listener {context.client.listener} has no SASL: set the client's security.protocol to"
        " PLAINTEXT or SSL"
        if context.session is None
        else "the client sent SaslAuthenticate without a SaslHandshake before it"
    )
    return SaslAuthenticateResponse(
        error_code=int(ErrorCode.ILLEGAL_SASL_STATE), error_message=reason, auth_bytes=b""
    )
