"""Transactional ids that this broker coordinates: `shard_runtime` over `__transaction_state`."""

from __future__ import annotations

from collections.abc import Callable

from ottla.groups.errors import CoordinatorLoadInProgress, NotCoordinator
from ottla.groups.result import Result
from ottla.groups.settings import TransactionSettings
from ottla.groups.shard_runtime import Append, Clock, ShardRuntime
from ottla.groups.transactions.markers import WriteMarker
from ottla.groups.transactions.shard import TransactionShard
from ottla.wire.errors import InvalidRequest


class TransactionRuntime(ShardRuntime[TransactionShard]):
    """All transactional ids here; `partitions` is corrected once the topic exists."""

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        append: Append,
        write_marker: WriteMarker,
        wake: Callable[[int], None] = lambda at_ms: None,
    ) -> None:
        super().__init__(settings.transaction_state_log_num_partitions, clock, append, wake)
        self.settings = settings
        self._write_marker = write_marker

    def partition_of(self, key: str) -> int:
        """The partition of `__transaction_state` that holds an id. Raises InvalidRequest."""
        if not key:
            raise InvalidRequest("the transactional id is empty")
        return super().partition_of(key)

    def begin_load(self, partition: int, coordinator_epoch: int) -> TransactionShard:
        """Begins to load a partition led by this broker: replay its records, then `adopt` it.

        The leader epoch goes into the markers, so that those of a former coordinator are refused.

        """
        return self.load_into(
            TransactionShard(
                partition, coordinator_epoch, self.settings, self._write_marker, self._turn_of
            )
        )

    def _turn_of(
        self, transactional_id: str, operation: Callable[[TransactionShard, Result], None]
    ) -> None:
        try:
            self.change(transactional_id, operation)
        except (NotCoordinator, CoordinatorLoadInProgress):
            pass  # its current coordinator continues writing the markers
