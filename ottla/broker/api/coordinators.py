"""FindCoordinator (key 10): which broker looks after a group or a transactional id."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.broker.dispatch import handles
from ottla.wire.apis import ApiKey
from ottla.wire.errors import CoordinatorNotAvailable, InvalidRequest, ProtocolError
from ottla.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION, SHARE = 0, 1, 2


@handles(ApiKey.FIND_COORDINATOR, versions=range(0, 7))
def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Answer for one key below version 4, for many from there on."""
    if context.version < 4:
        error = _find(request.key_type, request.key)
        return FindCoordinatorResponse(
            error_code=int(error.code), error_message=error.message, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1,
                error_code=int(error.code), error_message=error.message,
            )
            for key in request.coordinator_keys
            for error in (_find(request.key_type, key),)
        ]
    )


def _find(key_type: int, key: str) -> ProtocolError:
    if key_type not in (GROUP, TRANSACTION, SHARE):
        return InvalidRequest(f"there are no coordinators of type {key_type}")
    return CoordinatorNotAvailable(f"nobody coordinates {key!r} yet; ask again")
