"""Requests that describe and alter settings over the wire."""

from __future__ import annotations

from typing import Any

from ottla.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from tests.broker.running import WireClient


def describe(
    client: WireClient, kind: int, name: str, *keys: str, version: int = 4, **fields: Any
) -> DescribeConfigsResponse.Result:
    resource = DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], **fields)
    [result] = client.call(request, version).results
    return result


def alter(
    client: WireClient, kind: int, name: str, *changes: tuple[str, int, str | None], **fields: Any
) -> int:
    resource = IncrementalAlterConfigsRequest.Resource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.Resource.Config(
                name=key, config_operation=operation, value=value
            )
            for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], **fields)
    [response] = client.call(request, 1).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    assert response.error_message is not None or response.error_code == 0
    return response.error_code
