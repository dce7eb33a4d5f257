"""DescribeLogDirs (key 35): which partitions are in which log directory, and how large they are.

AlterReplicaLogDirs (key 34) moves partitions to another log directory.
"""

from __future__ import annotations

import os
import shutil

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

UNKNOWN_BYTES = -1


@handles(ApiKey.DESCRIBE_LOG_DIRS, access=by_item)
async def describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Report every log directory with the requested partitions in it; null requests all partitions.

    Requires DESCRIBE on the cluster. Before version 3, clients without it get an empty list.
    """
    if not context.access.cluster(Operation.DESCRIBE):
        code = CLUSTER_REFUSED if context.version >= 3 else 0
        return DescribeLogDirsResponse(error_code=code, results=[])
    replicas = context.broker.replicas
    storage = replicas.storage
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    homes: dict[str, dict[str, list[Partition]]] = {each.path: {} for each in storage.directories}
    slices = Slices()
    async for partition in slices.each(list(replicas)):
        key = partition.topic, partition.index
        if (wanted is None or key in wanted) and key in storage.homes:
            topics = homes[storage.homes[key].path]
            topics.setdefault(partition.topic, []).append(partition)
    moves = [move for key, move in storage.moves.items() if wanted is None or key in wanted]
    return DescribeLogDirsResponse(
        results=[
            await _described(
                each, homes[each.path], [move for move in moves if move.target is each],
                storage.placement.is_cordoned(each.path), slices,
            )
            for each in storage.directories
        ]
    )


async def _described(
    directory: LogDirectory, topics: dict[str, list[Partition]], moves: list[Move],
    cordoned: bool, slices: Slices,
) -> DescribeLogDirsResponse.Result:
    result = DescribeLogDirsResponse.Result(
        log_dir=os.path.abspath(directory.path), is_cordoned=cordoned
    )
    if directory.offline is not None:
        result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
        return result
    result.total_bytes, result.usable_bytes = _space(directory.path)
    if directory.space.full:
        result.usable_bytes = 0         # writes are refused, also if a quota causes it
    result.topics = [
        DescribeLogDirsResponse.Result.Topic(
            name=name,
            partitions=[
                DescribeLogDirsResponse.Result.Topic.Partition(
                    partition_index=partition.index,
                    partition_size=partition.log.size_bytes,
                    offset_lag=_unreadable(partition),
                )
                async for partition in slices.each(partitions)
            ],
        )
        for name, partitions in topics.items()
    ]
    result.topics += [_future(move) for move in moves]
    return result


def _future(move: Move) -> DescribeLogDirsResponse.Result.Topic:
    """Return the entry of a partition that is being copied into the directory."""
    made = DescribeLogDirsResponse.Result.Topic
    copy = made.Partition(
        partition_index=move.key[1],
        partition_size=move.size_bytes,
        offset_lag=move.offset_lag,
        is_future_key=True,
    )
    return made(name=move.key[0], partitions=[copy])


def _unreadable(partition: Partition) -> int:
    """The number of offsets behind a damaged part of the log, which clients cannot read. It is 0 if
    the log is not damaged. It is also 0 after a restart: a damaged log then ends where the damage
    begins. Kafka reports the lag of a replica in this field.
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
    # The metadata log has a log directory, too, but clients may not move it.
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
