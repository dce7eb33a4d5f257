"""Quotas of users, clients and addresses (KIP-546): DescribeClientQuotas (key 48),
AlterClientQuotas (49).

`broker/quotas` enforces these quotas.
"""

from __future__ import annotations

from ottla.broker.cluster.metadata_log import for_each
from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import CLUSTER_REFUSED, CLUSTER_REFUSED_MESSAGE
from ottla.broker.security.decisions import by_item
from ottla.broker.threads.slices import Slices
from ottla.replication.controller.access import Operation
from ottla.replication.controller.quotas import (
    Component,
    LimitChange,
    QuotaAlteration,
    alter_quotas,
    matching_quotas,
)
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

Altered = AlterClientQuotasResponse.Entry
Described = DescribeClientQuotasResponse.Entry


@handles(ApiKey.DESCRIBE_CLIENT_QUOTAS, access=by_item)
async def describe_client_quotas(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Report the limits of the entities that match a filter.

    Requires DESCRIBE_CONFIGS on the cluster.
    """
    components = [
        Component(each.entity_type, each.match_type, each.match) for each in request.components
    ]
    slices = Slices()
    try:
        context.access.need_cluster(Operation.DESCRIBE_CONFIGS)
        matching = matching_quotas(context.broker.image, components, request.strict)
        entries = [each async for each in slices.each(matching)]
    except ProtocolError as error:
        return DescribeClientQuotasResponse(
            error_code=int(error.code), error_message=error.message, entries=None
        )
    return DescribeClientQuotasResponse(
        error_code=0,
        error_message="",
        entries=[
            Described(
                entity=[Described.Entity(entity_type=kind, entity_name=name)
                        for kind, name in entity],
                values=[Described.Value(key=key, value=value) for key, value in limits.items()],
            )
            async for entity, limits in slices.each(entries)
        ],
    )


@handles(ApiKey.ALTER_CLIENT_QUOTAS, access=by_item)
async def alter_client_quotas(
    request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    """Set and remove limits of entities. For each entity, either all changes take effect or none.

    Requires ALTER_CONFIGS on the cluster.
    """
    if not context.access.cluster(Operation.ALTER_CONFIGS):
        return _refused(request)
    slices = Slices()
    alterations = [
        QuotaAlteration(
            list(_named(entry).items()),
            [LimitChange(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        async for entry in slices.each(request.entries)
    ]
    errors = await context.broker.metadata_log.decide_each(
        for_each(alterations),
        alter_quotas.steps, alterations, request.validate_only,
    )
    return AlterClientQuotasResponse(
        entries=[
            Altered(
                error_code=0 if error is None else int(error.code),
                error_message=None if error is None else error.message,
                entity=[
                    Altered.Entity(entity_type=kind, entity_name=name)
                    for kind, name in _named(entry).items()
                ],
            )
            async for entry, error in slices.each(zip(request.entries, errors, strict=True))
        ]
    )


def _refused(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            Altered(
                error_code=CLUSTER_REFUSED,
                error_message=CLUSTER_REFUSED_MESSAGE,
                entity=[
                    Altered.Entity(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _named(entry: AlterClientQuotasRequest.Entry) -> dict[str, str | None]:
    """The entity; if a type is named twice, the last one wins."""
    return {part.entity_type: part.entity_name for part in entry.entity}
