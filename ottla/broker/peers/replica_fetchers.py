"""Assigns followed partitions to fetchers: one fetcher and one link for each broker that leads some
of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.broker.peers.fetch_link import FetchLink
from ottla.broker.peers.peers import Peers, PeerUnavailable
from ottla.replication.fetch_settings import FetchSettings
from ottla.replication.fetcher import Fetcher
from ottla.wire.errors import StorageFailed
from ottla.wire.marks import reached
from ottla.wire.wording import counted

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.broker.settings.config import BrokerConfig
    from ottla.broker.upkeep.checkpoint_writer import Checkpoints
    from ottla.log.storage.log_directory import LogDirectory
    from ottla.replication.metadata import MetadataImage
    from ottla.replication.partition import Partition
    from ottla.replication.throttle import Throttle

log = logging.getLogger("ottla.fetchers")

BACKOFF_SECONDS_MIN = 0.05
SWEEP_SECONDS = 5.0
CUT_AGAIN_SECONDS = 1.0
KEEP_AGAIN_SECONDS = 0.2


class Source:
    """One leader: its fetcher, and its link while there is one."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher
        self.link: FetchLink | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.failures = 0
        self.fetched = -1               # `bytes_fetched` of the fetcher when its last link ended

    @property
    def node_id(self) -> int:
        return self.fetcher.plan.source_id


