"""Runs the state machines: appends their records, replays them, answers once they are committed.

    request -> shard -> Result -> timers -> append -> replay -> (committed) -> answers, markers

Commits of offsets do not depend on each other. The commits that arrive in one turn of the loop are
gathered into one Result and therefore one batch (`gather`). Any other operation on the shard
appends the gathered commits first. Each commit is encoded before it joins the batch, so that a
commit that cannot be encoded fails alone.

Reads also wait until the records before them are committed. So a power cut cannot undo what a
client has read: a fetched offset never goes back. Heartbeats change nothing and do not wait.

In a cluster, another broker may have taken over before this broker learns of it. This broker can
then commit nothing. Some refusals make a client give up its partitions, its commit or its
transaction. Before such a refusal is sent, a record that changes nothing is committed, which proves
that no other broker had taken over (`AnyShard.confirm`).

This module uses no socket and no event loop, and gets the time from a `Clock`. It uses the log and
the loop through a `ShardHost`, the broker's coordinator. Two modules derive from this one:
`runtime` coordinates groups, and `transactions/runtime` coordinates transactional ids.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ottla.groups.errors import CoordinatorLoadInProgress, NotCoordinator
from ottla.groups.open_appends import OpenAppend, OpenAppends
from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.result import Answer, Result, TimerKey
from ottla.groups.routing import partition_for
from ottla.groups.timers import Timers
from ottla.wire.errors import CoordinatorNotAvailable, ErrorCode, ProtocolError
from ottla.wire.marks import reached

log = logging.getLogger("ottla.groups")


class Clock(Protocol):
    """The methods of `ottla.log.files.clock.Clock` that are used."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""

    def monotonic(self) -> float:
        """Monotonic seconds."""


Committed = Callable[[ProtocolError | None], None]
"""Called once for each append, in the order of the appends: with None when the append is committed,
or with the error."""


class ShardHost(Protocol):
    """The log and the timer that the state machines of an internal topic use."""

    def append(
        self, partition: int, encoded: list[Any], producer: Producer, committed: Committed, /
    ) -> None:
        """Appends encoded records to a partition of the internal topic, as a part of the producer's
        transaction unless the producer is NO_PRODUCER. Raises ProtocolError if nothing was
        appended."""

    def encode(self, record: Any, /) -> Any:
        """Encodes a record as the log stores it."""

    def reload(self, partition: int, /) -> None:
        """Called when a shard was unloaded because an append to its partition was lost."""

    def wake(self, at_ms: int, /) -> None:
        """Called when the next timer is due earlier than before: the host has to call
        `ShardRuntime.fire` at `at_ms`, monotonic time in ms."""


Later = Callable[[Callable[[], None]], object]
"""Schedules a function to run after the requests that have arrived by now; for example
`loop.call_soon`."""

FIRE_SECONDS_MAX = 0.002
"""When timers have run for this long, the requests that have arrived meanwhile are served first,
then the other due timers run."""

CHANGE_SECONDS_MAX = 0.001
"""How long an operation on all shards may hold the loop in one turn. After this time, the operation
continues with the next shard in a later turn."""

GATHERED_RECORDS_MAX = 500
"""Gathered commits with this many records are appended before the turn ends, which limits the size
of a batch."""


class AnyShard(Protocol):
    """The state machine of one partition of an internal topic."""

    partition: int
    is_read: bool
    """Whether the log was replayed up to the end that it had when loading began. Records that were
    appended after that, before `adopt`, are not replayed."""
    final: ClassVar[tuple[type[ProtocolError], ...]]
    """Refusals after which clients give up their partitions, commits or transactions; `confirm` is
    called for each of them."""

    def confirm(self, key: str, result: Result, /) -> None:
        """If other brokers may take over, adds a record without effect, unless the result has
        records. Its commit proves that no other broker had taken over when the result was made."""

    def replay(self, record: Any, producer_id: int = -1) -> None:
        """Applies one record, in the log's order."""

    def fire(self, key: TimerKey, result: Result) -> None:
        """Called when a timer is due."""

    def loaded(self, result: Result) -> None:
        """Called after all records have been read."""

    def waiting(self) -> list[Answer]:
        """The answers to the requests that wait in the shard, such as a JoinGroup that waits for
        other members. Called when the shard is unloaded; the caller calls each answer once."""


