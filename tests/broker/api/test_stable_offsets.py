"""OffsetFetch with require_stable: answered only by a broker that is still the coordinator."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.api.group_offsets import offset_fetch
from ottla.groups.offset_requests import Commit, OffsetToCommit
from ottla.replication.metadata import MetadataImage, PartitionState, TopicCreated
from ottla.wire.errors import ErrorCode, NotLeaderOrFollower
from ottla.wire.messages import OffsetFetchRequest
from tests.groups.bench import Workbench

GROUP, TOPIC, TOPIC_ID = "g", "t", b"t" * 16
IMAGE = MetadataImage.empty("c").apply([
    TopicCreated(TOPIC, TOPIC_ID, (PartitionState(1, 0, (1,), (1,), 0),))
])


class Everything:
    """Access checks that allow everything."""

    def group(self, *asked: object) -> bool:
        return True

    async def divide(self, items: list[Any], allowed: object) -> tuple[list[Any], list[Any]]:
        return items, []


def fetched(bench: Workbench, stable: bool, version: int) -> int | ErrorCode:
    """The committed offset, or the error."""
    async def asked() -> Any:
        groups = SimpleNamespace(runtime=bench.runtime, loop=asyncio.get_running_loop())
        broker = SimpleNamespace(image=IMAGE, coordinators=SimpleNamespace(groups=groups))
        access = Everything()
        access.quiet = access                                       # type: ignore[attr-defined]
        context = SimpleNamespace(version=version, access=access, broker=broker)
        made: Any = OffsetFetchRequest if version < 8 else OffsetFetchRequest.Group
        group = made(group_id=GROUP, topics=[made.Topic(name=TOPIC, partition_indexes=[0])])
        request = group if version < 8 else OffsetFetchRequest(groups=[group])
        request.require_stable = stable
        answer: Any = await offset_fetch(request, cast(Any, context))
        return answer if version < 8 else answer.groups[0]

    answer = asyncio.run(asked())
    if answer.error_code:
        return ErrorCode(answer.error_code)
    return int(answer.topics[0].partitions[0].committed_offset)


@pytest.mark.parametrize("version", [7, 8, 9])
def test_a_coordinator_that_was_replaced_without_knowing_it_returns_no_stable_offsets(
    version: int,
) -> None:
    """Its successor may have a later offset. A transactional consumer that begins from the older
    offset would process records twice."""
    bench = Workbench(replicated=True)
    request = Commit(GROUP, [OffsetToCommit(TOPIC, 0, 5, -1, "", TOPIC_ID)])
    assert bench.ask(lambda shard, result: shard.commit(request, result)) == [ErrorCode.NONE]
    assert fetched(bench, True, version) == 5
    bench.refusal = NotLeaderOrFollower("another broker leads the partition")
    assert fetched(bench, True, version) is ErrorCode.NOT_COORDINATOR
    assert fetched(bench, False, version) == 5, "other consumers may see an older offset"