class ReplicaFetchers:
    """The fetchers of one broker. `follow` is called with each new image. `changed` is called with
    every partition whose leader, epoch or role has changed."""

    def __init__(
        self, config: BrokerConfig, peers: Peers, checkpoints: Checkpoints,
        throttle: Throttle | None = None,
    ) -> None:
        self.node_id, self.peers, self.checkpoints = config.node_id, peers, checkpoints
        self.loop = peers.loop
        self.settings = FetchSettings(
            wait_ms_max=config.replica_fetch_wait_max_ms,
            size_min=config.replica_fetch_min_bytes,
            size_max=config.replica_fetch_response_max_bytes,
            partition_size_max=config.replica_fetch_max_bytes,
            backoff_ms_max=config.replica_fetch_backoff_ms,
            client_id=f"broker-{config.node_id}-fetcher",
            throttle=throttle,
            tells_high_watermark=config.redirects_consumers,
        )
        self.backoff_seconds_max = config.replica_fetch_backoff_ms / 1000
        self.silence_seconds = config.replica_socket_timeout_ms / 1000
        self.sources: dict[int, Source] = {}
        self.source_of: dict[Partition, int] = {}
        self.cut: dict[Partition, None] = {}
        """Truncated partitions for which no new checkpoint is written yet. The fetchers of all
        leaders share this table."""
        self.broker_epoch = -1
        self.moved: dict[Partition, None] = {}
        """Partitions whose log start has followed the leader's, but is not in a checkpoint yet."""
        self.held_back: dict[Partition, None] = {}
        """Partitions that are not fetched because their log directories are full."""
        self.cutting: asyncio.Task[None] | None = None
        self.keeping: asyncio.Task[None] | None = None
        self.sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)
        self.closed = False

    # The partitions that are followed

    def follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str]
    ) -> None:
        """Fetch with the broker epoch of this broker's current registration."""
        broker = new.brokers.get(self.node_id)
        self.broker_epoch = -1 if broker is None else broker.epoch
        for source in self.sources.values():
            source.fetcher.plan.broker_epoch = self.broker_epoch

    def changed(self, partitions: Iterable[Partition]) -> None:
        """These partitions have a new leader, epoch or role, or are gone: begin, change or stop
        fetching them."""
        if self.closed:
            return                          # `close` has released all partitions already
        touched: dict[int, Source] = {}
        for partition in partitions:
            before = self.source_of.get(partition)
            leader = partition.leader_id if self._is_fetched(partition) else -1
            if before is not None and before != leader:
                self.sources[before].fetcher.plan.drop(partition)
                touched[before] = self.sources[before]
                del self.source_of[partition]
            if leader >= 0:
                source = self._source(leader)
                source.fetcher.plan.follow(partition)
                self.source_of[partition] = leader
                touched[leader] = source
            if self._waits_for_space(partition):
                self.held_back[partition] = None
                reached("a partition is not fetched as its disk is full")
            else:
                self.held_back.pop(partition, None)
        for source in touched.values():
            self._go_on(source)

    def look_at_space(self) -> None:
        """A log directory is full or has space again: stop or resume fetching the partitions in
        it."""
        fetched = [each for each in self.source_of if self._waits_for_space(each)]
        may_go_on = [each for each in self.held_back if not self._waits_for_space(each)]
        self.changed([*fetched, *may_go_on])

    def _is_fetched(self, partition: Partition) -> bool:
        """Whether a partition is followed, and its log directory works and has space."""
        return _is_copied(partition) and not self._is_full(partition)

    def _waits_for_space(self, partition: Partition) -> bool:
        """Whether a partition would be fetched if its log directory had space."""
        return _is_copied(partition) and self._is_full(partition)

    def _is_full(self, partition: Partition) -> bool:
        home = self.checkpoints.storage.homes.get((partition.topic, partition.index))
        return home is not None and home.space.full

    def synced(self, partition: Partition) -> None:
        """A flush has ended: this replica's offset may be reported to the leader
        (flush.messages)."""
        source = self.sources.get(self.source_of.get(partition, -1))
        if source is not None and source.fetcher.plan.synced(partition):
            self._go_on(source)

    def start_moved(self, partition: Partition) -> None:
        """Retention has moved a log's start: report it, so that the leader sends no consumer here
        for removed records."""
        source = self.sources.get(self.source_of.get(partition, -1))
        if source is not None and source.fetcher.plan.tell(partition):
            self._go_on(source)

    def keep_start(self, partition: Partition) -> None:
        """A log start has followed the leader's: write it into a checkpoint, and then report it to
        the leader."""
        self.moved[partition] = None
        if self.keeping is None and not self.closed:
            self.keeping = self.loop.create_task(self._keep_starts())

    def repaired(self, partition: Partition) -> None:
        """The damaged end of a log was put aside: fetch its records again, once a checkpoint has
        the new end of the log."""
        reached("a repaired log waits for its checkpoint")
        self.cut[partition] = None
        self.changed([partition])
        self._write_cuts()

    def _source(self, node_id: int) -> Source:
        source = self.sources.get(node_id)
        if source is None:
            clock = self.loop.poller.clock
            fetcher = Fetcher(self.node_id, node_id, clock, self.settings, self.cut)
            fetcher.plan.broker_epoch = self.broker_epoch
            source = self.sources[node_id] = Source(fetcher)
        return source

    def _go_on(self, source: Source) -> None:
        if len(source.fetcher.plan) == 0:
            self._let_go(source)
        elif source.link is not None:
            source.link.send_due()
        elif source.connecting is None:
            source.connecting = self.loop.create_task(self._connect(source))

    def _let_go(self, source: Source) -> None:
        """Close a source from which nothing is fetched any more."""
        self.sources.pop(source.node_id, None)
        if source.connecting is not None:
            source.connecting.cancel()
            source.connecting = None
        if source.link is not None:
            link, source.link = source.link, None
            link.close(ConnectionError("no partitions are fetched from that broker any longer"))

    # Links

    async def _connect(self, source: Source) -> None:
        """Open the source's link, retrying until it succeeds."""
        while True:
            if source.failures:
                await asyncio.sleep(min(
                    self.backoff_seconds_max,
                    BACKOFF_SECONDS_MIN * 2 ** min(source.failures - 1, 10),
                ))
            try:
                transport = await self.peers.open_transport(source.node_id)
            except PeerUnavailable as error:
                source.failures += 1
                reached("a leader could not be reached")
                log.log(
                    logging.WARNING if source.failures == 1 else logging.DEBUG,
                    "%s cannot be fetched: %s",
                    counted(len(source.fetcher.plan), "partition"), error,
                )
                continue
            break
        source.connecting = None
        count = counted(len(source.fetcher.plan), "partition")
        log.info("fetching %s from broker %d", count, source.node_id)
        source.link = FetchLink(
            self.loop, transport, source.fetcher, self._ended(source), self._write_cuts
        )
        if transport.expires_at:
            self.loop.call_at(transport.expires_at, self._renew, source, source.link)
        source.link.send_due()

    def _renew(self, source: Source, link: FetchLink) -> None:
        """Replace a link whose login is about to expire; the next one logs in again."""
        if source.link is link:
            link.close(ConnectionError("the login of this connection is about to expire"))
            source.link = None
            self._go_on(source)

    def _ended(self, source: Source) -> Callable[[Exception], None]:
        def ended(error: Exception) -> None:
            source.link = None
            log.warning("fetching from broker %d has ended: %s", source.node_id, error)
            if self.closed or self.sources.get(source.node_id) is not source:
                return
            # The delay grows while each new connection breaks before it has fetched anything.
            fetched = source.fetcher.bytes_fetched
            source.failures = source.failures + 1 if fetched == source.fetched else 1
            source.fetched = fetched
            self._go_on(source)

        return ended

    def _sweep(self) -> None:
        """Replace links that are silent although an answer is due."""
        now = self.loop.time()
        for source in list(self.sources.values()):
            link = source.link
            if link is None:
                continue
            if source.fetcher.plan.outstanding and now - link.heard_at > self.silence_seconds:
                reached("a silent link was replaced")
                link.close(TimeoutError("the other broker sent nothing in time"))
                self._ended(source)(TimeoutError("the other broker sent nothing in time"))
            elif now - link.heard_at > SWEEP_SECONDS:
                link.trim()
        self.sweeper = self.loop.call_later(SWEEP_SECONDS, self._sweep)

    # Truncations

    def _write_cuts(self) -> None:
        if self.cutting is None and not self.closed:
            self.cutting = self.loop.create_task(self._checkpoint())

    async def _checkpoint(self) -> None:
        """Write the checkpoints of logs that were truncated below the recovery point or high
        watermark that their checkpoint has. Records are appended to these logs only afterwards.
        Otherwise a restart would trust new records below the old recovery point, and would show
        consumers new records below the old high watermark. One write serves all logs that were
        truncated meanwhile. If a log directory is full, only the logs in it have to wait."""
        try:
            while self.cut:
                storage = self.checkpoints.storage
                known = {each: storage.homes.get((each.topic, each.index)) for each in self.cut}
                for partition, home in known.items():
                    key = partition.topic, partition.index
                    if home is not None and storage.logs.get(key) is partition.log:
                        home.high_watermarks[key] = partition.high_watermark
                full = await self._refusing(known.values())
                written = [each for each, home in known.items() if home not in full]
                for partition in written:
                    self.cut.pop(partition, None)
                for source in list(self.sources.values()):
                    source.fetcher.plan.checkpointed(written)
                    self._go_on(source)
                if full:
                    reached("a truncation could not be checkpointed")
                    await asyncio.sleep(CUT_AGAIN_SECONDS)
        finally:
            self.cutting = None

    async def _keep_starts(self) -> None:
        """Write checkpoints with the log starts that have followed the leaders', and then report
        these log starts to the leaders. One write serves all log starts that have moved
        meanwhile."""
        try:
            while self.moved:
                starts = {each: each.log.log_start_offset for each in self.moved}
                self.moved.clear()
                unsafe = await self.checkpoints.log_starts(
                    {(each.topic, each.index) for each in starts}
                )
                for partition, start in starts.items():
                    if (partition.topic, partition.index) not in unsafe:
                        partition.start_kept(start)
                        self.start_moved(partition)
                    elif self._is_fetched(partition):
                        self.moved[partition] = None
                if self.moved:              # retention at a leader moves many log starts at once
                    await asyncio.sleep(CUT_AGAIN_SECONDS if unsafe else KEEP_AGAIN_SECONDS)
        finally:
            self.keeping = None

    async def _refusing(self, homes: Iterable[LogDirectory | None]) -> list[LogDirectory]:
        """Write the checkpoints of these directories; returns the directories whose checkpoint
        failed."""
        full: list[LogDirectory] = []
        for home in dict.fromkeys(homes):
            if home is None or home.offline is not None:
                continue
            try:
                await self.checkpoints.write_of(home)
            except StorageFailed as error:
                if not home.space.full:
                    log.error(
                        "replicas that were truncated fetch no records until the checkpoint files"
                        " of their log directory can be written: %s", error)
                full.append(home)
        return full

    def close(self) -> None:
        """Stop fetching."""
        self.closed = True
        self.sweeper.cancel()
        for task in (self.cutting, self.keeping):
            if task is not None:
                task.cancel()
        for source in list(self.sources.values()):
            self._let_go(source)


def _is_copied(partition: Partition) -> bool:
    """Whether a partition is followed, and its log works."""
    return partition.role.following and partition.log.offline is None
