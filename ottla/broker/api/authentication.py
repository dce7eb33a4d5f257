"""SaslHandshake (key 17) and SaslAuthenticate (36); delegation tokens (38 to 41), which nobody gets
yet.
"""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.dispatch import handles
from ottla.broker.security.decisions import everybody
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

NOT_ALLOWED = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
NEVER = -1


@handles(ApiKey.SASL_HANDSHAKE, versions=range(0, 2), access=everybody)
async def sasl_handshake(
    request: SaslHandshakeRequest, context: RequestContext
) -> SaslHandshakeResponse:
    """Choose a mechanism; a listener that does not authenticate offers none."""
    if context.session is None:
        return SaslHandshakeResponse(
            error_code=int(ErrorCode.ILLEGAL_SASL_STATE), mechanisms=[]
        )
    return await context.session.handshake(request.mechanism, context.version)


@handles(ApiKey.SASL_AUTHENTICATE, versions=range(0, 3), access=everybody)
async def sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Go one step further in the mechanism's exchange."""
    if context.session is not None and context.session.exchange is not None:
        return await context.session.authenticate(bytes(request.auth_bytes), context.version)
    reason = (
        f"Listener {context.client.listener} does not authenticate: talk to it without SASL"
        if context.session is None
        else "SaslAuthenticate without a SaslHandshake before it"
    )
    return SaslAuthenticateResponse(
        error_code=int(ErrorCode.ILLEGAL_SASL_STATE), error_message=reason, auth_bytes=b""
    )


@handles(ApiKey.CREATE_DELEGATION_TOKEN, versions=range(0, 4), access=everybody)
def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """A token is for those who have authenticated (KIP-48)."""
    kind, _, name = context.client.principal.partition(":")
    answer = CreateDelegationTokenResponse(
        error_code=NOT_ALLOWED,
        principal_type=kind,
        principal_name=name,
        issue_timestamp_ms=NEVER,
        expiry_timestamp_ms=NEVER,
        max_timestamp_ms=NEVER,
        token_id="",
        hmac=b"",
    )
    if context.version >= 3:
        answer.token_requester_principal_type = kind
        answer.token_requester_principal_name = name
    return answer


@handles(ApiKey.RENEW_DELEGATION_TOKEN, versions=range(0, 3), access=everybody)
def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """As above."""
    return RenewDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=NEVER)


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, versions=range(0, 3), access=everybody)
def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """As above."""
    return ExpireDelegationTokenResponse(error_code=NOT_ALLOWED, expiry_timestamp_ms=NEVER)


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=range(0, 4), access=everybody)
def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """As above."""
    return DescribeDelegationTokenResponse(error_code=NOT_ALLOWED, tokens=[])
