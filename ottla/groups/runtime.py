"""The groups that this broker coordinates: a ShardRuntime for `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.groups.classic.requests import ServedClassicGroup
from ottla.groups.history.group_history import ENDS, NOT_RECORDED, GroupHistory
from ottla.groups.shard import NO_CLUSTER, Shard
from ottla.groups.shard_runtime import Clock, Later, ShardHost, ShardRuntime

if TYPE_CHECKING:
    from ottla.groups.cluster_view import ClusterView
    from ottla.groups.result import Result
    from ottla.groups.settings import GroupSettings
    from ottla.wire.errors import ProtocolError


class Runtime(ShardRuntime[Shard]):
    """All groups that this broker coordinates. Once `__consumer_offsets` exists, `partitions` is
    set to its partition count."""

    def __init__(
        self,
        settings: GroupSettings,
        clock: Clock,
        host: ShardHost,
        new_id: Callable[[], str],
        cluster: ClusterView = NO_CLUSTER,
        later: Later = lambda function: function(),
        replicated: bool = False,
    ) -> None:
        super().__init__(
            settings.offsets_topic_num_partitions, clock, host, later,
            settings.offsets_commit_timeout_ms,
        )
        self.settings, self.replicated = settings, replicated
        self._new_id = new_id
        self._cluster = cluster
        self.history = GroupHistory()

    def begin_load(self, partition: int) -> Shard:
        """Begins to load a partition that this broker leads. The caller replays the records, then
        calls `adopt`."""
        return self.load_into(
            Shard(partition, self.settings, self._new_id, self._cluster, self.replicated)
        )

    def adopt(self, shard: Shard) -> None:
        """Begins to coordinate a loaded shard."""
        # Rebalances that began when this broker coordinated the groups earlier may have ended since
        # then, under another coordinator.
        for group_id in [*self.history.rebalances]:
            if self.partition_of(group_id) == shard.partition:
                del self.history.rebalances[group_id]
        super().adopt(shard)

    def _happened(self, result: Result, error: ProtocolError | None) -> None:
        """Keep the events of a turn. If the log refused the turn's records, a KIP-848 group is
        unchanged, so its events are dropped. The members of a classic group have changed in memory,
        so its events are kept, except the end of a rebalance."""
        events, result.events = result.events, []
        for group_id, event in events:
            if error is None or (self._is_classic(group_id) and event.kind not in ENDS):
                self.history.note(group_id, event)
        for group_id in dict.fromkeys(group_id for group_id, _ in events) if error else ():
            result.note(group_id, NOT_RECORDED, reason=str(error))
            self.history.note(*result.events[-1])

    def _is_classic(self, group_id: str) -> bool:
        shard = self.live_shard(group_id)
        group = None if shard is None else shard.groups.get(group_id)
        return isinstance(group, ServedClassicGroup)

    @property
    def cluster(self) -> ClusterView:
        """The newest view of the cluster."""
        return self._cluster

    @cluster.setter
    def cluster(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        for shard in (*self.shards(), *self._loading.values()):
            shard.context.cluster = cluster

    def end_transaction(self, partition: int, producer_id: int, committed: bool) -> None:
        """A transaction's marker was appended to a partition of `__consumer_offsets`."""
        for _ in self.ending_steps(partition, producer_id, committed):
            pass

    def ending_steps(self, partition: int, producer_id: int, committed: bool) -> Iterator[None]:
        """Do the same as `end_transaction`, one offset in each step. The producer's next
        transaction may only begin after the last step.

        A shard whose log is still being read is left alone, since it will read the marker from the
        log. Its pending offsets may belong to an earlier transaction of the producer, and that
        transaction may have ended differently. A shard whose log was read to the end may have
        missed the marker, so the transaction is ended here. If the shard has read the marker, this
        changes nothing.
        """
        live = self._live.get(partition)
        shard = self._loading.get(partition) if live is None else live.shard
        if shard is not None and (live is not None or shard.is_read):
            yield from shard.offsets.ending_steps(producer_id, committed)
