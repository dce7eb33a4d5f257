"""A consumer of librdkafka that commits settled positions only.

The consumer tracks the position of every assigned partition. The code that uses the consumer calls
`advance` to move a position after it has processed a record. At the end of a partition, it may call
`advance`, too. `settle` makes the output of this code safe, for example by a flush of standard
output; the positions are then settled. Only settled positions are committed: by `commit`, before
partitions are revoked, and at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.errors import ClientError, NotAllowed
from ottla.tools.admin import offsets
from ottla.tools.admin.offsets import EARLIEST, LATEST, Place
from ottla.tools.stream.client_settings import (
    bootstrap_servers,
    librdkafka_settings,
    open_client,
    reason_with_code,
    whole_number,
)
from ottla.tools.stream.outages import Outages
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.stream.batches import Headers

RECORDS_MAX = 5000
"""The most records that one poll returns."""
NO_GROUP = "ottla"
"""librdkafka requires a group's name, even if a reader never joins or commits."""
COMMIT_MS = 5000
COMMITTED_SECONDS = 30.0
REFUSED_SECONDS = 15.0
"""How long the last commit is repeated while the group rebalances."""
AGAIN_SECONDS = 0.1
REBALANCING = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS,
               ErrorCode.STALE_MEMBER_EPOCH)  # fmt: skip
"""Commits fail with these errors until the member has taken part in the rebalance."""
REBALANCE_MS = 300_000
"""The default of max.poll.interval.ms: how long a rebalance may wait for one client."""
RESETS = {"earliest": EARLIEST, "smallest": EARLIEST, "beginning": EARLIEST,
          "latest": LATEST, "largest": LATEST, "end": LATEST}  # fmt: skip
"""Values of auto.offset.reset, Java's and librdkafka's."""


class ConsumedRecord(NamedTuple):
    """One record."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int | None


def record_of(message: Any) -> ConsumedRecord:
    """A message of confluent-kafka as a record."""
    kind, timestamp = message.timestamp()
    return ConsumedRecord(
        message.topic(), message.partition(), message.offset(),
        timestamp if kind else -1, max(0, kind - 1),
        message.key(), message.value(), message.headers() or [], message.leader_epoch(),
    )  # fmt: skip


class Rebalancing(ClientError):
    """A commit was refused because the group rebalances."""


class RebalanceListener:
    """Callbacks for changes of a member's partitions."""

    def assigned(self, places: list[Place]) -> None:
        """The member got these partitions."""

    def revoked(self, places: list[Place]) -> None:
        """The member no longer has these partitions. With automatic commits, it has committed their
        positions, unless the coordinator had removed the member."""


