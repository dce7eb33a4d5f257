"""The transactional ids that this broker coordinates: a ShardRuntime for `__transaction_state`.

It also writes the markers, which end the transactions in their partitions:

    end recorded -> a marker into each partition -> all committed -> client answered, end completed
                       '-- some failed: client answered, failed markers retried after a delay --'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.shard_runtime import Clock, Live, ShardHost, ShardRuntime
from ottla.groups.transactions.shard import (
    MARKER_RETRY_MS,
    NEXT_SLICE_MS,
    TransactionShard,
)
from ottla.wire.errors import InvalidRequest, ProtocolError
from ottla.wire.marks import reached

if TYPE_CHECKING:
    from ottla.groups.result import Answer, MarkersDue, Result
    from ottla.groups.settings import TransactionSettings
    from ottla.groups.transactions.markers import Ending, WriteMarker


class TransactionRuntime(ShardRuntime[TransactionShard]):
    """All transactional ids that this broker coordinates. Once `__transaction_state` exists,
    `partitions` is set to its partition count."""

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        host: ShardHost,
        write_marker: WriteMarker,
        replicated: bool = False,
    ) -> None:
        super().__init__(settings.transaction_state_log_num_partitions, clock, host)
        self.settings, self.replicated = settings, replicated
        self._write_marker = write_marker

    def partition_of(self, key: str) -> int:
        """The partition of `__transaction_state` that holds an id. Raises InvalidRequest."""
        if not key:
            raise InvalidRequest("the transactional id is empty")
        return super().partition_of(key)

    def begin_load(self, partition: int, coordinator_epoch: int) -> TransactionShard:
        """Begins to load a partition that this broker leads. The caller replays the records, then
        calls `adopt`.

        `coordinator_epoch` is the partition's leader epoch. Each marker contains it, so that
        markers of a former coordinator are refused.
        """
        return self.load_into(
            TransactionShard(partition, coordinator_epoch, self.settings, self.replicated)
        )

    def _perform(
        self, live: Live[TransactionShard], result: Result, producer: Producer = NO_PRODUCER
    ) -> None:
        for due in result.markers:
            result.reply(self._once_recorded(live.shard, due), None)
        super()._perform(live, result, producer)

    def _once_recorded(self, shard: TransactionShard, due: MarkersDue) -> Answer:
        """Begins to write the markers, or refuses the client if the end was not recorded."""

        def recorded(reply: Any) -> None:
            ending = shard.endings.get(due.transactional_id)
            if isinstance(reply, ProtocolError):
                if due.answer is not None:
                    due.answer(reply)
            elif ending is not None:
                if due.answer is not None:
                    ending.wait(due.answer, due.reply)
                ending.drive(self._write_marker, lambda ending: self._settled(shard, ending))

        return recorded

    def _settled(self, shard: TransactionShard, ending: Ending) -> None:
        if ending.has_untried:
            self._try_again(shard, ending, NEXT_SLICE_MS)
            return
        # The decision is durable. The client waits neither for markers that could not be written
        # nor for the record of the completion.
        ending.release()
        if ending.remaining:
            reached("markers could not be written and are tried again")
            self._try_again(shard, ending, MARKER_RETRY_MS)
            return

        def completed(reply: Any) -> None:
            if isinstance(reply, ProtocolError):
                reached("the completion of a transaction was refused")
                # For example on a full disk: the id must not stay in the ending state for ever.
                self._try_again(shard, ending, MARKER_RETRY_MS)

        self._turn_of(shard, lambda result: shard.complete(ending, result), completed)

    def _try_again(self, shard: TransactionShard, ending: Ending, after_ms: int) -> None:
        self._turn_of(shard, lambda result: shard.try_again(ending, after_ms, result))

    def _turn_of(
        self,
        shard: TransactionShard,
        operation: Callable[[Result], None],
        answer: Answer | None = None,
    ) -> None:
        """Run `operation` as one turn of the shard that has recorded the end of a transaction. The
        shard is not looked up by the transactional id: if `__transaction_state` has got more
        partitions meanwhile, the id may belong to another shard."""
        live = self._live.get(shard.partition)
        if live is None or live.shard is not shard:
            reached("markers were written after their coordinator had moved")
            return      # its current coordinator continues writing the markers
        result = self._turn(live)
        operation(result)
        if answer is not None:
            result.reply(answer, None)
        self._perform(live, result)
