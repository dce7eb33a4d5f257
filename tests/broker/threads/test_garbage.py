"""Garbage collections walk only new objects, and the broker makes no reference cycles that need a
collection."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.threads.garbage import THRESHOLDS, Garbage
from ottla.wire import messages as m
from ottla.wire.errors import ErrorCode
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.waiting import until

WALKED_MAX = (THRESHOLDS[0] + 1) * ((THRESHOLDS[1] + 2) * (THRESHOLDS[2] + 1) + 1)
"""The most objects that a collection may walk. The factors are greater than the thresholds, because
a collection begins only once its threshold is exceeded."""


class Cycle:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def walked() -> Iterator[list[int]]:
    """Yields a list to which each full collection adds the number of objects that it walks."""
    thresholds, enabled, found = gc.get_threshold(), gc.isenabled(), list[int]()

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            found.append(len(gc.get_objects()))

    gc.collect()
    try:
        gc.callbacks.append(count)
        yield found
    finally:
        gc.callbacks.remove(count)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        if not enabled:
            gc.disable()


def test_no_collection_walks_what_lives_long(walked: list[int]) -> None:
    garbage = Garbage()
    garbage.begin()
    try:
        state: list[list[Any]] = []
        for _ in range(30 * WALKED_MAX):
            state.append([state])
        assert len(walked) > 10
        assert max(walked) <= WALKED_MAX
    finally:
        garbage.end()


def test_a_young_cycle_is_found(walked: list[int]) -> None:
    garbage = Garbage()
    garbage.begin()
    try:
        cycle = Cycle()
        gone = weakref.ref(cycle)
        del cycle
        state = [[each] for each in range(2 * THRESHOLDS[0])]
        assert gone() is None, state[:1]
    finally:
        garbage.end()


def test_old_cycles_are_found_once_the_process_has_grown(walked: list[int]) -> None:
    garbage = Garbage(growth_blocks_min=10_000)
    garbage.begin()
    try:
        cycle = Cycle()
        gone = weakref.ref(cycle)
        gc.collect()                    # it survives, and later collections skip it
        del cycle
        gc.collect()
        assert gone() is not None
        garbage.everything_above = sys.getallocatedblocks() + 1000
        state = [[each] for each in range(2000)]
        gc.collect()
        assert gone() is None, state[:1]
        assert garbage.everything_above > sys.getallocatedblocks()
        before = len(walked)
        gc.collect()
        assert walked[before] < 5000    # this collection again walks only the newest objects
    finally:
        garbage.end()


def _is_found(client: WireClient, find: m.FindCoordinatorRequest) -> bool:
    return client.call(find, 4).coordinators[0].error_code == 0


def _refused(client: WireClient) -> list[int]:
    """Send requests that are refused, in various ways; returns the error codes."""
    made = m.InitProducerIdRequest
    who = {"transactional_id": "t", "producer_id": -1, "producer_epoch": -1}
    for kind, key in ((0, "g"), (1, "t")):
        find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        until(partial(_is_found, client, find), f"the coordinator of {key}")
    begin = made(transaction_timeout_ms=60_000, **who)
    until(lambda: client.call(begin, 4).error_code == 0, "a producer id")
    codes = [client.call(made(transaction_timeout_ms=-1, **who), 4).error_code]
    entry = m.AlterClientQuotasRequest.Entry
    limit = entry.Op(key="producer_byte_rate", value=0.5, remove=False)
    quotas = m.AlterClientQuotasRequest(entries=[
        entry(entity=[entry.Entity(entity_type="user", entity_name="u")], ops=[limit]),
        entry(entity=[entry.Entity(entity_type="ip", entity_name="no address")], ops=[]),
    ], validate_only=False)
    codes += [each.error_code for each in client.call(quotas, 1).entries]
    asked = m.CreateTopicsRequest.Topic
    topic = asked(name="no/name", num_partitions=1, replication_factor=1)
    codes += [each.error_code for each in client.call(
        m.CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5).topics]
    resource = m.IncrementalAlterConfigsRequest.Resource
    change = resource.Config(name="retention.ms", config_operation=0, value="x")
    codes += [each.error_code for each in client.call(m.IncrementalAlterConfigsRequest(resources=[
        resource(resource_type=2, resource_name="w", configs=[change])]), 1).responses]
    joined = m.JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
        protocol_type="consumer", protocols=[
            m.JoinGroupRequest.Protocol(name="range", metadata=b"")])
    codes.append(client.call(joined, 9).error_code)
    committed = m.OffsetCommitRequest
    codes += [
        each.error_code for topic in client.call(committed(
            group_id="g", generation_id_or_member_epoch=3, member_id="nobody", topics=[
                committed.Topic(name="w", partitions=[committed.Topic.Partition(
                    partition_index=0, committed_offset=1)])]), 8).topics
        for each in topic.partitions
    ]
    return codes


def test_refusals_leave_nothing_that_only_a_collection_frees(
    tmp_path: Path, walked: list[int]
) -> None:
    with RunningBroker(tmp_path) as running, WireClient(running.address) as client:
        create(client, "w", 1)
        _refused(client)                # modules are imported at their first request
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            codes = _refused(client)
            gc.collect()
            found = {f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert all(codes), codes
    assert ErrorCode.MEMBER_ID_REQUIRED in codes, codes
    assert not {each for each in found if each.startswith("ottla.") or "frame" in each}, found