S = TypeVar("S", bound=AnyShard)
GIVE_UP = TimerKey("give up", "")
"""The timer of a shard for the answers that wait for its replicas."""


class Live(Generic[S]):
    """A shard that is coordinated here, with the answers waiting for its appends."""

    def __init__(self, shard: S) -> None:
        self.shard = shard
        self.timers = Timers()
        self.gathered: Result | None = None
        self.appends = OpenAppends()
        self.gives_up_ms: int | None = None
        """When GIVE_UP is due, None while it is not set."""


class ShardRuntime(Generic[S]):
    """All shards that this broker coordinates.

    `partitions` is the partition count of the internal topic. `patience_ms` is the longest time
    that a request waits for the replicas, None for no limit. After that time, the client gets a
    retriable error. The record stays in the log, and the retry, too, is answered only once that
    record is committed.
    """

    def __init__(
        self,
        partitions: int,
        clock: Clock,
        host: ShardHost,
        later: Later = lambda function: function(),
        patience_ms: int | None = None,
    ) -> None:
        self.partitions = partitions
        self.patience_ms = patience_ms
        self._clock = clock
        self._host = host
        self._later = later
        self._live: dict[int, Live[S]] = {}
        self._loading: dict[int, S] = {}
        self._asked_of_all: dict[int, list[Callable[[S, Result], None]]] = {}
        """The operations that `change_all` requested while a partition was being loaded, by
        partition."""
        self._woken_for: int | None = None

    def tick_ms(self) -> int:
        """The monotonic time in ms, for deadlines."""
        # Truncation could turn 4.1 s into 4099 ms, and a timer for 4100 ms would not be due.
        return round(self._clock.monotonic() * 1000)

    # The shards of this broker

    def partition_of(self, key: str) -> int:
        """The partition of the internal topic that holds this group or transactional id."""
        return partition_for(key, self.partitions)

    def load_into(self, shard: S) -> S:
        """Begins to load a shard whose partition this broker leads. The caller replays the records,
        then calls `adopt`.

        Until then, clients get a retriable error.
        """
        assert shard.partition not in self._live, "the partition's former shard is still here"
        self._loading[shard.partition] = shard
        self._asked_of_all[shard.partition] = []
        return shard

    def adopt(self, shard: S) -> None:
        """Begins to coordinate a loaded shard, unless it has moved to another broker meanwhile."""
        if self._loading.get(shard.partition) is not shard:
            return
        del self._loading[shard.partition]
        assert shard.partition not in self._live, "the partition has another shard"
        live = self._live[shard.partition] = Live(shard)
        result = self._turn(live)
        shard.loaded(result)
        self._perform(live, result)
        for operation in self._asked_of_all.pop(shard.partition, ()):
            reached("topics were deleted while a coordinator was loaded")
            self._change_one(live, operation)

    def unload(self, partition: int) -> None:
        """Removes a shard: another broker leads the partition now, or its log failed or lost an
        append. Pending requests are refused with NotCoordinator."""
        self._loading.pop(partition, None)
        self._asked_of_all.pop(partition, None)
        live = self._live.pop(partition, None)
        if live is None:
            return
        error = NotCoordinator("the coordinator has moved to another broker")
        live.appends.answer_all(error)
        if live.gathered is not None:
            reached("a coordinator moved with gathered commits that were not appended")
            for answer, _ in live.gathered.replies:
                answer(error)
            live.gathered = None
        for answer in live.shard.waiting():
            answer(error)

    def shards(self) -> list[S]:
        """Every shard that is coordinated here."""
        return [live.shard for live in self._live.values()]

    @property
    def is_loading(self) -> bool:
        """Whether a partition is still being loaded."""
        return bool(self._loading)

    def shard(self, key: str) -> S:
        """The shard of a group or a transactional id.

        Raises NotCoordinator, CoordinatorLoadInProgress.
        """
        return self._find(self.partition_of(key)).shard

    def live_shard(self, key: str) -> S | None:
        """The shard of a group or a transactional id; None if it is not here or not loaded yet."""
        live = self._live.get(self.partition_of(key))
        return None if live is None else live.shard

    def _find(self, partition: int) -> Live[S]:
        live = self._live.get(partition)
        if live is None:
            if partition in self._loading:
                raise CoordinatorLoadInProgress("the coordinator is being loaded from the log")
            raise NotCoordinator("this broker is not the coordinator")
        return live

    # Turns

    def change(
        self,
        key: str,
        operation: Callable[[S, Result], Any],
        answer: Answer | None = None,
        producer: Producer = NO_PRODUCER,
    ) -> None:
        """Runs one operation on a shard, and sends its reply once its records are committed.

        If the operation raises, the effects in its result still take place: a JoinGroup that is
        refused with MEMBER_ID_REQUIRED has assigned a member id. Without `answer`, the operation
        puts its replies into the result itself.
        """
        live, result = self._begin_turn(key)
        try:
            reply = operation(live.shard, result)
        except ProtocolError as error:
            if answer is None:
                self._perform(live, result, producer)
                raise
            reply, producer = error.kept(), NO_PRODUCER
            _confirm(live.shard, key, error, result)
        if answer is not None:
            result.reply(answer, reply)
        self._perform(live, result, producer)

    def attempt(
        self, key: str, operation: Callable[[S, Result], None], answer: Answer
    ) -> None:
        """Does the same as `change`, for an operation that puts its reply into the result itself.
        If the operation raises one of the shard's `final` errors, `answer` gets the error once the
        record of `confirm` is committed; all other errors are raised at once."""
        live, result = self._begin_turn(key)
        try:
            operation(live.shard, result)
        except ProtocolError as error:
            if not isinstance(error, live.shard.final):
                self._perform(live, result)
                raise
            _confirm(live.shard, key, error, result)
            result.reply(answer, error.kept())
        self._perform(live, result)

    def gather(self, key: str, operation: Callable[[S, Result], Any], answer: Answer) -> None:
        """Does the same as `change`, for an operation that does not depend on other gathered
        operations.

        All operations of one turn of the loop are appended, made durable and answered together.
        """
        live = self._find(self.partition_of(key))
        gathered, is_first = live.gathered, live.gathered is None
        if gathered is None:
            gathered = live.gathered = self._turn(live)
        try:
            reply = operation(live.shard, gathered)
        except ProtocolError as error:
            reply = error.kept()
            _confirm(live.shard, key, error, gathered)
        try:
            gathered.encode(self._host.encode)
        except Exception as error:
            log.exception("a record of %r cannot be encoded, so the request fails", key)
            del gathered.records[len(gathered.encoded):]
            reply = _error_for_clients(error).kept()
        assert len(gathered.encoded) == len(gathered.records), "a record is not encoded"
        gathered.replies.append((answer, reply))
        if len(gathered.records) >= GATHERED_RECORDS_MAX:
            self._append_gathered(live)
        elif is_first:
            self._later(lambda: self._append_gathered(live))

    def _append_gathered(self, live: Live[S]) -> None:
        gathered, live.gathered = live.gathered, None
        if gathered is not None:
            self._perform(live, gathered)

    def turn(self, key: str, operation: Callable[[S, Result], Any]) -> Any:
        """Runs an operation without records, which may set timers; returns the operation's return
        value."""
        live, result = self._begin_turn(key)
        try:
            return operation(live.shard, result)
        finally:
            assert not result.records
            self._perform(live, result)

    def change_all(self, operation: Callable[[S, Result], None]) -> None:
        """Runs an operation on every shard, such as removing deleted topics. Shards that are being
        loaded follow once they are loaded."""
        for asked in self._asked_of_all.values():
            asked.append(operation)
        self._change_some(list(self._live.values()), operation)

    def _change_some(
        self, lives: list[Live[S]], operation: Callable[[S, Result], None]
    ) -> None:
        """Runs the operation on some of these shards. It runs on the others later, after the
        requests that have arrived by now."""
        ends_at = self._clock.monotonic() + CHANGE_SECONDS_MAX
        while lives:
            live = lives.pop()
            if self._live.get(live.shard.partition) is live:
                self._change_one(live, operation)
            if lives and self._clock.monotonic() > ends_at:
                self._later(lambda: self._change_some(lives, operation))
                return

    def _change_one(self, live: Live[S], operation: Callable[[S, Result], None]) -> None:
        result = self._turn(live)
        if self._live.get(live.shard.partition) is live:
            operation(live.shard, result)
            self._perform(live, result)

    def next_timer_ms(self) -> int | None:
        """The time at which the next timer is due; None if no timer is set."""
        times = [live.timers.next_ms() for live in self._live.values()]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def fire(self) -> None:
        """Fires the timers that are due, the earliest first.

        After FIRE_SECONDS_MAX, the remaining timers are left to the next call, so that requests are
        served in between. Timers that become due meanwhile are left to the next call, too.
        """
        self._woken_for = None
        now_ms, ends_at = self.tick_ms(), self._clock.monotonic() + FIRE_SECONDS_MAX
        try:
            # One at a time: a timer may cancel or move the next one.
            while (due := self._take_due(now_ms)) is not None:
                self._fire_one(*due)
                if self._clock.monotonic() > ends_at:
                    break
        finally:
            # Also after an exception: the other timers have to run.
            at_ms = self.next_timer_ms()
            if at_ms is not None:
                self._ask_to_wake(at_ms)

    def _take_due(self, now_ms: int) -> tuple[Live[S], TimerKey] | None:
        """The earliest timer of all shards, if it is due."""
        earliest, earliest_ms = None, now_ms + 1
        for live in self._live.values():
            at_ms = live.timers.next_ms()
            if at_ms is not None and at_ms < earliest_ms:
                earliest, earliest_ms = live, at_ms
        key = None if earliest is None else earliest.timers.take_due(now_ms)
        return None if earliest is None or key is None else (earliest, key)

    def _fire_one(self, live: Live[S], key: TimerKey) -> None:
        if key is GIVE_UP:
            self._give_up(live)
            return
        result = self._turn(live)
        if self._live.get(live.shard.partition) is live:        # `_turn` may have unloaded it
            live.shard.fire(key, result)
            self._perform(live, result)

    def _give_up(self, live: Live[S]) -> None:
        """Answers the requests that have waited too long, with a retriable error, so that later
        requests of their connections are served."""
        assert self.patience_ms is not None, "the timer GIVE_UP is set, but waiting has no limit"
        live.gives_up_ms = None
        live.appends.answer_late(
            self.tick_ms() - self.patience_ms,
            CoordinatorNotAvailable("the replicas did not commit the record in time; retry"),
        )
        self._limit_wait(live)

    def _limit_wait(self, live: Live[S]) -> None:
        """Sets the timer GIVE_UP for the answers that wait, unless it is set already."""
        if self.patience_ms is None or live.gives_up_ms is not None:
            return
        since_ms = live.appends.waiting_since_ms()
        if since_ms is not None:
            live.gives_up_ms = since_ms + self.patience_ms
            live.timers.set(GIVE_UP, live.gives_up_ms)
            self._ask_to_wake(live.gives_up_ms)

    def _begin_turn(self, key: str) -> tuple[Live[S], Result]:
        """Begins a turn; returns the shard of a group or a transactional id, and an empty Result.

        Raises NotCoordinator, CoordinatorLoadInProgress.
        """
        partition = self.partition_of(key)
        self._append_gathered(self._find(partition))
        # Looked up again: if that append failed, the shard was unloaded, and replies that wait in
        # it would never be sent.
        live = self._find(partition)
        return live, self._turn(live)

    def _turn(self, live: Live[S]) -> Result:
        """Begins a turn: appends the commits that were gathered, then returns an empty Result."""
        self._append_gathered(live)
        return Result(self._clock.now_ms(), self.tick_ms())

    def _perform(self, live: Live[S], result: Result, producer: Producer = NO_PRODUCER) -> None:
        for key, at_ms in result.timers:
            live.timers.set(key, at_ms)
            if at_ms is not None:
                self._ask_to_wake(at_ms)
        if result.records:
            self._record(live, result, producer)
            return
        if result.events:
            self._happened(result, None)
        for follow in result.after_replay:
            follow(None)
        if live.appends:
            live.appends.wait_for_last(result)
            self._limit_wait(live)
        else:
            for answer, reply in result.replies:
                answer(reply)

    def _record(self, live: Live[S], result: Result, producer: Producer) -> None:
        """Appends the records and replays them; if the log refuses them, the clients of this result
        get the error."""
        append, outcome = live.appends.begin(result), list[ProtocolError | None]()

        def committed(error: ProtocolError | None) -> None:
            outcome.append(error)
            live.appends.after_this(lambda: self._committed(live, append, error))

        try:
            result.encode(self._host.encode)
            assert len(result.encoded) == len(result.records), "a record is not encoded"
            self._host.append(live.shard.partition, result.encoded, producer, committed)
        except Exception as error:
            told = _error_for_clients(error).kept()
            live.appends.refuse(told)
            if result.events:
                self._happened(result, told)
            for follow in result.after_replay:
                follow(told)
            live.appends.made()
            if not isinstance(error, ProtocolError):
                raise  # a bug, such as a record that its format cannot hold
            return
        for record in result.records:
            live.shard.replay(record, producer.producer_id)
        if result.events:
            self._happened(result, None)
        for follow in result.after_replay:
            follow(None)
        if not outcome:
            self._limit_wait(live)
        live.appends.made()

    def _happened(self, result: Result, error: ProtocolError | None) -> None:
        """Called with a turn that has events, and with the error if the log refused its records."""

    def _committed(
        self, live: Live[S], append: OpenAppend, error: ProtocolError | None
    ) -> None:
        if not live.appends.end(append):
            return
        told = None if error is None else _error_for_clients(error)
        for answer, reply in append.replies:
            answer(reply if told is None else told)
        if error is not None:
            # The replayed records are not in the log: the shard has to be loaded again.
            self.unload(live.shard.partition)
            self._host.reload(live.shard.partition)

    def _ask_to_wake(self, at_ms: int) -> None:
        if self._woken_for is None or at_ms < self._woken_for:
            self._woken_for = at_ms
            self._host.wake(at_ms)


def _confirm(shard: AnyShard, key: str, error: ProtocolError, result: Result) -> None:
    if isinstance(error, shard.final):
        shard.confirm(key, result)


def _error_for_clients(error: Exception) -> ProtocolError:
    """The error sent to clients for a refused append."""
    reached("an append of a coordinator was refused, or lost after its replay")
    if not isinstance(error, ProtocolError):
        return ProtocolError(
            "an internal error; the broker's log says why", ErrorCode.UNKNOWN_SERVER_ERROR
        )
    if error.code in (
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    ):
        return CoordinatorNotAvailable("too few replicas of the coordinator's log are in sync")
    return NotCoordinator("another broker is the coordinator now") if _has_moved(error) else error


def _has_moved(error: ProtocolError) -> bool:
    return error.code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
    )
