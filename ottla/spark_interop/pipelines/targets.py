"""Targets: the topics that pipelines write. A pipeline creates a target like the source topic, or
checks it before it writes the first row.

Records keep their timestamps. A topic whose retention is shorter than their age would delete them
as soon as they are written. So such a topic is refused. If the pipeline creates the topic, it sets
unlimited retention instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ottla.client.copied_settings import NOT_COPIED
from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import DataLost, PipelineError
from ottla.spark_interop.pipelines import query_run, transactional
from ottla.spark_interop.pipelines.files import Readable
from ottla.wire.wording import counted

# Copied even if they are the source cluster's defaults: the destination's defaults may differ.
ALWAYS_COPIED = ("cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes")
RECORD_BYTES_MAX = 2**31 - 1  # the highest max.message.bytes that a broker accepts
HEADER_BYTES = 64 * 1024  # a pipeline may add this much to a record of the maximum size
FOR_EVER = -1
RetentionCheck = Callable[[int], bool]
"""Returns whether some records to be written are older than a timestamp (epoch ms)."""


def settings_like(cluster: Cluster, topic: str) -> dict[str, str]:
    """The settings for a copy of a topic."""
    settings = cluster.settings(topic)
    copied = {
        name: setting.value
        for name, setting in settings.items()
        if (setting.own or name in ALWAYS_COPIED) and name not in NOT_COPIED
    }
    limit = int(copied["max.message.bytes"]) + HEADER_BYTES
    copied["max.message.bytes"] = str(min(limit, RECORD_BYTES_MAX))
    return {name: copied[name] for name in sorted(copied)}


def prepare(
    cluster: Cluster,
    topic: str,
    partitions: int,
    like: Mapping[str, str],
    has_older: RetentionCheck | None,
    *,
    create: bool = True,
) -> None:
    """Creates a topic with these settings, or checks one that exists.

    Raises PipelineError if the topic is missing (unless `create`); if it has too few partitions; or
    if it is compacted although `like` has no compaction.

    `has_older` is None for records that get the present time. For other records, this also raises
    PipelineError if the retention is below their age, or if the topic replaces timestamps.
    """
    if not cluster.exists(topic):
        if create:
            config = dict(like)
            if has_older is not None and _deletes(config, has_older):
                config["retention.ms"] = str(FOR_EVER)
            cluster.create(topic, partitions, config)
            return
        raise_missing(cluster, topic)
    check_partitions(cluster, topic, partitions)
    settings = {name: setting.value for name, setting in cluster.settings(topic).items()}
    policy = settings["cleanup.policy"]
    if "compact" in policy and "compact" not in like.get("cleanup.policy", ""):
        raise PipelineError(
            f"{topic} has cleanup.policy={policy}, which would delete all but the newest record of"
            f" each key. Set cleanup.policy of {topic} to delete, or name another topic"
        )
    if has_older is None:
        return
    if settings["message.timestamp.type"] == "LogAppendTime":
        raise PipelineError(
            f"{topic} has message.timestamp.type=LogAppendTime, but records must keep their"
            f" timestamps: set message.timestamp.type of {topic} to CreateTime, or name another"
            " topic"
        )
    if _deletes(settings, has_older):
        raise PipelineError(
            f"{topic} keeps records for {settings['retention.ms']} ms, and this run writes older "
            f"records, which would be deleted at once. Set retention.ms of {topic} to a longer "
            "time or to -1, or name another topic"
        )


def raise_missing(cluster: Cluster, topic: str) -> None:
    """Raises PipelineError for a missing topic that the run was not told to create."""
    try:
        cluster.partitions(topic)
    except PipelineError as error:
        said = f"{error} " if str(error).endswith("?") else f"{error}; "
        raise PipelineError(f"{said}--create (in Python create=True) creates {topic}") from error


def check_partitions(cluster: Cluster, topic: str, needed: int) -> None:
    """Raises PipelineError if a topic has too few partitions for the records to be written."""
    there = len(cluster.partitions(topic))
    if there < needed:
        raise PipelineError(
            f"{topic} has {counted(there, 'partition')}, but needs at least {needed}: records"
            f" keep their partition number, and this run writes to partition {needed - 1}"
        )


def _deletes(settings: Mapping[str, str], has_older: RetentionCheck) -> bool:
    """Whether retention would delete records of this run."""
    retention_ms = int(settings["retention.ms"])
    if "delete" not in settings["cleanup.policy"] or retention_ms < 0:
        return False
    oldest_ms = int(time.time() * 1000) - retention_ms
    return oldest_ms > 0 and has_older(oldest_ms)


def older_in_topic(cluster: Cluster, topic: str, begin: Mapping[int, int]) -> RetentionCheck:
    """A check of a topic's records. In each partition, records from the partition's offset in
    `begin` on are checked; if `begin` has no such offset, all records are checked."""

    def has_older(timestamp_ms: int) -> bool:
        starts, newer = cluster.starts(topic), cluster.at_time(topic, timestamp_ms)
        return any(newer[p] > max(start, begin.get(p, 0)) for p, start in starts.items())

    return has_older


def read_up_to(into: transactional.Destination, checkpoint: Readable) -> dict[int, int]:
    """By partition of the source, the offset up to which earlier runs have read its records.

    Positions tell only of written records. The checkpoint's last completed batch may have ended
    later: after markers, aborted records, or records that a mirror leaves out.
    """
    done = transactional.positions(into)
    last = query_run.newest(checkpoint, "", "commits")
    ended = {} if last is None else query_run.offsets_in(checkpoint, f"offsets/{last}")
    return done | {int(p): max(end, done.get(int(p), 0)) for p, end in ended.items()}


def refuse_unread(
    cluster: Cluster, topic: str, into: transactional.Destination, checkpoint: Readable
) -> None:
    """Raises DataLost if a run without a checkpoint would continue after deleted offsets that
    perhaps no run has read. Positions tell only of written records: an earlier run may have read
    aborted records or markers after them. With a checkpoint, Spark notices such a gap itself."""
    if query_run.newest(checkpoint, "", "offsets") is not None:
        return
    done, starts = transactional.begin(into).positions, cluster.starts(topic)
    gaps = [(p, at, starts[p]) for p, at in sorted(done.items()) if at < starts.get(p, 0)]
    if gaps:
        number, at, start = gaps[0]
        more = f" (and of {counted(len(gaps) - 1, 'more partition')})" if len(gaps) > 1 else ""
        raise DataLost(
            f"the offsets {at} to {start - 1} of partition {number} of {topic}{more} were deleted,"
            " and this pipeline may not have read them: its checkpoint, which would tell, is"
            f" missing. {query_run.ALLOW_GAPS}"
        )
