"""Access rules where there is no authorizer: Kafka's refusal, in every version."""

from __future__ import annotations

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.broker.running import WireClient

ANY, TOPIC, LITERAL, ALL, ALLOW = 1, 2, 3, 2, 3


@pytest.mark.parametrize("version", range(4))
def test_without_an_authorizer_access_rules_are_refused(client: WireClient, version: int) -> None:
    described = client.call(
        DescribeAclsRequest(resource_type_filter=ANY, operation=ANY, permission_type=ANY), version
    )
    assert (described.error_code, described.resources) == (ErrorCode.SECURITY_DISABLED, [])
    rule = CreateAclsRequest.Creation(
        resource_type=TOPIC,
        resource_name="t",
        resource_pattern_type=LITERAL,
        principal="User:a",
        host="*",
        operation=ALL,
        permission_type=ALLOW,
    )
    created = client.call(CreateAclsRequest(creations=[rule, rule]), version)
    assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    wanted = DeleteAclsRequest.Filter(resource_type_filter=ANY, operation=ANY, permission_type=ANY)
    deleted = client.call(DeleteAclsRequest(filters=[wanted]), version)
    assert [each.error_code for each in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]
