# cython: boundscheck=False, wraparound=False
"""A partition as its leader or a follower sees it: who leads, how far clients may read, and which
acknowledgements are pending.

A batch that was sent with acks=all is neither acknowledged nor readable before it is as durable as
promised: while this broker is the only in-sync replica, that is when it has been flushed to the
disk. The high watermark stops before such a batch until then, so that no client reads data that a
power cut could remove.

With several replicas in sync, a batch is committed once each of them has it in memory. Where the
in-sync set shrinks to this broker, the disk counts again.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.counters cimport PartitionCounters
from ottla.replication.followers cimport Follower, Followers
from ottla.wire.batch cimport base_offset, last_offset_delta

from ottla.wire.errors import (
    ErrorCode, FencedLeaderEpoch, NotEnoughReplicas, NotLeaderOrFollower, StorageFailed,
    UnknownLeaderEpoch,
)

cdef int NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
cdef int TOO_FEW_AFTER_APPEND = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


# After so long a follower that asks for the same records again may get bytes that are damaged.
cdef int64_t STUCK_MS = 5000


cdef class Watcher:
    cdef int moved(self, Partition partition) except -1:
        raise AssertionError("a Watcher says what it does when a partition moved")

    cdef int readable_moved(self, Partition partition) except -1:
        """Called for a watcher of appends when clients can read further; not urgent for it."""
        return 0


cdef class Promise:
    cdef int kept(self, Partition partition) except -1:
        raise AssertionError("a Promise says what it does when it is kept")


cdef class Partition:
    """One partition on this broker. Everything in it happens on the event loop's thread."""

    def __init__(
        self, str topic, int index, bytes topic_id, PartitionLog log, bint flush_before_ack,
        dict with_sealed=None, cluster=None, int64_t high_watermark=-1
    ):
        """`cluster` is a ClusterSide, None standalone; `high_watermark` is the checkpointed one,
        -1 where this is the only copy."""
        self.topic, self.index, self.topic_id = topic, index, topic_id
        self.log = log
        self.leader_id = self.leader_epoch = -1
        self.flush_before_ack = flush_before_ack
        # Recovered records are served at once; after a crash housekeeping flushes them.
        self.high_watermark = log.log_end_offset
        if high_watermark >= 0:
            # The log's end may have records that the other replicas lack.
            self.high_watermark = min(
                max(high_watermark, log.log_start_offset), self.high_watermark)
        self.cluster, self.ended_code = cluster, NOT_LEADER
        self.partition_epoch, self.offline = -1, ()
        self.start_watchers = {}
        self.flush_wanted_upto = self.high_watermark
        self.kept_start = log.log_start_offset
        self.counters = PartitionCounters()
        self.watchers = {}
        self.promises = []
        self.with_sealed = {} if with_sealed is None else with_sealed

    def __repr__(self):
        return f"{self.topic}-{self.index}"

    def lead(self, int leader_id, int leader_epoch, bint led_here):
        """The image has a new leader epoch for the partition."""
        if led_here and leader_epoch > self.leader_epoch:
            self.log.assign_epoch_start(leader_epoch)
        self.leader_id, self.leader_epoch, self.led_here = leader_id, leader_epoch, led_here
        self.wake()

    def append_bytes(self, batch, bint all_replicas=True):
        """Append one validated batch from Python; returns its base offset."""
        cdef uint8_t[::1] view = bytearray(batch)
        return self.append(&view[0], view.shape[0], all_replicas)

    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, bint all_replicas) except -2:
        """Append a validated batch; clients may read it at once unless it waits for its flush."""
        cdef int64_t base
        if self.replicated:
            return self.append_replicated(batch, size, all_replicas)
        base = self.log.append(batch, size, self.leader_epoch)
        if not self.log.duplicate:
            self.counters.messages_in += self.log.log_end_offset - base
            self.counters.bytes_in += size
        if self.log.has_sealed():
            self.with_sealed[self] = None
        if all_replicas and self.flush_before_ack:
            # A duplicate's first copy may still wait for its flush, and so must its reply.
            if not self.log.duplicate:
                self.flush_wanted_upto = self.log.log_end_offset
            elif self.log.durable_offset() <= base + last_offset_delta(batch) < self.high_watermark:
                # Recovered after a crash it is readable before its flush, but not acknowledged.
                self.log.flush()
        elif self.log.log_end_offset - self.log.durable_offset() >= self.log.flush_messages:
            # flush.messages: Kafka flushes before it answers, here the answer waits for the flush.
            if not self.log.duplicate:
                self.flush_wanted_upto = self.log.log_end_offset
        elif self.flush_wanted_upto <= self.high_watermark:
            self.advance(self.log.log_end_offset)
        return base

    def flushed(self, int64_t offset):
        """Everything below `offset` is on disk; returns whether another flush is wanted."""
        if self.replicated:
            if self.followers is not None:
                self.raise_high_watermark(self.log.clock.monotonic_ms())
            elif self.following:
                self.cluster.synced(self)
            return self.flush_wanted_upto > offset
        if self.flush_wanted_upto <= offset:
            self.advance(self.log.log_end_offset)
            return False
        self.advance(offset)
        return True

    def wants_flush(self):
        """Whether an acknowledgement waits for the disk."""
        if self.replicated:
            return self.flush_wanted_upto > self.log.durable_offset()
        return self.flush_wanted_upto > self.high_watermark

    cdef int advance(self, int64_t offset) except -1:
        cdef Promise promise
        assert offset <= self.log.log_end_offset, "high watermark past the end of the log"
        if offset <= self.high_watermark:
            return 0
        self.high_watermark = offset
        while self.promises and (<Promise>self.promises[0]).required <= offset:
            promise = <Promise>self.promises.pop(0)
            promise.kept(self)
        if self.watchers:
            self.wake()
        if self.append_watchers:
            for watcher in list(self.append_watchers):
                (<Watcher>watcher).readable_moved(self)
        return 0

    def wake(self):
        """Notify every watcher of a change."""
        for watcher in list(self.watchers):
            (<Watcher>watcher).moved(self)

    def wake_followers(self):
        """Notify those who read to the log's end."""
        for watcher in list(self.append_watchers or ()):
            (<Watcher>watcher).moved(self)

    cdef int64_t readable_end(self, bint committed_only) except -1:
        """The first offset that a client may not read: high watermark or last stable offset."""
        if committed_only:
            return self.log.stable_offset(self.high_watermark)
        return self.high_watermark

    def last_stable_offset(self):
        """The first offset that a read_committed client may not read (KIP-98)."""
        return self.readable_end(True)

    def watch(self, Watcher watcher not None):
        self.watchers[watcher] = None

    def unwatch(self, Watcher watcher not None):
        self.watchers.pop(watcher, None)
        if self.append_watchers is not None:
            self.append_watchers.pop(watcher, None)

    def watch_appends(self, Watcher watcher not None):
        """Notify a follower's fetch of every append, not only of what clients may read."""
        if self.append_watchers is None:
            self.append_watchers = {}
        self.append_watchers[watcher] = None

    cdef int promise(self, Promise promise) except -1:
        """Insert `promise` in the order of required offsets; nearly always that is at the end."""
        cdef Py_ssize_t at = len(self.promises)
        while at > 0 and (<Promise>self.promises[at - 1]).required > promise.required:
            at -= 1
        self.promises.insert(at, promise)
        return 0

    cdef bint break_promise(self, Promise promise) except -1:
        """Withdraw a promise; False if it has been kept or given up already."""
        if promise not in self.promises:
            return False
        self.promises.remove(promise)
        return True

    cdef int check_leader(self, int32_t client_epoch) except -1:
        """Refuse a client that believes in another leader epoch (KIP-320); -1: unknown to it."""
        if not self.led_here:
            raise NotLeaderOrFollower(f"{self!r} is led by broker {self.leader_id}")
        # A damaged log accepts no more records, and is served up to the damage.
        if self.log.health.offline is not None and self.log.health.damage is None:
            raise StorageFailed(f"{self!r} is offline: {self.log.health.offline}")
        return self.check_epoch(client_epoch)

    cdef int check_follower(self, int32_t client_epoch) except -1:
        """`check_leader` for a consumer that reads from a follower (KIP-392)."""
        if not self.following:
            return self.check_leader(client_epoch)
        # What a damaged log lacks the others have.
        if self.log.health.offline is not None:
            raise StorageFailed(f"{self!r} is offline: {self.log.health.offline}")
        return self.check_epoch(client_epoch)

    cdef int check_epoch(self, int32_t client_epoch) except -1:
        if client_epoch == -1 or client_epoch == self.leader_epoch:
            return 0
        if client_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"{self!r} is led in epoch {self.leader_epoch}, the request says {client_epoch}")
        raise UnknownLeaderEpoch(
            f"{self!r} is led in epoch {self.leader_epoch}, the request says {client_epoch}")

    def require_leader(self, int client_epoch=-1):
        """Raise unless this broker leads the partition, in the epoch that the client gives."""
        self.check_leader(client_epoch)

    def close(self):
        """Wake everybody who waits here; they find the partition gone."""
        self.led_here = self.following = self.in_step = False
        self.followers = None
        self.give_up()

    def give_up(self, int code=NOT_LEADER):
        """End all waiting here: break the promises and notify the watchers.

        `code` is the error with which promises end: the outcome of their batches is unknown.
        """
        self.ended_code = code
        promises, self.promises = self.promises, []
        for promise in promises:
            if code == TOO_FEW_AFTER_APPEND and (<Promise>promise).outlasts_isr:
                self.promises.append(promise)
            else:
                (<Promise>promise).kept(self)
        self.wake()
        self.wake_followers()
        self.log_starts_moved()

    # A role among several replicas

    def assume(self, int leader_id, int leader_epoch, int node_id, tuple replicas, tuple isr,
               int partition_epoch, tuple offline=(), int adding=0):
        """Lead or follow, as the image says; `node_id` is this broker. An older one is ignored.
        `offline` are replicas in failed log directories: they do not count. `adding` is how many
        replicas a reassignment adds."""
        cdef bint led = leader_id == node_id, was_led = self.led_here
        cdef bint counts_again
        if self.replicated and (
                leader_epoch < self.leader_epoch or partition_epoch < self.partition_epoch):
            return
        begins = led and (leader_epoch > self.leader_epoch or self.followers is None)
        if begins:
            # Recorded before any append, so that followers find where this epoch began.
            self.log.assign_epoch_start(leader_epoch)
            self.epoch_start = self.log.log_end_offset
            self.followers = Followers(
                [node for node in replicas if node != node_id], isr, self.cluster.lag_ms,
                self.log.clock.monotonic_ms())
            self.proposed = None
        if not self.replicated or not led:
            self.flush_wanted_upto = 0
        if led or leader_epoch > self.leader_epoch or leader_id != self.leader_id:
            self.in_step = False
        # A fetch that did not count, as the replica was offline, counts now.
        counts_again = led and self.offline != offline
        self.replicated = True
        self.leader_id, self.leader_epoch, self.led_here = leader_id, leader_epoch, led
        self.following = not led and leader_id >= 0
        self.replicas, self.offline, self.adding = replicas, offline, adding
        self.log.health.replaceable = len(isr) > (node_id in isr)
        if not led:
            self.followers = None
            self.isr, self.partition_epoch, self.proposed = isr, partition_epoch, None
            self.alone = self.under_min_isr = False
            if was_led:
                self.give_up()
        else:
            self.take_isr(isr, partition_epoch, node_id, begins)
        if begins or not led:
            self.wake()
        if begins or not led or counts_again:
            self.wake_followers()

    def take_isr(self, tuple isr, int partition_epoch, int node_id, bint begins):
        """The committed in-sync set of a partition that this broker leads."""
        cdef bint was_alone = self.alone and not begins
        if partition_epoch > self.partition_epoch or begins:
            self.proposed = None
            self.followers.decided()
        if not begins:
            self.counters.isr_shrinks += len(isr) < len(self.isr)
            self.counters.isr_expands += len(isr) > len(self.isr)
        self.isr, self.partition_epoch = isr, partition_epoch
        self.alone = isr == (node_id,)
        self.followers.follow(isr, self.cluster.broker_epoch_of, self.offline)
        if self.must_sync() or self.alone and not was_alone and self.flush_before_ack:
            # Until now copies in memory counted, or another leader's: what waits is flushed first.
            self.flush_wanted_upto = self.log.log_end_offset
        elif not self.alone:
            self.flush_wanted_upto = 0
        self.check_min_isr()
        self.raise_high_watermark(self.log.clock.monotonic_ms())
        self.ask_for_isr()              # for those that caught up while a proposal was open
        if self.wants_flush():
            self.cluster.flush(self)

    def check_min_isr(self):
        """Compare the committed in-sync set with min.insync.replicas, when either changes."""
        cdef bint was_under = self.under_min_isr
        if self.followers is None:
            return
        self.under_min_isr = len(self.isr) < min(
            self.log.config.min_insync_replicas, len(self.replicas))
        if self.under_min_isr and not was_under:
            self.give_up(TOO_FEW_AFTER_APPEND)
        elif was_under and not self.under_min_isr:
            self.raise_high_watermark(self.log.clock.monotonic_ms())

    def brokers_changed(self):
        """Brokers came or went: an absent one that is not in sync holds nothing back any more."""
        if self.followers is not None:
            self.followers.follow(self.isr, self.cluster.broker_epoch_of, self.offline)
            self.raise_high_watermark(self.log.clock.monotonic_ms())
            self.ask_for_isr()
            if not self.followers.all_live():
                # A fetch that did not count may be of a broker epoch that is known now.
                self.wake_followers()
            self.log_starts_moved()

    # Leading

    cdef int64_t append_replicated(
        self, uint8_t *batch, Py_ssize_t size, bint all_replicas
    ) except -2:
        """`append` of a partition with several replicas. Raises NotEnoughReplicas."""
        cdef int64_t base, end
        if all_replicas and self.under_min_isr:
            raise NotEnoughReplicas(
                f"{self!r} has {len(self.isr)} replicas in sync, min.insync.replicas is "
                f"{self.log.config.min_insync_replicas}")
        base = self.log.append(batch, size, self.leader_epoch)
        end = base + last_offset_delta(batch) + 1
        if self.log.has_sealed():
            self.with_sealed[self] = None
        if not self.log.duplicate:
            self.counters.messages_in += end - base
            self.counters.bytes_in += size
            self.followers.appended(self.log.clock.monotonic_ms())
        if all_replicas and self.alone and self.flush_before_ack:
            if not self.log.duplicate or end > self.high_watermark:
                self.flush_wanted_upto = max(self.flush_wanted_upto, end)
            elif self.log.durable_offset() < end:
                self.log.flush()
        elif self.must_sync():
            self.flush_wanted_upto = self.log.log_end_offset
        self.raise_high_watermark(self.log.clock.monotonic_ms())
        if self.append_watchers:
            self.wake_followers()
        return base

    cdef int raise_high_watermark(self, int64_t now_ms) except -1:
        """Advance the high watermark to what every replica that counts has. It never goes back, and
        does not move while the committed in-sync set is too small (KIP-966)."""
        cdef int64_t own = self.log.log_end_offset, durable = self.log.durable_offset()
        if self.under_min_isr or self.followers is None:
            return 0
        if self.flush_wanted_upto > durable:
            own = durable
        own = self.followers.least_end(own, now_ms)
        if own > self.high_watermark:
            self.advance(own)
        return 0

    cdef bint replica_fetched(
        self, int32_t node_id, int64_t broker_epoch, int64_t offset, int64_t log_start
    ) except -1:
        """A replica has everything below `offset`: its fetch has passed the checks of epoch and
        divergence. False if it does not count: no replica, a former incarnation, or a failed
        log directory."""
        cdef Follower *follower
        cdef int64_t now_ms
        cdef bint start_moved
        if self.followers is None:
            return False
        follower = self.followers.find(node_id)
        # An epoch of -1 says nothing: a broker that knows it was removed has it, too.
        if (follower is NULL or broker_epoch < 0
                or self.cluster.broker_epoch_of(node_id) != broker_epoch):
            return False
        if self.offline and node_id in self.offline:
            return False
        now_ms = self.log.clock.monotonic_ms()
        start_moved = follower.log_start != log_start
        if self.followers.fetched(
                follower, broker_epoch, offset, log_start, self.log.log_end_offset, now_ms):
            self.raise_high_watermark(now_ms)
        if follower.stuck_ms >= 0 and now_ms - follower.stuck_ms >= STUCK_MS:
            follower.stuck_ms = now_ms
            self.cluster.doubted(self, offset)
        if start_moved and self.start_watchers:
            self.log_starts_moved()
        if not follower.in_isr and not follower.joining:
            self.ask_for_isr()
        return True

    def fetched_by(self, int node_id, broker_epoch, offset, log_start=0):
        """`replica_fetched`, for Python."""
        return self.replica_fetched(node_id, broker_epoch, offset, log_start)

    def ask_for_isr(self):
        """Notify the cluster's side if a follower may join the in-sync set."""
        cdef int at
        if self.proposed is not None:
            return
        for at in range(self.followers.count):
            if self.followers.may_join(
                    &self.followers.each[at], self.high_watermark, self.epoch_start):
                self.cluster.isr_due(self)
                return

    def propose_isr(self, int node_id, int64_t node_epoch):
        """The in-sync set to request from the controller, ((node, broker epoch), ...); None if it
        is right or a proposal is open. Joining replicas count from now on, leaving ones still
        do."""
        cdef int64_t now_ms = self.log.clock.monotonic_ms()
        if self.followers is None or self.proposed is not None:
            return None
        joining, leaving = self.followers.propose(self.high_watermark, self.epoch_start, now_ms)
        if not joining and not leaving:
            return None
        epochs = {node: epoch for node, epoch, _, _, _ in self.followers.states()}
        epochs[node_id] = node_epoch
        stay = [node for node in self.isr if node not in leaving]
        nodes = stay + [node for node, _ in joining]
        self.proposed = tuple(nodes)
        return tuple([(node, epochs[node]) for node in nodes])

    def proposal_failed(self):
        """The controller has certainly not executed the proposal."""
        self.proposed = None
        if self.followers is not None:
            self.followers.decided()

    cdef bint must_sync(self) noexcept:
        """Whether flush.messages requires a flush before anybody may count on the log's end."""
        return self.log.log_end_offset - self.log.durable_offset() >= self.log.flush_messages

    def own_end(self):
        """The last leader epoch of this replica's own log, -1 for none, and its end; where it is
        damaged, up to there."""
        if self.log.health.offline is not None:
            return self.log.readable_own_end()
        return self.log.latest_epoch, self.log.log_end_offset

    def log_starts_moved(self):
        """Call those who wait for the log starts of replicas."""
        for called in list(self.start_watchers):
            called()

    def start_moved(self):
        """Retention has moved the log start: readers, and the other replicas, hear of it."""
        self.kept_start = self.log.log_start_offset     # its files are gone
        self.wake()
        self.wake_followers()
        if self.following:
            self.cluster.start_moved(self)

    def low_watermark(self):
        """The least log start of all live replicas (KIP-107); -1 while one is not known."""
        least = self.log.log_start_offset
        if self.followers is not None:
            for node, broker_epoch, _, log_start, _ in self.followers.states():
                registered = self.cluster.broker_epoch_of(node)
                if registered >= 0 and node not in self.offline:
                    least = min(least, log_start if broker_epoch == registered else -1)
        return least

    def follower_states(self):
        """`Followers.states`, none if this broker does not lead it."""
        return [] if self.followers is None else self.followers.states()

    @property
    def end_is_known(self):
        """Whether a new leader knows everything that was committed before its term (KIP-207)."""
        return self.followers is None or self.high_watermark >= self.epoch_start

    # Following

    cdef int append_from_leader(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Append whole batches that `checked_batches` found valid. Raises StorageFailed."""
        cdef int64_t start = self.log.log_start_offset
        assert self.following, "only a follower takes its leader's batches"
        if base_offset(data) < self.log.log_end_offset:
            self.start_anew(base_offset(data))      # it was to begin within the batch
        self.log.append_run(data, size)
        if start > self.log.log_start_offset:
            self.log.delete_before(start)
        self.counters.replicated_in += size
        if self.log.has_sealed():
            self.with_sealed[self] = None
        return 0

    cdef int follow_leader(self, int64_t high_watermark, int64_t log_start) except -1:
        """Take over the offsets of its own log that the leader's reply has."""
        self.leader_high_watermark = high_watermark
        high_watermark = min(high_watermark, self.log.log_end_offset)
        if high_watermark > self.high_watermark:
            self.advance(high_watermark)
        if not self.in_step:
            self.in_step = True
            self.wake()                     # consumers wait here for what was committed before
        if self.log.log_start_offset < log_start <= self.log.log_end_offset:
            self.log.delete_before(log_start)
        if self.kept_start < self.log.log_start_offset:
            self.cluster.keep_start(self)
        return 0

    cdef int64_t told_start(self) noexcept:
        """The log start that this follower reports to its leader, which answers DeleteRecords once
        all have reported theirs. It is never above the one that a restart finds."""
        return min(self.kept_start, self.log.log_start_offset)

    def start_kept(self, int64_t offset):
        """A checkpoint with this log start has been written."""
        self.kept_start = max(self.kept_start, offset)

    def diverged(self, int epoch, int64_t end, int64_t leader_start):
        """Truncate the log to where it and the leader's diverge (KIP-101, KIP-279, KIP-595): the
        leader's epoch up to the one that was fetched last is `epoch`, and ends at `end`.

        Never by the high watermark, unless no epochs are known. The next fetch checks again, until
        both agree. True: the truncation must be in the checkpoints before the next append, as a
        restart goes by their recovery point and high watermark. Raises StorageFailed.
        """
        cdef int64_t cut = min(end, self.log.log_end_offset)
        own_epoch, own_end = self.log.end_offset_for_epoch(epoch)
        if own_epoch >= 0:
            cut = min(cut, own_end)
        elif self.log.latest_epoch < 0:
            cut = min(cut, self.high_watermark)
        if cut < self.log.log_start_offset or cut < self.compacted_end():
            # The leader may have records that deletion or compaction has removed here.
            return self.start_anew(leader_start)
        return self.cut_to(cut)

    cdef int64_t compacted_end(self) except -1:
        """Up to where compaction may have removed older records of the same keys. A pass that has
        not come to its end may have used all that is committed, and replaced some segments."""
        if self.log.config.compacts:
            return max(self.log.first_dirty_offset, self.high_watermark)
        return self.log.first_dirty_offset

    def cut_to(self, int64_t offset):
        """Remove everything from `offset` on; returns as `diverged` does."""
        cdef int64_t known = max(self.log.checkpoint_offset, self.high_watermark)
        self.log.truncate_to(offset)
        self.shortened(self.log.log_end_offset)
        return self.log.log_end_offset < known

    def shortened(self, int64_t high_watermark_max):
        """Lower the high watermark after a follower's log was cut. Consumers that wait here are
        answered: until the log was compared with the leader's again they have to read there."""
        self.high_watermark = min(self.high_watermark, high_watermark_max)
        self.in_step = False
        self.wake()

    @property
    def damaged(self):
        """Whether this is one of several replicas, and its log accepts no writes for its damage."""
        return self.replicated and self.log.damage is not None

    def repair(self):
        """Put what is damaged aside: the leader has its records. Only for a replica that counts
        nowhere. Returns the paths of what was put aside. Raises StorageFailed."""
        assert self.following, "only a follower's records are elsewhere"
        aside = self.log.repair()
        self.shortened(self.log.log_end_offset)
        return aside

    def start_anew(self, int64_t offset):
        """Discard the whole log, and begin again at the leader's log start. Always True."""
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = self.kept_start = offset
        self.shortened(offset)
        return True
