"""The topic that records are sent to.

Missing partitions are reported before a record is sent. A missing topic is created for its first
record, so a command that refuses its input creates no topic.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, NotAllowed, Refused, check, no_partition
from ottla.client.similar_names import similar
from ottla.tools.admin import configs, topics
from ottla.tools.stream.reader import MAY_COME
from ottla.wire.errors import ErrorCode
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

TOPIC_SECONDS = 5.0
"""How long the creation of a topic may take."""
AUTO_CREATE = "auto.create.topics.enable"


class TargetTopic:
    """A topic's name and its number of partitions, which is None until the topic exists."""

    def __init__(self, cluster: ClusterClient, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.partitions: int | None = None

    def look(self, partition: int | None) -> None:
        """Raises ClientError if records cannot be sent to this partition. Does not create the
        topic. If the topic is missing and the brokers create topics for producers, the first record
        will create it."""
        [found] = self.cluster.metadata([self.name]).topics
        if not found.error_code:
            self.partitions = len(found.partitions)
        is_new = found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not is_new or not creates_topics(self.cluster):
            self.check(partition)
        elif partition:
            count = topics.create(self.cluster, self.name, dry_run=True).num_partitions
            if partition >= count:
                raise ClientError(
                    f"topic {self.name!r} does not exist, and a new one would have"
                    f" {counted(count, 'partition')}, but a record is for partition {partition}:"
                    f" create the topic first, as with ottla topic create {self.name}"
                    f" --partitions {partition + 1}"
                )

    def check(self, partition: int | None) -> None:
        """Raises ClientError for a partition that the topic lacks; creates the topic if needed."""
        if self.partitions is None:
            self.partitions = existing(self.cluster, self.name)
        if partition is not None and not 0 <= partition < self.partitions:
            raise ClientError(no_partition(self.name, partition, self.partitions))

    def check_copy(self, origin: str | None, needed: int | None) -> None:
        """Raises ClientError if this topic lacks a partition that the records name. They need
        `needed` partitions; for a pipe this is None, and they need as many as their topic `origin`
        has, if it is in this cluster. A new topic gets as many as `origin`."""
        origin_has = 0
        if origin is not None and origin != self.name:
            [found] = self.cluster.metadata([origin]).topics
            origin_has = 0 if found.error_code else len(found.partitions)
        if self.partitions is None:
            if needed is None and not origin_has:
                raise ClientError(
                    f"topic {self.name!r} does not exist, and records from a pipe may name any"
                    f" partition: create it first, as with ottla topic create {self.name}"
                    " --partitions 3, or let keys choose the partitions with --any-partition"
                )
            self.partitions = existing(self.cluster, self.name, max(origin_has, needed or 0))
        least = origin_has if needed is None else needed
        if least > self.partitions:
            has = f"{origin} has" if least == origin_has else "the records need"
            raise ClientError(
                f"{has} {counted(least, 'partition')}, but {self.name} has {self.partitions}: add"
                f" partitions to {self.name}, or let keys choose them with --any-partition"
            )


def creates_topics(cluster: ClusterClient) -> bool:
    """Whether brokers create topics for producers; True if the user may not see settings."""
    try:
        broker = str(min(cluster.live()))
        settings = configs.describe(cluster, configs.BROKER, broker, synonyms=False)
    except Refused:
        return True
    return any(one.name == AUTO_CREATE and one.value == "true" for one in settings)


def existing(cluster: ClusterClient, name: str, partitions: int = 0) -> int:
    """The number of a topic's partitions. If brokers create topics for producers, a missing topic
    is created: with `partitions` if this is given, else as the broker decides. Reports the creation
    on stderr, since the name may be mistyped. Raises ClientError after TOPIC_SECONDS; a producer
    would wait for a minute."""
    deadline = time.monotonic() + TOPIC_SECONDS
    create = False
    while True:
        [found] = cluster.metadata([name], create=create and not partitions).topics
        if not found.error_code:
            count = len(found.partitions)
            if create:
                others = [one.name for one in cluster.metadata().topics if one.name != name]
                print(f"topic {name!r} is new: created with {counted(count, 'partition')}"
                      f"{similar(name, others)}", file=sys.stderr)
            return count
        late = time.monotonic() > deadline
        if late and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            near = similar(name, [one.name for one in cluster.metadata().topics])
            raise ClientError(
                f"topic {name!r} does not exist{near}; the brokers create no topics"
                f" ({AUTO_CREATE}): create it first, as with ottla topic create {name}")
        if create and found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise _may_not_create(cluster, name)
        if late or found.error_code not in MAY_COME:
            check(found.error_code, what=f"topic {name!r}")
        if create or found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            time.sleep(0.1)
        elif partitions and creates_topics(cluster):
            try:
                topics.create(cluster, name, partitions=partitions)
            except Refused as refused:
                if refused.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise
                raise _may_not_create(cluster, name) from refused
        create = create or found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _may_not_create(cluster: ClusterClient, name: str) -> NotAllowed:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return NotAllowed(f"topic {name!r} does not exist, and this user may not create it", code,
                      cluster.security.principal, "create", f"topic/{name}")
