"""DescribeAcls, CreateAcls, DeleteAcls (29 to 31): the ACLs that the authorizer uses (KIP-290).

Without an authorizer these APIs answer SECURITY_DISABLED, as in Kafka. Clients know this answer:
MirrorMaker 2, for instance, then does not copy ACLs. If the APIs were missing, MirrorMaker 2 would
fail again and again.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

from ottla.broker.cluster.metadata_log import for_each
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import CLUSTER_REFUSED, CLUSTER_REFUSED_MESSAGE, Access
from ottla.broker.security.decisions import by_item, on_cluster
from ottla.broker.threads.slices import Slices
from ottla.replication.controller.access import (
    Operation,
    Pattern,
    Permission,
    Resource,
    RuleFilter,
    create_rules,
    delete_rules,
    matching_rules,
)
from ottla.replication.principals import AccessRule
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
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
    "error_message": "This broker has no authorizer (authorizer.class.name is not set) and no ACLs:"
    " every client may do everything.",
}


def _refusal(access: Access) -> dict[str, Any] | None:
    """The error for each change if the client may not change ACLs, else None.

    Changes require ALTER on the cluster.
    """
    if access.authorizer is None:
        return REFUSAL
    if not access.cluster(Operation.ALTER):
        return {"error_code": CLUSTER_REFUSED, "error_message": CLUSTER_REFUSED_MESSAGE}
    return None


@handles(ApiKey.DESCRIBE_ACLS, access=on_cluster(Operation.DESCRIBE))
async def describe_acls(
    request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    """Report the ACLs that match a filter."""
    if context.broker.authorizer is None:
        return DescribeAclsResponse(resources=[], **REFUSAL)
    wanted, slices = _filter(request, context.version), Slices()
    numbers = (
        (wanted.resource_type, Resource), (wanted.pattern_type, Pattern),
        (wanted.operation, Operation), (wanted.permission, Permission),
    )
    if all(number for number, _ in numbers) and any(n not in tuple(kind) for n, kind in numbers):
        rules_found = []            # the filter has a value unknown here: no ACL has this value
    else:
        keyed = [
            (_order(rule), rule)
            async for rule in slices.each(matching_rules(context.broker.image, wanted))
        ]
        keyed.sort(key=itemgetter(0))
        rules_found = [rule for _, rule in keyed]
    made = DescribeAclsResponse.Resource
    return DescribeAclsResponse(
        error_message="",
        resources=[
            made(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    made.Acl(
                        principal=rule.principal,
                        host=rule.host,
                        operation=rule.operation,
                        permission_type=rule.permission,
                    )
                    for rule in rules
                ],
            )
            async for (kind, name, pattern), rules in slices.each(
                (key, list(rules)) for key, rules in groupby(rules_found, key=_pattern)
            )
        ],
    )


def _pattern(rule: AccessRule) -> tuple[int, str, int]:
    return rule.resource_type, rule.resource_name, rule.pattern_type


def _order(rule: AccessRule) -> tuple[Any, ...]:
    return (
        rule.resource_type, rule.resource_name, rule.pattern_type, rule.principal, rule.host,
        rule.operation, rule.permission,
    )


def _filter(request: Any, version: int) -> RuleFilter:
    """The filter of a request; version 0 had no prefixed patterns."""
    return RuleFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter if version >= 1 else int(Pattern.LITERAL),
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


@handles(ApiKey.CREATE_ACLS, access=by_item)
async def create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Create ACLs; they apply to all later requests."""
    made, refusal = CreateAclsResponse.Result, _refusal(context.access)
    if refusal is not None:
        return CreateAclsResponse(results=[made(**refusal) for _ in request.creations])
    slices = Slices()
    wanted = [
        AccessRule(
            each.resource_type,
            each.resource_pattern_type if context.version >= 1 else int(Pattern.LITERAL),
            each.resource_name,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        async for each in slices.each(request.creations)
    ]
    errors = await context.broker.metadata_log.decide_each(
        for_each(wanted), create_rules.steps, wanted
    )
    return CreateAclsResponse(
        results=[
            made(error_code=0, error_message="") if error is None
            else made(error_code=int(error.code), error_message=error.message)
            async for error in slices.each(errors)
        ]
    )


@handles(ApiKey.DELETE_ACLS, access=by_item)
async def delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Delete the ACLs that match the filters, and list the deleted ACLs."""
    made, refusal = DeleteAclsResponse.FilterResult, _refusal(context.access)
    if refusal is not None:
        refused = [made(matching_acls=[], **refusal) for _ in request.filters]
        return DeleteAclsResponse(filter_results=refused)
    slices = Slices()
    filters = [_filter(each, context.version) async for each in slices.each(request.filters)]
    results = await context.broker.metadata_log.decide_each(
        for_each(filters), delete_rules.steps, filters
    )
    return DeleteAclsResponse(
        filter_results=[await _deleted(result, context.version, slices) for result in results]
    )


async def _deleted(
    result: list[AccessRule] | ProtocolError, version: int, slices: Slices
) -> DeleteAclsResponse.FilterResult:
    made = DeleteAclsResponse.FilterResult
    if isinstance(result, ProtocolError):
        return made(
            error_code=int(result.code), error_message=result.message, matching_acls=[]
        )
    rules = []
    async for rule in slices.each(result):
        told = made.MatchingAcl(
            error_code=0,
            error_message=None,
            resource_type=rule.resource_type,
            resource_name=rule.resource_name,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        if version >= 1:
            told.pattern_type = rule.pattern_type
        rules.append(told)
    return made(error_code=0, error_message=None, matching_acls=rules)
