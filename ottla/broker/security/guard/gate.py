"""The guards of all APIs, in one table; an API that is served without one is a bug found at start.
"""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.dispatch import HANDLERS
from ottla.broker.security.guard import admin, groups, topics, transactions
from ottla.broker.security.guard.access import GUARDS, Access, Amend, Answered
from ottla.wire.apis import ApiKey
from ottla.wire.structs import Message

AREAS = (admin, groups, topics, transactions)
ELSEWHERE = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""Asked topic by topic where they are served."""
FREE = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""What one may send before anybody knows who one is."""


def require_guards() -> None:
    """Raise AssertionError where an API is served that nobody guards."""
    open_doors = HANDLERS.keys() - GUARDS.keys() - ELSEWHERE - FREE
    assert not open_doors, f"without a guard: {sorted(open_doors)}"


def check(request: object, context: RequestContext) -> Amend | Message | None:
    """Ask the authorizer about a request that was decoded.

    The result is None, what the handler's response is to be amended by, or the response itself;
    raises the ProtocolError that the whole request is refused with.
    """
    if context.api_key in FREE:
        return None
    try:
        return GUARDS[context.api_key](request, Access(context))
    except Answered as answer:
        response: Message = answer.response
        return response