class Consumer:
    """Reads partitions (`assign`), or as a member of a group (`subscribe`)."""

    def __init__(
        self,
        cluster: ClusterClient,
        properties: Mapping[str, str],
        *,
        group: str = "",
        start: int = LATEST,
        anew: bool = False,
        settle: Callable[[], None] = lambda: None,
        listener: RebalanceListener | None = None,
    ) -> None:
        import confluent_kafka

        self.library = confluent_kafka
        self.group, self.listener = group, listener or RebalanceListener()
        self.positions: dict[Place, int] = {}
        """The next offset of every assigned partition; -1 while it is unknown."""
        self.settled: dict[Place, int] = {}
        """The positions that may be committed."""
        self.joined = False
        """Whether a member of a group has its assignment, which may be empty. During a rebalance,
        a member without an incremental assignor has none."""
        given = {"isolation.level": "read_uncommitted", **properties}   # as in Java's clients
        reset = given.get("auto.offset.reset", "earliest" if start == EARLIEST else "latest")
        self.commits = bool(group) and given.get("enable.auto.commit", "true").lower() != "false"
        """Whether positions are committed automatically."""
        self.commit_seconds = 1e-3 * whole_number(
            "auto.commit.interval.ms", given.get("auto.commit.interval.ms", str(COMMIT_MS)))
        self.rebalance_seconds = 1e-3 * whole_number(
            "max.poll.interval.ms", given.get("max.poll.interval.ms", str(REBALANCE_MS)))
        """How long the group may take to admit a member, if the other members have the same
        time-outs."""
        self._start = RESETS.get(reset.lower())
        self._committed_only = given["isolation.level"] == "read_committed"
        self._cluster, self._settle = cluster, settle
        self._anew = anew
        """Whether a partition begins at `start` even if it has a committed offset. If the member
        gets the partition again after a rebalance, it continues at the committed offset."""
        self._begun: set[Place] = set()
        self._committed: dict[Place, int] = {}
        self._refused: dict[Place, int] = {}
        """Positions whose commit was refused, and that were not committed since."""
        self._committed_at = time.monotonic()
        self._failure: Exception | None = None
        self._incremental = given.get("group.protocol", "").lower() == "consumer" or (
            "cooperative" in given.get("partition.assignment.strategy", "").lower())
        settings, addresses = librdkafka_settings(given), bootstrap_servers(cluster)
        self._outages = Outages(addresses)
        self._client = open_client("Consumer", {
            **settings, "auto.offset.reset": reset, "bootstrap.servers": addresses,
            "group.id": group or NO_GROUP, "enable.auto.commit": False,
            "enable.auto.offset.store": False, "enable.partition.eof": True,
            "error_cb": self._on_error,
        })  # fmt: skip

    # Partitions

    def assign(self, begin: Mapping[Place, int]) -> None:
        """Read these partitions, each from this offset."""
        self.positions = dict(begin)
        self.settled = dict(begin)
        self._client.assign(self._partitions(begin))

    def assign_more(self, begin: Mapping[Place, int]) -> None:
        """Also read these partitions, each from this offset."""
        self.positions |= begin
        self.settled |= begin
        self._client.incremental_assign(self._partitions(begin))

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics as a member of the group; names that begin with ^ are regular
        expressions."""
        self._client.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )  # fmt: skip

    def pause(self, place: Place) -> None:
        """Fetch nothing more of a partition."""
        self._client.pause([self.library.TopicPartition(*place)])

    def committed(self, places: Iterable[Place]) -> dict[Place, int]:
        """The group's committed offsets; partitions without a committed offset are omitted. Raises
        ClientError."""
        wanted = [self.library.TopicPartition(*place) for place in places]
        try:
            answers = self._client.committed(wanted, timeout=COMMITTED_SECONDS) if wanted else []
        except self.library.KafkaException as failed:
            raise ClientError(f"group {self.group}: {plain(failed)}") from failed
        return {(one.topic, one.partition): one.offset for one in answers if one.offset >= 0}

    def begin_at(self, places: list[Place]) -> dict[Place, int]:
        """The offsets at which the group begins to read these partitions. A partition without a
        committed offset begins where auto.offset.reset says."""
        stored = self.committed(
            place for place in places if not self._anew or place in self._begun)
        self._begun.update(places)
        missing = [place for place in places if place not in stored]
        self._committed |= stored
        if missing and self._start is not None:
            stored |= offsets.required(
                self._cluster, dict.fromkeys(missing, self._start), committed=self._committed_only)
        return {place: stored.get(place, self.library.OFFSET_STORED) for place in places}

    def _partitions(self, begin: Mapping[Place, int]) -> list[Any]:
        return [self.library.TopicPartition(*place, offset) for place, offset in begin.items()]

    def _on_assign(self, client: Any, partitions: list[Any]) -> None:
        self._guarded(lambda: self._assigned(client, places_of(partitions)))

    def _on_revoke(self, client: Any, partitions: list[Any]) -> None:
        self._guarded(lambda: self._revoked(client, places_of(partitions), keep=True))

    def _on_lost(self, client: Any, partitions: list[Any]) -> None:
        self._guarded(lambda: self._revoked(client, places_of(partitions), keep=False))

    def _guarded(self, act: Callable[[], None]) -> None:
        """Runs a callback of librdkafka. Its error is stored, and raised by `poll`."""
        try:
            act()
        except BaseException as failed:
            self._failure = self._failure or failed     # type: ignore[assignment]

    def _assigned(self, client: Any, places: list[Place]) -> None:
        try:
            begin = self.begin_at(places)
        except ClientError:
            client.assign([])
            raise
        (client.incremental_assign if self._incremental else client.assign)(
            self._partitions(begin))
        known = {place: offset for place, offset in begin.items() if offset >= 0}
        self.positions |= dict.fromkeys(places, -1) | known
        self.settled |= known
        self.joined = True
        self.listener.assigned(places)

    def _revoked(self, client: Any, places: list[Place], *, keep: bool) -> None:
        try:
            if keep and self.commits:
                self.settle()
                self.commit()
        finally:
            for place in places:
                for known in (self.positions, self.settled, self._committed):
                    known.pop(place, None)
            if self._incremental:
                client.incremental_unassign([self.library.TopicPartition(*one) for one in places])
            else:
                client.unassign()
                self.joined = False
        self.listener.revoked(places)

    def _on_error(self, error: Any) -> None:
        """Stores permanent errors; librdkafka retries after all other errors."""
        kind = self.library.KafkaError
        if error.fatal() or error.code() in (kind._AUTHENTICATION, kind._FATAL):
            self._failure = self._failure or ClientError(error.str())
        self._outages.note(error)

    # Records

    def poll(self, seconds: float) -> list[Any]:
        """The available messages; waits up to `seconds` for the first one. Raises ClientError.

        Each message is returned once, in the order of its partition. Before the next poll, call
        `advance` for each processed message. A message whose `error()` is None is a record. Other
        messages mark the end of a partition; `advance` may be called for them too.
        """
        first = self._client.poll(seconds)
        messages = [] if first is None else [first, *self._client.consume(RECORDS_MAX - 1, 0)]
        if self._failure is not None:
            failed, self._failure = self._failure, None
            raise failed
        if any(message.error() is not None for message in messages):
            messages = [message for message in messages if self._is_of_use(message)]
        return messages

    def _is_of_use(self, message: Any) -> bool:
        error = message.error()
        if error is None or error.code() == self.library.KafkaError._PARTITION_EOF:
            return True
        kind = self.library.KafkaError
        if error.retriable() or error.code() == kind.UNKNOWN_TOPIC_OR_PART:
            return False        # librdkafka retries; the topic may still be created
        if error.code() == kind.GROUP_AUTHORIZATION_FAILED and not self.group:
            return False        # a reader without a group needs no coordinator
        if error.code() == kind._FATAL:
            # For example, another static member with the same group.instance.id has joined.
            self.commits = False
            raise ClientError(error.str().removeprefix("Fatal error: ").removeprefix("Broker: "))
        about = f"group {self.group}: " if self.group and not message.topic() else ""
        text = about + reason_with_code(error)
        if error.code() == kind.GROUP_AUTHORIZATION_FAILED:
            code, resource = ErrorCode.GROUP_AUTHORIZATION_FAILED, f"group/{self.group}"
        elif error.code() == kind.TOPIC_AUTHORIZATION_FAILED and message.topic():
            code, resource = ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic/{message.topic()}"
        else:
            raise ClientError(text)
        raise NotAllowed(text, code, self._cluster.security.principal, "read", resource)

    def is_next(self, place: Place, offset: int) -> bool:
        """Whether a message belongs to the present assignment, and was not processed before."""
        return offset >= self.positions.get(place, 1 << 62)

    def advance(self, place: Place, offset: int) -> None:
        """Sets the position: everything in the partition before this offset has been processed."""
        self.positions[place] = offset

    # Commits

    def settle(self) -> None:
        """Calls the `settle` given to the constructor, which makes the output safe. Then the
        positions may be committed."""
        self._settle()
        self.settled = {place: at for place, at in self.positions.items() if at >= 0}

    def commit_when_due(self) -> None:
        """Commits settled positions, if the interval has passed. A failed commit is repeated after
        the next interval."""
        if self.commits and time.monotonic() - self._committed_at >= self.commit_seconds:
            self._committed_at = time.monotonic()
            try:
                self.commit()
            except ClientError:
                pass

    def commit(self) -> dict[Place, int]:
        """Commit and return every settled position that has changed. Raises ClientError."""
        changed = {
            place: offset for place, offset in self.settled.items()
            if self._committed.get(place) != offset
        }
        if not changed:
            return {}
        try:
            done = self._client.commit(offsets=self._partitions(changed), asynchronous=False)
            for one in done:
                if one.error is not None:
                    raise self.library.KafkaException(one.error)
        except self.library.KafkaException as failed:
            self._refused |= changed
            kind = Rebalancing if failed.args[0].code() in REBALANCING else ClientError
            raise kind(
                f"group {self.group}: offsets were not committed: {plain(failed)}") from failed
        self._committed |= changed
        self._refused = {
            place: at for place, at in self._refused.items() if changed.get(place, -1) < at}
        return changed

    def close(self) -> None:
        """Commits if commits are automatic, then leaves the group. Raises ClientError."""
        try:
            if self.commits:
                self.commit_last()
        finally:
            self._client.close()

    def commit_last(self) -> None:
        """Commit settled positions; nothing is committed after this. Raises ClientError.

        A member with a cooperative assignor keeps partitions during a rebalance, but the group
        refuses its commits. So the member takes part in the rebalance, and tries again. If
        the group still refuses after REFUSED_SECONDS, or if the member loses a partition whose
        position was not committed, raises Rebalancing.
        """
        self.commits, self._refused = True, {}
        self.positions = dict(self.settled)     # so that a rebalance settles nothing more
        deadline = time.monotonic() + REFUSED_SECONDS
        failed: Rebalancing | None = None
        try:
            while failed is None or time.monotonic() < deadline:
                if failed is not None:
                    self._rebalance()
                try:
                    self.commit()
                    break
                except Rebalancing as refused:
                    failed = refused
        finally:
            self.commits = False
        if failed is not None and self._refused:
            raise failed

    def _rebalance(self) -> None:
        """Takes part in a rebalance for AGAIN_SECONDS, without a change of the positions. Raises
        only fatal errors: no commit can follow them."""
        until = time.monotonic() + AGAIN_SECONDS
        while time.monotonic() < until:
            try:
                self.poll(AGAIN_SECONDS)
            except ClientError:
                if not self.commits:
                    raise


def plain(failed: Any) -> str:
    """The text of a KafkaException without librdkafka's prefixes "Commit failed" and "Broker"."""
    text: str = failed.args[0].str()
    return text.removeprefix("Commit failed: ").removeprefix("Broker: ")


def places_of(partitions: Iterable[Any]) -> list[Place]:
    """Topic and index of librdkafka's partitions."""
    return [(one.topic, one.partition) for one in partitions]
