"""The topic that records are sent to.

If a record names a partition that does not exist, the command reports this instead of sending the
record. A missing topic is not created before its first record is ready to be sent. So no topic is
created if the input is refused before that, for example because its first line is invalid.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.errors import ClientError, NotAllowed, Refused, check, no_partition
from ottla.client.similar_names import similar
from ottla.tools.admin import configs, topics
from ottla.tools.stream.reader import MAY_COME
from ottla.wire.errors import ErrorCode
from ottla.wire.wording import counted, duration

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.stream.json_lines import Line

TOPIC_SECONDS = 5.0
"""How long the creation of a topic may take."""
AUTO_CREATE = "auto.create.topics.enable"
AGE_SETTINGS = "cleanup.policy", "message.timestamp.type", "retention.ms"


class Copied(NamedTuple):
    """What is known about records before they are sent."""

    whole: bool
    """Whether all records are known, not only the first ones."""
    topics: frozenset[str] = frozenset()
    """The topics that the records come from."""
    partitions: int = 0
    """How many partitions a topic must have to contain every partition that the records name."""

    def with_line(self, line: Line) -> Copied:
        """Adds another record."""
        needed = 0 if line.partition is None else line.partition + 1
        topics = self.topics | ({line.topic} if line.topic is not None else set())
        return Copied(self.whole, topics, max(self.partitions, needed))


class TargetTopic:
    """A topic's name and its number of partitions, which is None until the topic exists."""

    def __init__(self, cluster: ClusterClient, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.partitions: int | None = None
        self.retention_ms: int | None = None
        """The age at which the broker deletes records, -1 if it deletes none. None until
        `check_age` is called."""

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
            count = topics.known_partitions(topics.create(self.cluster, self.name, dry_run=True))
            if count is not None and partition >= count:
                raise ClientError(
                    f"topic {self.name!r} does not exist. The broker would create it with"
                    f" {counted(count, 'partition')}, but a record is for partition {partition}."
                    f" Create the topic first, as with ottla topic create {self.name}"
                    f" --partitions {partition + 1}"
                )

    def check(self, partition: int | None) -> None:
        """Raises ClientError for a partition that the topic lacks; creates the topic if needed."""
        if self.partitions is None:
            self.partitions = existing(self.cluster, self.name)
        if partition is not None and not 0 <= partition < self.partitions:
            raise ClientError(no_partition(self.name, partition, self.partitions))

    def check_line(self, number: int, partition: int | None, delimiter: bytes) -> None:
        """Like `check`, for the partition that is named in line `number` of the input."""
        try:
            self.check(partition)
        except ClientError as wrong:
            sent = ""
            if number > 1:
                how = f"tail -n +{number}" if delimiter == b"\n" else f"begin with line {number}"
                sent = (f". The lines before line {number} were sent. If the next input has the"
                        f" same order, skip these lines: {how}")
            more = self._more_partitions(1 + (partition or 0))
            raise ClientError(f"line {number}: {wrong}. {more}{sent}") from None

    def check_copy(self, copied: Copied) -> None:
        """Raises ClientError if this topic lacks a partition that the records name. If only the
        first records are known, the later ones may name any partition of the topics that the
        records were copied from. A missing topic is created. It gets at least as many partitions as
        the known records need, and as the largest of the topics that they were copied from has in
        this cluster."""
        others = copied.topics - {self.name}
        found = self.cluster.metadata(sorted(others)).topics if others else []
        largest, origin = max(
            ((len(one.partitions), one.name) for one in found if not one.error_code),
            default=(0, ""))
        if self.partitions is None:
            if copied.partitions and not copied.whole and not largest:
                raise ClientError(
                    f"topic {self.name!r} does not exist, and records from a pipe may name any"
                    f" partition. Create the topic first, as with ottla topic create {self.name}"
                    f" --partitions {max(3, copied.partitions)}, or let keys choose the partitions"
                    " with --any-partition"
                )
            self.partitions = existing(self.cluster, self.name, max(largest, copied.partitions))
        least = copied.partitions
        if least and not copied.whole:
            least = max(least, largest)
        if least > self.partitions:
            has = f"{origin} has" if least == largest else "the records need"
            raise ClientError(
                f"{has} {counted(least, 'partition')}, but {self.name} has {self.partitions}."
                f" {self._more_partitions(least)}")

    def check_age(self, timestamp_ms: int) -> None:
        """Reports the first record that the topic's retention will delete because of its time."""
        if self.retention_ms is None:
            self.retention_ms = retention_ms(self.cluster, self.name)
        if self.retention_ms < 0 or timestamp_ms < 0:
            return
        if timestamp_ms < time.time() * 1000 - self.retention_ms:
            print(f"warning: {self.name} will delete records with a timestamp older than"
                  f" {duration(self.retention_ms)} (retention.ms), such as one with the timestamp"
                  f" {timestamp_ms}. To keep them, run: ottla config set topic/{self.name}"
                  " retention.ms=-1", file=sys.stderr)
            self.retention_ms = -1

    def _more_partitions(self, count: int) -> str:
        return (f"Add partitions with ottla topic grow {self.name} --partitions {count}, or let"
                " keys choose the partitions with --any-partition")


def creates_topics(cluster: ClusterClient) -> bool:
    """Whether brokers create topics for producers; True if settings are hidden from the user."""
    return auto_create(cluster) is not False


def auto_create(cluster: ClusterClient) -> bool | None:
    """Whether brokers create topics for producers; None if settings are hidden from the user."""
    try:
        broker = str(min(cluster.live()))
        settings = configs.describe(cluster, configs.BROKER, broker, synonyms=False)
    except Refused:
        return None
    return any(one.name == AUTO_CREATE and one.value == "true" for one in settings)


def to_be_created(cluster: ClusterClient, name: str) -> Any:
    """The description of the topic that a broker would create for a producer, which is reported.
    None if the topic exists, or if brokers create no topics."""
    [found] = cluster.metadata([name]).topics
    if found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not creates_topics(cluster):
        return None
    made = topics.create(cluster, name, dry_run=True)
    near = similar(name, [one.name for one in cluster.metadata().topics])
    print(f"topic {name!r} does not exist: the broker would create it{near}", file=sys.stderr)
    return made


def retention_ms(cluster: ClusterClient, name: str) -> int:
    """The age at which the broker deletes the records of a topic. -1 if it deletes none because of
    their timestamps, or if settings are hidden from the user."""
    try:
        found = configs.describe_many(cluster, configs.TOPIC, [name], keys=[*AGE_SETTINGS])
    except (Refused, OSError):
        return -1
    settings = {one.name: one.value for one in found[name]}
    deletes = "delete" in settings["cleanup.policy"]
    stamps = settings["message.timestamp.type"] == "LogAppendTime"
    return int(settings["retention.ms"]) if deletes and not stamps else -1


def missing_text(cluster: ClusterClient, name: str) -> str:
    """The line about a missing topic that no broker creates."""
    near = similar(name, [one.name for one in cluster.metadata().topics])
    return (f"topic {name!r} does not exist{near}; the brokers create no topics ({AUTO_CREATE}):"
            f" create it first, as with ottla topic create {name}")


def late_text(cluster: ClusterClient, name: str) -> str:
    """The line about a topic that does not exist after TOPIC_SECONDS."""
    creates = auto_create(cluster)
    if creates is False:
        return missing_text(cluster, name)
    hidden = "" if creates else f", or the brokers create no topics ({AUTO_CREATE})"
    return (f"topic {name!r} still does not exist after {TOPIC_SECONDS:g} s: a broker is slow to"
            f" create it, or it was deleted in the meantime{hidden}. Run the command again, or"
            f" create the topic first, as with ottla topic create {name}")


def created_text(cluster: ClusterClient, name: str, partitions: int) -> str:
    """The line about a topic that a broker has created for a producer."""
    others = [one.name for one in cluster.metadata().topics if one.name != name]
    return (f"topic {name!r} did not exist: the broker created it with"
            f" {counted(partitions, 'partition')}{similar(name, others)}")


def create_aloud(
    cluster: ClusterClient, name: str, say: Callable[[str], None], *, waits: bool = True
) -> None:
    """Lets the broker create a missing topic, as it would for the next record. Reports this with
    `say`, since the name may be mistyped. If the brokers create no topics and the producer `waits`
    for the topic, reports that instead. Ignores errors: the producer will report them."""
    with contextlib.suppress(ClientError, OSError):
        [found] = cluster.metadata([name]).topics
        if found.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        if not creates_topics(cluster):
            if waits:
                say(missing_text(cluster, name))
            return
        existing(cluster, name, say=say)


def on_stderr(line: str) -> None:
    """Prints a line on stderr."""
    print(line, file=sys.stderr)


def existing(
    cluster: ClusterClient, name: str, partitions: int = 0,
    say: Callable[[str], None] = on_stderr,
) -> int:
    """The number of a topic's partitions. If brokers create topics for producers, a missing topic
    is created. It gets `partitions` partitions, or the broker's default if `partitions` is 0. The
    creation is reported with `say`, since the name may be mistyped. Raises ClientError after
    TOPIC_SECONDS; a producer would wait for a minute."""
    deadline = time.monotonic() + TOPIC_SECONDS
    create = False
    while True:
        [found] = cluster.metadata([name], create=create and not partitions).topics
        if not found.error_code:
            count = len(found.partitions)
            if create:
                say(created_text(cluster, name, count))
            return count
        late = time.monotonic() > deadline
        if late and found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise ClientError(late_text(cluster, name))
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
