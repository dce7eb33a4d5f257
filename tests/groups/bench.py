"""A coordinator on a workbench: the real runtime over a log in memory, with time that tests move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.groups.records import Marker, Record
from ottla.groups.routing import partition_for
from ottla.groups.runtime import Committed, Runtime
from ottla.groups.settings import GroupSettings
from ottla.groups.shard import Shard
from ottla.wire.errors import ProtocolError


class FakeClock:
    """Time that stands still until somebody moves it."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.elapsed_ms = 0
        self.start_ms = wall_ms

    def now_ms(self) -> int:
        return self.start_ms + self.elapsed_ms

    def monotonic(self) -> float:
        return self.elapsed_ms / 1000


class Workbench:
    """Runs a coordinator; every record passes through its bytes. `crash` starts it from them."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupSettings(**settings)
        self.clock = FakeClock()
        self.logs: dict[int, list[tuple[Record | Marker, int]]] = {}
        self.records: list[Record] = []
        self.uncommitted: list[Committed] = []
        self.hold_commits = False
        self.refusal: ProtocolError | None = None
        self.ids = 0
        self.start()

    def start(self) -> None:
        self.runtime = Runtime(self.settings, self.clock, self.append, self.new_id)
        for partition in range(self.settings.offsets_topic_num_partitions):
            self.runtime.load(partition, self.logs.get(partition, []))

    def crash(self) -> None:
        """kill -9: what was appended is there, what lived in memory is not."""
        self.start()

    def new_id(self) -> str:
        self.ids += 1
        return str(self.ids)

    def append(
        self, partition: int, records: list[Record], producer: int, done: Committed
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        log = self.logs.setdefault(partition, [])
        log += [(record, producer) for record in records]
        self.records += records
        if self.hold_commits:
            self.uncommitted.append(done)
        else:
            done(None)

    def end_transaction(self, group_id: str, producer_id: int, committed: bool) -> None:
        """A transaction's marker reaches the partition of this group."""
        partition = self.partition(group_id)
        self.logs.setdefault(partition, []).append((Marker(producer_id, committed), producer_id))
        self.runtime.end_transaction(partition, producer_id, committed)

    def commit_all(self) -> None:
        """The log has reached the disk."""
        done, self.uncommitted = self.uncommitted, []
        for committed in done:
            committed(None)

    def wait(self, ms: int) -> None:
        """Let time pass, with every timer firing at its own moment."""
        end_ms = self.clock.elapsed_ms + ms
        while (at_ms := self.runtime.next_timer_ms()) is not None and at_ms <= end_ms:
            self.clock.elapsed_ms = max(at_ms, self.clock.elapsed_ms)
            self.runtime.fire()
        self.clock.elapsed_ms = end_ms

    def shard(self, group_id: str = "g") -> Shard:
        return self.runtime.shard(group_id)

    def partition(self, group_id: str = "g") -> int:
        return partition_for(group_id, self.settings.offsets_topic_num_partitions)

    def ask(self, operation: Callable[..., Any], group_id: str = "g", producer_id: int = -1) -> Any:
        """Run an operation whose answer comes at once; a refusal is returned, not raised."""
        answers: list[Any] = []
        self.runtime.change(group_id, operation, answers.append, producer_id)
        return answers[0] if answers else None
