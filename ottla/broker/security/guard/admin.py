"""Guards of APIs about the cluster, its brokers and settings."""

from __future__ import annotations

from typing import Any

from ottla.broker.security.access import (
    CLUSTER_REFUSED,
    GROUP_REFUSED,
    TOPIC_REFUSED,
    Access,
    split,
)
from ottla.broker.security.decisions import Amend, Answered
from ottla.broker.settings.entries import ResourceType
from ottla.replication.controller.access import Operation
from ottla.wire.apis import APIS, ApiKey
from ottla.wire.messages import (
    AlterClientQuotasResponse,
    AlterUserScramCredentialsResponse,
    DescribeConfigsResponse,
    DescribeLogDirsResponse,
    ElectLeadersResponse,
)

MESSAGE = "Cluster authorization failed."


def guard_rules(request: Any, access: Access) -> None:
    """ALTER of the cluster; each ACL or filter is refused on its own."""
    if access.cluster(Operation.ALTER):
        return
    made: Any = APIS[access.key].response
    refused = {"error_code": CLUSTER_REFUSED, "error_message": MESSAGE}
    if access.key == ApiKey.CREATE_ACLS:
        raise Answered(made(results=[made.Result(**refused) for _ in request.creations]))
    raise Answered(
        made(filter_results=[made.FilterResult(matching_acls=[], **refused)
                             for _ in request.filters])
    )


def guard_election(request: Any, access: Access) -> None:
    """ALTER of the cluster; the refusal is also set for each partition."""
    if access.cluster(Operation.ALTER):
        return
    made = ElectLeadersResponse.ReplicaElectionResult
    results = [
        made(
            topic=topic.topic,
            partition_result=[
                made.PartitionResult(
                    partition_id=index, error_code=CLUSTER_REFUSED, error_message=MESSAGE
                )
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    response = ElectLeadersResponse(replica_election_results=results)
    if access.version >= 1:
        response.error_code = CLUSTER_REFUSED
    raise Answered(response)


def guard_log_dirs(request: Any, access: Access) -> None:
    """DESCRIBE of the cluster; before version 3 the refusal is an empty list."""
    if not access.cluster(Operation.DESCRIBE):
        response = DescribeLogDirsResponse(results=[])
        if access.version >= 3:
            response.error_code = CLUSTER_REFUSED
        raise Answered(response)


def guard_moves(request: Any, access: Access) -> None:
    """ALTER of the cluster."""
    if access.cluster(Operation.ALTER):
        return
    made: Any = APIS[access.key].response
    raise Answered(
        made(
            results=[
                made.Result(
                    topic_name=topic.name,
                    partitions=[
                        made.Result.Partition(partition_index=index, error_code=CLUSTER_REFUSED)
                        for index in topic.partitions
                    ],
                )
                for directory in request.dirs
                for topic in directory.topics
            ]
        )
    )


def guard_quotas(request: Any, access: Access) -> None:
    """ALTER_CONFIGS of the cluster."""
    if access.cluster(Operation.ALTER_CONFIGS):
        return
    made = AlterClientQuotasResponse.Entry
    raise Answered(
        AlterClientQuotasResponse(
            entries=[
                made(
                    error_code=CLUSTER_REFUSED,
                    error_message=MESSAGE,
                    entity=[
                        made.Entity(entity_type=part.entity_type, entity_name=part.entity_name)
                        for part in entry.entity
                    ],
                )
                for entry in request.entries
            ]
        )
    )


def guard_credentials(request: Any, access: Access) -> None:
    """ALTER of the cluster."""
    if access.cluster(Operation.ALTER):
        return
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    raise Answered(
        AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResponse.Result(
                    user=user, error_code=CLUSTER_REFUSED, error_message=MESSAGE
                )
                for user in users
            ]
        )
    )


def _config_refusal(access: Access, operation: int, resource: Any) -> int:
    """The code of a refusal to describe or alter the settings of a resource; 0 where allowed."""
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceType.TOPIC:
        return 0 if access.topic(operation, name) else TOPIC_REFUSED
    if kind == ResourceType.GROUP:
        return 0 if access.group(operation, name) else GROUP_REFUSED
    return 0 if access.cluster(operation) else CLUSTER_REFUSED


def guard_describe_configs(request: Any, access: Access) -> Amend | None:
    """DESCRIBE_CONFIGS of the topic, the group, or the cluster for other resources."""
    codes = [_config_refusal(access, Operation.DESCRIBE_CONFIGS, r) for r in request.resources]
    return _refuse_resources(request, codes, DescribeConfigsResponse.Result, "results")


def guard_alter_configs(request: Any, access: Access) -> Amend | None:
    """ALTER_CONFIGS, likewise."""
    codes = [_config_refusal(access, Operation.ALTER_CONFIGS, r) for r in request.resources]
    made: Any = APIS[access.key].response
    return _refuse_resources(request, codes, made.Response, "responses")


def _refuse_resources(request: Any, codes: list[int], made: Any, field: str) -> Amend | None:
    refusals = [
        made(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            error_code=code,
            error_message="Authorization failed.",
        )
        for resource, code in zip(request.resources, codes, strict=True)
        if code
    ]
    allowed = iter(codes)
    request.resources, _ = split(request.resources, lambda resource: not next(allowed))

    def amend(response: Any) -> None:
        setattr(response, field, [*getattr(response, field), *refusals])

    return amend if refusals else None
