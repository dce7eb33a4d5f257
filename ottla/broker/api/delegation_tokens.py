"""Delegation tokens (KIP-48): CreateDelegationToken (key 38), RenewDelegationToken (39),
ExpireDelegationToken (40), DescribeDelegationToken (41).

Only clients that have authenticated without a token may use these APIs. A client that has logged
in with a token, or has not logged in, can neither create nor see tokens.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.client import ANONYMOUS
from ottla.broker.security.decisions import everybody
from ottla.broker.security.token_secrets import TokenSecrets
from ottla.replication.controller.access import Operation, Resource
from ottla.replication.controller.tokens import (
    TokenTimes,
    create_token,
    expire_token,
    renew_token,
)
from ottla.replication.metadata import Decision
from ottla.replication.principals import DelegationToken
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from ottla.wire.structs import Message

NEVER = -1
ID_SIZE = 16
Described = DescribeDelegationTokenResponse.Token


def secrets_of(context: RequestContext) -> TokenSecrets:
    """The secrets of tokens. Raises ProtocolError if tokens are not enabled, or if the client may
    not use these APIs."""
    client = context.client
    # The forwarding broker has checked this; the controller sees only that broker's connection.
    if not context.forwarded and (
        client.protocol == "PLAINTEXT" or client.by_token or client.principal == ANONYMOUS
    ):
        raise ProtocolError(
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on"
            " delegation token authenticated channels.",
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        )
    if context.broker.token_secrets is None:
        raise ProtocolError(
            "Delegation Token feature is not enabled.", ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        )
    return context.broker.token_secrets


async def from_controller(context: RequestContext, request: Message, kind: type[Any]) -> Any:
    """The controller's response, of class `kind`; None if this broker decides itself."""
    role = context.broker.role
    if context.forwarded or role.decides():
        return None
    answer = await role.forward(context, request.encode(context.version))
    return kind.decode(answer.encode(context.version), context.version)


def times_of(context: RequestContext) -> TokenTimes:
    """The configured lifetimes of tokens."""
    config = context.broker.config
    return TokenTimes(
        config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms
    )


