"""Runs the state machines: append what they return, replay it, answer when it is committed.

    request -> shard -> Result -> append -> replay -> timers -> (committed) -> answers

A read waits too while records before it are not committed: what one client was told, no power
cut may take back (an offset fetched never goes back). Heartbeats change nothing and do not wait.

The log is reached through two functions that `broker/coordinators` hands over; there is no
socket, no event loop and no wall clock here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ottla.groups.cluster import Cluster
from ottla.groups.errors import CoordinatorLoadInProgress, NotCoordinator
from ottla.groups.records import Record
from ottla.groups.result import Answer, Result, TimerKey
from ottla.groups.routing import partition_for
from ottla.groups.settings import GroupSettings
from ottla.groups.shard import NO_CLUSTER, Shard
from ottla.groups.timers import Timers
from ottla.wire.errors import ErrorCode, ProtocolError

EXPIRE = "expire"
"""The timer of a shard, not of a group, that looks for expired offsets."""


class Clock(Protocol):
    """What of `ottla.log.clock.Clock` is used."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""

    def monotonic(self) -> float:
        """Seconds that only grow."""


Committed = Callable[[ProtocolError | None], None]
"""Told once when an append is committed, or why it will not be. In the order of the appends."""

Append = Callable[[int, list[Record], int, Committed], None]
"""Appends records to a partition of `__consumer_offsets`, of one transactional producer
(its id, or -1), or raises ProtocolError and appends nothing."""


