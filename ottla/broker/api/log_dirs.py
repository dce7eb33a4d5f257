"""DescribeLogDirs (key 35): which partitions are in which log directory, and how large they are.

AlterReplicaLogDirs (key 34) moves partitions to another log directory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import CLUSTER_REFUSED
from ottla.broker.security.decisions import by_item
from ottla.broker.threads.slices import Slices
from ottla.log.storage.log_directory import LogDirectory
from ottla.log.storage.move_transfer import Move
from ottla.replication.controller.access import Operation
from ottla.replication.partition import Partition
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

if TYPE_CHECKING:
    from ottla.replication.replicas import Replicas

UNKNOWN_BYTES = -1
QUICK_REPLICAS = 8
"""How many replicas are described between two looks at the clock."""
Entry = DescribeLogDirsResponse.Result.Topic


@handles(ApiKey.DESCRIBE_LOG_DIRS, access=by_item)
async def describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Report every log directory with the requested partitions in it; null means all partitions.

    Requires DESCRIBE on the cluster. Before version 3, clients without it get an empty list.
    """
    if not context.access.cluster(Operation.DESCRIBE):
        code = CLUSTER_REFUSED if context.version >= 3 else 0
        return DescribeLogDirsResponse(error_code=code, results=[])
    storage = context.broker.replicas.storage
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    found = await _replicas(context.broker.replicas, wanted)
    moves = [move for key, move in storage.moves.items() if wanted is None or key in wanted]
    return DescribeLogDirsResponse(
        results=[
            _described(
                each, found[each.path].values(), [move for move in moves if move.target is each],
                storage.placement.is_cordoned(each.path),
            )
            for each in storage.directories
        ]
    )


async def _replicas(
    replicas: Replicas, wanted: Container[tuple[str, int]] | None
) -> dict[str, dict[str, Entry]]:
    """The wanted replicas by directory and topic. Optimized, because tools ask for 100,000
    replicas."""
    storage, slices = replicas.storage, Slices()
    found: dict[str, dict[str, Entry]] = {each.path: {} for each in storage.directories}
    for place, partition in enumerate(replicas):
        if not place % QUICK_REPLICAS and slices.over:
            await slices.pause()
        key = partition.topic, partition.index
        home = storage.homes.get(key)
        if home is None or (wanted is not None and key not in wanted):
            continue
        replica = Entry.Partition(partition_index=partition.index)
        replica.partition_size = partition.log.size_bytes
        replica.offset_lag = _unreadable(partition)
        topics = found[home.path]
        if partition.topic not in topics:
            topics[partition.topic] = Entry(name=partition.topic)
        topics[partition.topic].partitions.append(replica)
    return found


def _described(
    directory: LogDirectory, topics: Iterable[Entry], moves: list[Move], cordoned: bool
) -> DescribeLogDirsResponse.Result:
    result = DescribeLogDirsResponse.Result(
        log_dir=os.path.abspath(directory.path), is_cordoned=cordoned
    )
    if directory.offline is not None:
        result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
        return result
    result.total_bytes, result.usable_bytes = _space(directory.path)
    if directory.space.full:
        result.usable_bytes = 0         # writes fail, perhaps because of a quota
    result.topics = [*topics, *map(_future, moves)]
    return result


def _future(move: Move) -> Entry:
    """Return the entry of a partition that is being copied into the directory."""
    copy = Entry.Partition(
        partition_index=move.key[1],
        partition_size=move.size_bytes,
        offset_lag=move.offset_lag,
        is_future_key=True,
    )
    return Entry(name=move.key[0], partitions=[copy])


def _unreadable(partition: Partition) -> int:
    """The number of offsets that clients cannot read, because they lie between the beginning of a
    damage and the end of the log. It is 0 if the log is not damaged. It is also 0 after a restart,
    since a damaged log then ends where the damage begins. The number is reported as `offset_lag`;
    Kafka reports the lag of a replica in that field.
    """
    damage = partition.log.damage
    return 0 if damage is None else max(0, partition.log.log_end_offset - damage.end_offset)


def _space(path: str) -> tuple[int, int]:
    """The size of the file system, and the bytes that the broker may still write (KIP-827)."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return UNKNOWN_BYTES, UNKNOWN_BYTES
    return usage.total, usage.free


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS, access=by_item)
def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Start to move partitions. The answer is sent at once; DescribeLogDirs shows the progress.

    Requires ALTER on the cluster.
    """
    if not context.access.cluster(Operation.ALTER):
        return _refused_moves(request)
    codes: dict[str, dict[int, ErrorCode]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            if not topic.partitions:
                continue
            told = codes.setdefault(topic.name, {})
            for index in topic.partitions:
                told[index] = _placed(context, wanted.path, topic.name, index)
    made = AlterReplicaLogDirsResponse.Result
    return AlterReplicaLogDirsResponse(
        results=[
            made(
                topic_name=name,
                partitions=[
                    made.Partition(partition_index=index, error_code=int(code))
                    for index, code in told.items()
                ],
            )
            for name, told in codes.items()
        ]
    )


def _refused_moves(request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    made = AlterReplicaLogDirsResponse.Result
    return AlterReplicaLogDirsResponse(
        results=[
            made(
                topic_name=topic.name,
                partitions=[
                    made.Partition(partition_index=index, error_code=CLUSTER_REFUSED)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _placed(context: RequestContext, path: str, topic: str, index: int) -> ErrorCode:
    storage = context.broker.replicas.storage
    paths = {os.path.abspath(each.path): each for each in storage.directories}
    directory = paths.get(path)
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if directory.offline is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    here = storage.homes.get((topic, index)) is directory
    if storage.placement.is_cordoned(directory.path) and not here:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    # The metadata log is in a log directory, too, but clients may not move this log.
    if context.broker.replicas.partition(topic, index) is None:
        return _why_absent(context, topic, index)
    if (topic, index) not in storage.logs:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return context.broker.moving.put((topic, index), directory)


def _why_absent(context: RequestContext, topic: str, index: int) -> ErrorCode:
    """The error for a partition without a replica here. The replica may be about to be created:
    kafka-reassign-partitions requests a directory right after it has started a reassignment. The
    tool repeats its request only after REPLICA_NOT_AVAILABLE."""
    code = context.broker.replicas.absent(topic, index).code
    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return code