@handles(ApiKey.CREATE_DELEGATION_TOKEN, access=everybody)
async def create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Issue a token to the client or, if ACLs allow it, to another owner (KIP-373)."""
    requester = owner = context.client.principal
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    try:
        secrets_of(context)
        answer = await from_controller(context, request, CreateDelegationTokenResponse)
        if answer is not None:
            told: CreateDelegationTokenResponse = answer
            return told
        token, hmac = await _create(request, context, owner)
    except ProtocolError as error:
        if error.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
            owner = requester
        return _created(context, int(error.code), owner, requester)
    answer = _created(context, 0, owner, requester)
    answer.issue_timestamp_ms, answer.expiry_timestamp_ms = token.issued_ms, token.expires_ms
    answer.max_timestamp_ms, answer.token_id, answer.hmac = token.max_ms, token.token_id, hmac
    return answer


async def _create(
    request: CreateDelegationTokenRequest, context: RequestContext, owner: str
) -> tuple[DelegationToken, bytes]:
    secret = secrets_of(context)
    requester = context.client.principal
    if owner != requester and not context.access.may(
        Operation.CREATE_TOKENS, Resource.USER, owner
    ):
        raise ProtocolError(
            "Delegation Token authorization failed.",
            ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        )
    if any(each.principal_type != "User" for each in request.renewers):
        raise ProtocolError("Supplied principalType is not supported.",
                            ErrorCode.INVALID_PRINCIPAL_TYPE)  # fmt: skip
    token = await context.broker.metadata_log.decide(
        create_token, secrets.token_urlsafe(ID_SIZE), owner, requester,
        [f"User:{each.principal_name}" for each in request.renewers], request.max_lifetime_ms,
        times_of(context), context.broker.clock.now_ms(),
    )  # fmt: skip
    return token, secret.hmac(token.token_id)


def _created(
    context: RequestContext, code: int, owner: str, requester: str
) -> CreateDelegationTokenResponse:
    kind, _, name = owner.partition(":")
    answer = CreateDelegationTokenResponse(
        error_code=code, principal_type=kind, principal_name=name, issue_timestamp_ms=NEVER,
        expiry_timestamp_ms=NEVER, max_timestamp_ms=NEVER, token_id="", hmac=b"",
    )  # fmt: skip
    if context.version >= 3:
        kind, _, name = requester.partition(":")
        answer.token_requester_principal_type = kind
        answer.token_requester_principal_name = name
    return answer


@handles(ApiKey.RENEW_DELEGATION_TOKEN, access=everybody)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Renew the token that has the request's HMAC."""
    answer: RenewDelegationTokenResponse | None = await _forwarded(
        context, request, RenewDelegationTokenResponse
    )
    if answer is not None:
        return answer
    code, ends_ms = await _changed(
        context, request.hmac, renew_token, request.renew_period_ms, times_of(context)
    )
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=ends_ms)


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, access=everybody)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Change the expiry time of a token, or remove the token at once."""
    answer: ExpireDelegationTokenResponse | None = await _forwarded(
        context, request, ExpireDelegationTokenResponse
    )
    if answer is not None:
        return answer
    code, ends_ms = await _changed(
        context, request.hmac, expire_token, request.expiry_time_period_ms
    )
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=ends_ms)


async def _forwarded(context: RequestContext, request: Message, kind: type[Any]) -> Any:
    """Check the client, then do as `from_controller` does; an error becomes a response."""
    try:
        secrets_of(context)
        return await from_controller(context, request, kind)
    except ProtocolError as error:
        return kind(error_code=int(error.code), expiry_timestamp_ms=NEVER)


async def _changed(
    context: RequestContext, hmac: bytes, change: Callable[..., Decision[int]], *arguments: Any
) -> tuple[int, int]:
    """Change the token with this HMAC; returns an error code and the token's expiry in ms."""
    broker = context.broker
    try:
        token_id = secrets_of(context).find(broker.image.tokens, bytes(hmac))
        return 0, await broker.metadata_log.decide(
            change, token_id, context.client.principal, *arguments, broker.clock.now_ms()
        )
    except ProtocolError as error:
        return int(error.code), NEVER


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, access=everybody)
def describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Report the tokens that the client may see: its own, those that it may renew, and those that
    ACLs allow.

    If the request lists principals in `owners`, it selects the tokens that one of these principals
    owns, has requested or may renew. As in Kafka, an empty list selects no tokens. Without a list,
    all tokens are selected.
    """
    try:
        secret = secrets_of(context)
    except ProtocolError as error:
        return DescribeDelegationTokenResponse(error_code=int(error.code), tokens=[])
    wanted = None
    if request.owners is not None:
        wanted = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    tokens = [
        _described(token, secret.hmac(token.token_id), context.version)
        for token in context.broker.image.tokens.values()
        if (wanted is None or not wanted.isdisjoint(_parties(token))) and _visible(token, context)
    ]
    return DescribeDelegationTokenResponse(error_code=0, tokens=tokens)


def _parties(token: DelegationToken) -> tuple[str, ...]:
    return (token.owner, token.requester, *token.renewers)


def _visible(token: DelegationToken, context: RequestContext) -> bool:
    if context.client.principal in _parties(token):
        return True
    # Without an authorizer, `access` allows everything. Even then, a client must not see the tokens
    # of others.
    access = context.access.quiet
    return context.broker.authorizer is not None and (
        access.may(Operation.DESCRIBE, Resource.DELEGATION_TOKEN, token.token_id)
        or access.may(Operation.DESCRIBE_TOKENS, Resource.USER, token.owner)
    )


def _described(token: DelegationToken, hmac: bytes, version: int) -> Described:
    kind, _, name = token.owner.partition(":")
    described = Described(
        principal_type=kind, principal_name=name, issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms, max_timestamp=token.max_ms, token_id=token.token_id,
        hmac=hmac,
        renewers=[
            Described.Renewer(principal_type=kind, principal_name=name)
            for kind, _, name in (each.partition(":") for each in token.renewers)
        ],
    )  # fmt: skip
    if version >= 3:
        kind, _, name = token.requester.partition(":")
        described.token_requester_principal_type = kind
        described.token_requester_principal_name = name
    return described
