"""DescribeAcls, CreateAcls, DeleteAcls (29 to 31): answered as by a Kafka without an authorizer.

Clients know this answer: MirrorMaker 2 for one then leaves access rules alone, where an API that
is not served makes its job fail again and again.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.context import RequestContext
from ottla.broker.dispatch import handles
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

REFUSAL: dict[str, Any] = {
    "error_code": int(ErrorCode.SECURITY_DISABLED),
    "error_message": "This broker has no authorizer, everybody may do everything.",
}


@handles(ApiKey.DESCRIBE_ACLS, versions=range(0, 4))
def describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """There are no rules to describe."""
    return DescribeAclsResponse(resources=[], **REFUSAL)


@handles(ApiKey.CREATE_ACLS, versions=range(0, 4))
def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Every rule is refused."""
    return CreateAclsResponse(
        results=[CreateAclsResponse.Result(**REFUSAL) for _ in request.creations]
    )


@handles(ApiKey.DELETE_ACLS, versions=range(0, 4))
def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Every filter is refused."""
    refused = [
        DeleteAclsResponse.FilterResult(matching_acls=[], **REFUSAL) for _ in request.filters
    ]
    return DeleteAclsResponse(filter_results=refused)
