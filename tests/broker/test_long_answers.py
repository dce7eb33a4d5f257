"""Long answers are encoded in parts. Between the parts, the loop serves other clients."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.broker import dispatch
from ottla.broker.threads.slices import Slices
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    ApiVersionsRequest,
    DescribeConfigsRequest,
    Message,
)
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.waiting import until


class CountedSlices(Slices):
    """Slices that pause after every part of an encoding, and count the pauses."""

    pauses = 0

    @property
    def over(self) -> bool:
        return True

    async def pause(self) -> None:
        CountedSlices.pauses += 1
        await super().pause()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> type[CountedSlices]:
    CountedSlices.pauses = 0
    monkeypatch.setattr(dispatch, "Slices", CountedSlices)
    return CountedSlices


def describe(count: int) -> Message:
    resource = DescribeConfigsRequest.Resource(
        resource_type=2, resource_name="t", configuration_keys=None)
    return DescribeConfigsRequest(
        resources=[resource] * count, include_synonyms=True, include_documentation=True)


def test_others_are_served_while_a_long_answer_is_encoded(
    tmp_path: Path, pauses: type[CountedSlices]
) -> None:
    with RunningBroker(tmp_path) as running, WireClient(running.address) as client:
        create(client, "t")
        one = client.call(describe(1), 4)
        client.call(ApiVersionsRequest(), 0)
        assert pauses.pauses == 0                   # a short answer is encoded at once
        many = client.call(describe(100), 4)
        assert many.results == one.results * 100
        size = len(many.encode(4))
        assert size > 400_000
        assert pauses.pauses > size // (2 * 16384)
        assert client.call(describe(1), 4) == one   # the connection still works


def test_the_audit_reads_a_long_answer_that_was_encoded_in_parts(
    tmp_path: Path, pauses: type[CountedSlices], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.audit")
    entry = AlterClientQuotasRequest.Entry
    limit = entry.Op(key="producer_byte_rate", value=1000.0, remove=False)
    request = AlterClientQuotasRequest(validate_only=False, entries=[
        entry(entity=[entry.Entity(entity_type="user", entity_name=f"u{n}")], ops=[limit])
        for n in range(2500)
    ])
    with RunningBroker(tmp_path) as running, WireClient(running.address) as client:
        answer = client.call(request, 1)
        assert [each.error_code for each in answer.entries] == [0] * 2500
        assert pauses.pauses
        until(lambda: any("1500 more: not listed" in line for line in caplog.messages), "the audit")
        assert any("u7" in line and line.endswith("done") for line in caplog.messages)