class _Live:
    """A shard that is coordinated here, with the answers that wait for its appends."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.timers = Timers()
        self.open_appends: deque[list[tuple[Answer, Any]]] = deque()


class Runtime:
    """All groups that this broker coordinates.

    `wake` is called with a moment in ticks whenever some timer becomes due earlier than before;
    `fire` is to be called then.
    """

    def __init__(
        self,
        settings: GroupSettings,
        clock: Clock,
        append: Append,
        new_id: Callable[[], str],
        wake: Callable[[int], None] = lambda at_ms: None,
        cluster: Cluster = NO_CLUSTER,
    ) -> None:
        self.settings = settings
        self.partitions = settings.offsets_topic_num_partitions
        """Those that `__consumer_offsets` really has, once it exists."""
        self._clock = clock
        self._append = append
        self._new_id = new_id
        self._wake = wake
        self._cluster = cluster
        self._live: dict[int, _Live] = {}
        self._loading: dict[int, Shard] = {}
        self._woken_for: int | None = None

    def tick_ms(self) -> int:
        """Now, for deadlines."""
        return int(self._clock.monotonic() * 1000)

    # Which groups are here

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps this group."""
        return partition_for(group_id, self.partitions)

    def begin_load(self, partition: int) -> Shard:
        """This broker leads the partition: replay its records into the shard, then `adopt` it.

        Until then clients are told to wait.
        """
        shard = Shard(partition, self.settings, self._new_id, self._cluster)
        self._loading[partition] = shard
        return shard

    def adopt(self, shard: Shard) -> None:
        """Coordinate the groups of a shard, unless it has moved to another broker meanwhile."""
        if self._loading.get(shard.partition) is not shard:
            return
        del self._loading[shard.partition]
        live = self._live[shard.partition] = _Live(shard)
        result = self._turn()
        shard.loaded(result)
        interval_ms = self.settings.offsets_retention_check_interval_ms
        result.set_timer(EXPIRE, "", after_ms=interval_ms)
        self._perform(live, result)

    def unload(self, partition: int) -> None:
        """Another broker leads the partition now: everybody who waits is sent there."""
        self._loading.pop(partition, None)
        live = self._live.pop(partition, None)
        if live is None:
            return
        error = NotCoordinator("the group has moved to another broker")
        for answers in live.open_appends:
            for answer, _ in answers:
                answer(error)
        live.open_appends.clear()
        for answer in live.shard.waiting():
            answer(error)

    @property
    def cluster(self) -> Cluster:
        """The newest view of the cluster."""
        return self._cluster

    @cluster.setter
    def cluster(self, cluster: Cluster) -> None:
        self._cluster = cluster
        for shard in (*self.shards(), *self._loading.values()):
            shard.cluster = cluster

    def shards(self) -> list[Shard]:
        """Every shard that is coordinated here."""
        return [live.shard for live in self._live.values()]

    @property
    def is_loading(self) -> bool:
        """Whether some partition is still being read."""
        return bool(self._loading)

    def shard(self, group_id: str) -> Shard:
        """The shard of a group. Raises NotCoordinator, CoordinatorLoadInProgress."""
        return self._find(self.partition_of(group_id)).shard

    def _find(self, partition: int) -> _Live:
        live = self._live.get(partition)
        if live is None:
            if partition in self._loading:
                raise CoordinatorLoadInProgress("the groups are being read from the log")
            raise NotCoordinator("this broker does not coordinate the group")
        return live

    # Turns

    def change(
        self,
        group_id: str,
        operation: Callable[[Shard, Result], Any],
        answer: Answer | None = None,
        producer_id: int = -1,
    ) -> None:
        """Run one operation on a group's shard, and answer what it returns once committed.

        An operation that raises has still had the effects that are in its result: a JoinGroup
        that is sent back for a member id has given that id out. Without `answer` the operation
        has put its replies into the result itself.
        """
        live = self._find(self.partition_of(group_id))
        result = self._turn()
        try:
            reply = operation(live.shard, result)
        except ProtocolError as error:
            reply = error
            if answer is None:
                self._perform(live, result, producer_id)
                raise
        if answer is not None:
            result.reply(answer, reply)
        self._perform(live, result, producer_id)

    def turn(self, group_id: str, operation: Callable[[Shard, Result], Any]) -> Any:
        """Run an operation that records nothing, but may set timers; what it returns."""
        live = self._find(self.partition_of(group_id))
        result = self._turn()
        try:
            return operation(live.shard, result)
        finally:
            assert not result.records
            self._perform(live, result)

    def change_all(self, operation: Callable[[Shard, Result], None]) -> None:
        """Run an operation on every shard, such as forgetting deleted topics."""
        for live in list(self._live.values()):
            result = self._turn()
            operation(live.shard, result)
            self._perform(live, result)

    def end_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """A transaction's marker was appended to a partition of `__consumer_offsets`."""
        live = self._live.get(partition)
        if live is not None:
            live.shard.offsets.end_transaction(producer_id, committed)

    def next_timer_ms(self) -> int | None:
        """When `fire` has something to do."""
        times = [live.timers.next_ms() for live in self._live.values()]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def fire(self) -> None:
        """Let everything happen that is due by now."""
        self._woken_for = None
        for live in list(self._live.values()):
            # One at a time: what one timer sets off may cancel or move the next.
            while (key := live.timers.take_due(self.tick_ms())) is not None:
                self._fire_one(live, key)
        at_ms = self.next_timer_ms()
        if at_ms is not None:
            self._ask_to_wake(at_ms)

    def _fire_one(self, live: _Live, key: TimerKey) -> None:
        result = self._turn()
        if key.kind == EXPIRE:
            live.shard.expire(result)
            interval_ms = self.settings.offsets_retention_check_interval_ms
            result.set_timer(EXPIRE, "", after_ms=interval_ms)
        else:
            live.shard.fire(key, result)
        self._perform(live, result)

    def _turn(self) -> Result:
        return Result(self._clock.now_ms(), self.tick_ms())

    def _perform(self, live: _Live, result: Result, producer_id: int = -1) -> None:
        for key, at_ms in result.timers:
            live.timers.set(key, at_ms)
            if at_ms is not None:
                self._ask_to_wake(at_ms)
        if result.records:
            self._record(live, result, producer_id)
        elif live.open_appends:
            live.open_appends[-1].extend(result.replies)
        else:
            for answer, reply in result.replies:
                answer(reply)

    def _record(self, live: _Live, result: Result, producer_id: int) -> None:
        """Append and replay; where the append is refused everybody is told."""
        waiting = result.replies
        outcome: list[ProtocolError | None] = []
        replayed = False

        def committed(error: ProtocolError | None) -> None:
            outcome.append(error)
            if replayed:
                self._committed(live, waiting, error)

        live.open_appends.append(waiting)
        try:
            self._append(live.shard.partition, result.records, producer_id, committed)
        except ProtocolError as error:
            live.open_appends.pop()
            told = NotCoordinator("the log refused") if _has_moved(error) else error
            for answer, _ in waiting:
                answer(told)
            return
        for record in result.records:
            live.shard.replay(record, producer_id)
        replayed = True
        if outcome:
            self._committed(live, waiting, outcome[0])

    def _committed(
        self, live: _Live, waiting: list[tuple[Answer, Any]], error: ProtocolError | None
    ) -> None:
        if not live.open_appends:
            return  # unloaded meanwhile, and everybody told
        assert live.open_appends.popleft() is waiting, "appends are committed in their order"
        for answer, reply in waiting:
            answer(reply if error is None else error)
        if error is not None:
            # What was replayed is not in the log: the groups have to be read again from there.
            self.unload(live.shard.partition)

    def _ask_to_wake(self, at_ms: int) -> None:
        if self._woken_for is None or at_ms < self._woken_for:
            self._woken_for = at_ms
            self._wake(at_ms)


def _has_moved(error: ProtocolError) -> bool:
    return error.code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
    )
