# cython: boundscheck=False, wraparound=False
"""One partition on this broker: its log, its leader, how far clients may read, and the
acknowledgements that are pending. A ReplicaRole implements what depends on the partition's role;
`roles/` has the roles of a sole replica, a leader and a follower.

A batch that was sent with acks=all is neither acknowledged nor readable before it is durable. While
this broker is the only in-sync replica, a batch is durable once it has been flushed to disk. Until
then, the high watermark stops before the batch, so that no client reads data that a power cut could
remove. With `ottla.acks.all.flush=false`, a batch counts as durable at once.

With several replicas in sync, a batch is committed once each of them has it in memory. When the
in-sync set shrinks to this broker, batches have to be flushed to disk before they are committed.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.counters cimport PartitionCounters

from ottla.wire.errors import (
    ErrorCode, FencedLeaderEpoch, NotLeaderOrFollower, StorageFailed, UnknownLeaderEpoch,
)

cdef int NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
cdef int TOO_FEW_AFTER_APPEND = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


cdef class Watcher:
    cdef int moved(self, Partition partition) except -1:
        raise AssertionError("a subclass of Watcher must define moved()")

    cdef int readable_moved(self, Partition partition) except -1:
        """Called for a watcher of appends (a follower's fetch) when the high watermark has moved.
        An append makes the fetch's answer due at once; a moved high watermark need not do so."""
        return 0


cdef class Promise:
    cdef int kept(self, Partition partition) except -1:
        raise AssertionError("a subclass of Promise must define kept()")


cdef class ReplicaRole:
    """The role of a partition that has none yet, or is closed. Other roles override the methods.

    Methods get the partition as an argument: a role that kept its partition would form a reference
    cycle with it.
    """

    cdef int64_t append(
        self, Partition partition, uint8_t *batch, Py_ssize_t size, bint all_replicas
    ) except -2:
        """Append a validated batch; returns its base offset. Raises NotEnoughReplicas."""
        raise AssertionError(f"this broker does not lead {partition!r}")

    cdef bint flushed(self, Partition partition, int64_t offset) except -1:
        """Everything below `offset` is on disk; returns whether another flush is wanted."""
        return False

    cdef bint wants_flush(self, Partition partition) except -1:
        """Whether an acknowledgement waits for the disk."""
        return False

    cdef int start_moved(self, Partition partition) except -1:
        """Retention has moved the log start."""
        return 0

    cdef list repair(self, Partition partition):
        """Move the damaged part of the log aside; returns its new paths. Raises StorageFailed."""
        raise AssertionError(f"{partition!r} has no leader to fetch the damaged records from")

    cdef bint replica_fetched(
        self, Partition partition, int32_t node_id, int64_t broker_epoch, int64_t offset,
        int64_t log_start
    ) except -1:
        """A replica fetches from `offset`. The fetch has passed the checks of epoch and divergence,
        so the replica has all records below `offset`. Returns False if the fetch does not count: if
        the node has no replica; if it is not registered under `broker_epoch`; or if the replica's
        log directory has failed."""
        return False

    cdef int check_min_isr(self, Partition partition) except -1:
        """Compare the committed in-sync set with min.insync.replicas, after either has changed."""
        return 0

    cdef int brokers_changed(self, Partition partition) except -1:
        """Brokers came or went: an absent replica that is not in sync no longer holds back the high
        watermark."""
        return 0

    cdef tuple propose_isr(self, Partition partition, int node_id, int64_t node_epoch):
        """The in-sync set to request from the controller, ((node, broker epoch), ...); None if the
        set needs no change, or a proposal is open. The high watermark waits for joining replicas
        from now on, and for leaving ones until the change is committed."""
        return None

    cdef int proposal_failed(self) except -1:
        """The controller has certainly not executed the proposed change."""
        return 0

    cdef list follower_states(self):
        """`Followers.states`; empty if this broker does not lead several replicas."""
        return []

    cdef int64_t behind_ms(self, int node_id, int64_t now_ms) except -2:
        """`Followers.behind_ms`."""
        return -1

    cdef int32_t closest(self, nodes, int64_t offset) except -2:
        """`Followers.closest`."""
        return -1

    cdef bint end_is_known(self, Partition partition) noexcept:
        """Whether a new leader knows everything that was committed before its epoch (KIP-207)."""
        return True


cdef ReplicaRole NO_ROLE = ReplicaRole()


cdef class Partition:
    """One partition on this broker. Everything in it happens on the event loop's thread."""

    def __init__(
        self, str topic, int index, bytes topic_id, PartitionLog log, bint flush_before_ack,
        dict with_sealed=None, cluster=None, int64_t high_watermark=-1
    ):
        """`cluster` is a ClusterSide, or None on a standalone broker. `high_watermark` is the
        checkpointed high watermark, -1 for a partition with a single replica."""
        self.topic, self.index, self.topic_id = topic, index, topic_id
        self.log = log
        self.leader_id = self.leader_epoch = -1
        self.flush_before_ack = flush_before_ack
        # Recovered records are served at once; after a crash, housekeeping flushes them.
        self.high_watermark = log.log_end_offset
        if high_watermark >= 0:
            # The log's end may have records that the other replicas lack.
            self.high_watermark = min(
                max(high_watermark, log.log_start_offset), self.high_watermark)
        assert log.log_start_offset <= self.high_watermark <= log.log_end_offset
        self.cluster, self.role, self.ended_code = cluster, NO_ROLE, NOT_LEADER
        self.partition_epoch = -1
        self.replicas = self.isr = self.offline = ()
        self.start_watchers = {}
        self.flush_wanted_upto = self.high_watermark
        self.kept_start = log.log_start_offset
        self.counters = PartitionCounters()
        self.watchers = {}
        self.promises = []
        self.with_sealed = {} if with_sealed is None else with_sealed

    def __repr__(self):
        return f"{self.topic}-{self.index}"

    cdef int take_role(
        self, ReplicaRole role, int leader_id, int leader_epoch, bint led_here
    ) except -1:
        """Lead or follow from now on; only `roles/assignment` calls this."""
        assert leader_epoch >= self.leader_epoch, "the leader epoch would fall"
        assert not (led_here and role.following), "the leader got the role of a follower"
        self.role = role
        self.leader_id, self.leader_epoch, self.led_here = leader_id, leader_epoch, led_here
        return 0

    def append_bytes(self, batch, bint all_replicas=True):
        """Append one validated batch from Python; returns its base offset."""
        cdef uint8_t[::1] view = bytearray(batch)
        return self.append(&view[0], view.shape[0], all_replicas)

    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, bint all_replicas) except -2:
        """Append a validated batch; clients may read it at once unless it waits for its flush or
        for other replicas. Raises NotEnoughReplicas."""
        return self.role.append(self, batch, size, all_replicas)

    cdef int note_sealed(self) except -1:
        """After an append: if it has sealed a segment, note that the segment has to be synced."""
        if self.log.has_sealed():
            self.with_sealed[self] = None
        return 0

    def flushed(self, int64_t offset):
        """Everything below `offset` is on disk; returns whether another flush is wanted."""
        cdef bint wanted = self.role.flushed(self, offset)
        self.keep_flush_promises()
        return wanted

    def wants_flush(self):
        """Whether an acknowledgement waits for the disk."""
        return self.role.wants_flush(self)

    cdef int advance(self, int64_t offset) except -1:
        cdef Promise promise
        if offset <= self.high_watermark:
            return 0
        assert self.log.log_start_offset <= offset, "the high watermark is before the log's start"
        assert offset <= self.log.log_end_offset, "the high watermark is past the log's end"
        self.high_watermark = offset
        while self.promises and (<Promise>self.promises[0]).required <= offset:
            promise = <Promise>self.promises.pop(0)
            promise.due = True
            promise.kept(self)
        if self.watchers:
            self.wake()
        if self.append_watchers:
            for watcher in list(self.append_watchers):
                (<Watcher>watcher).readable_moved(self)
        return 0

    def wake(self):
        """Notify all watchers but those of `watch_appends`."""
        for watcher in list(self.watchers):
            (<Watcher>watcher).moved(self)

    def wake_followers(self):
        """Notify the watchers that read to the log's end."""
        for watcher in list(self.append_watchers or ()):
            (<Watcher>watcher).moved(self)

    cdef int64_t readable_end(self, bint committed_only) except -1:
        """The first offset that a client may not read: the last stable offset if `committed_only`,
        otherwise the high watermark."""
        cdef int64_t stable
        if not committed_only:
            return self.high_watermark
        stable = self.log.stable_offset(self.high_watermark)
        assert self.log.log_start_offset <= stable <= self.high_watermark
        return stable

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
        """Notify `watcher`, a follower's fetch, of every append, even before clients may read
        it."""
        if self.append_watchers is None:
            self.append_watchers = {}
        self.append_watchers[watcher] = None

    cdef int promise(self, Promise promise) except -1:
        """Insert `promise` in the order of required offsets, nearly always at the end."""
        cdef list waiting = self.promises
        cdef Py_ssize_t at
        if promise.of_flush:
            waiting = self.flush_promises = self.flush_promises or []
        at = len(waiting)
        while at > 0 and (<Promise>waiting[at - 1]).required > promise.required:
            at -= 1
        waiting.insert(at, promise)
        return 0

    cdef int keep_flush_promises(self) except -1:
        """End the promises that wait only for a flush, if their flush has ended or is no longer
        wanted."""
        cdef int64_t durable = self.log.durable_offset()
        cdef Promise promise
        while self.flush_promises:
            promise = <Promise>self.flush_promises[0]
            if durable < promise.required <= self.flush_wanted_upto:
                break
            self.flush_promises.pop(0)
            promise.due = True
            promise.kept(self)
        return 0

    cdef bint break_promise(self, Promise promise) except -1:
        """Withdraw a promise; False if it has been kept or given up already."""
        cdef list waiting = self.flush_promises if promise.of_flush else self.promises
        if waiting is None or promise not in waiting:
            return False
        waiting.remove(promise)
        return True

    cdef int check_leader(self, int32_t client_epoch) except -1:
        """Raise unless this broker leads the partition, in the client's leader epoch (KIP-320), and
        can read the log; `client_epoch` is -1 if the client has sent none."""
        if not self.led_here:
            leader = "no broker" if self.leader_id < 0 else f"broker {self.leader_id}"
            raise NotLeaderOrFollower(f"{self!r} is led by {leader}")
        # A damaged log accepts no more records, and is served up to the damage.
        if self.log.health.offline is not None and self.log.health.damage is None:
            raise StorageFailed(f"{self!r} is offline: {self.log.health.offline}")
        return self.check_epoch(client_epoch)

    cdef int check_follower(self, int32_t client_epoch) except -1:
        """`check_leader` for a consumer that reads from a follower (KIP-392)."""
        if not self.role.following:
            return self.check_leader(client_epoch)
        # A damaged log is refused as well: the consumer can read from another replica.
        if self.log.health.offline is not None:
            raise StorageFailed(f"{self!r} is offline: {self.log.health.offline}")
        return self.check_epoch(client_epoch)

    cdef int check_epoch(self, int32_t client_epoch) except -1:
        if client_epoch == -1 or client_epoch == self.leader_epoch:
            return 0
        if client_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"{self!r} has leader epoch {self.leader_epoch}, but the request has leader epoch"
                f" {client_epoch}")
        raise UnknownLeaderEpoch(
            f"{self!r} has leader epoch {self.leader_epoch}, but the request has leader epoch"
            f" {client_epoch}")

    def require_leader(self, int client_epoch=-1):
        """Call `check_leader` from Python."""
        self.check_leader(client_epoch)

    def edge(self, bint newest, bint committed_only, int32_t client_epoch):
        """The offset at which a consumer would begin: after the newest record that it may read, or
        at the oldest record. Returns -1 if `check_leader` would raise, if the log is damaged, or if
        the end is not known yet."""
        if (not self.led_here or self.log.health.offline is not None
                or client_epoch not in (-1, self.leader_epoch)):
            return -1
        if not newest:
            return self.log.log_start_offset
        return self.readable_end(committed_only) if self.role.end_is_known(self) else -1

    def close(self):
        """Wake all waiting requests, which then find the partition gone."""
        self.role, self.led_here = NO_ROLE, False
        self.give_up()

    def give_up(self, int code=NOT_LEADER):
        """End all waits for this partition: end the promises and notify the watchers. With the code
        TOO_FEW_AFTER_APPEND, promises with `outlasts_isr` or `of_flush` continue.

        Producers that wait for an acknowledgement get the error `code`. Their batches may still be
        committed.
        """
        self.ended_code = code
        promises, self.promises = self.promises, []
        if code != TOO_FEW_AFTER_APPEND and self.flush_promises:
            promises += self.flush_promises
            self.flush_promises = None
        for promise in promises:
            if code == TOO_FEW_AFTER_APPEND and (<Promise>promise).outlasts_isr:
                self.promises.append(promise)
            else:
                (<Promise>promise).kept(self)
        self.wake()
        self.wake_followers()
        self.log_starts_moved()

    def log_starts_moved(self):
        """Call the watchers of the replicas' log starts."""
        for called in list(self.start_watchers):
            called()

    def start_moved(self):
        """Retention has moved the log start: notify readers and the other replicas."""
        # The older files are deleted, so a restart finds this log start even without a checkpoint.
        self.kept_start = self.log.log_start_offset
        assert self.kept_start <= self.high_watermark, "uncommitted records were deleted"
        self.wake()
        self.wake_followers()
        self.role.start_moved(self)

    def start_kept(self, int64_t offset):
        """A checkpoint with this log start has been written."""
        self.kept_start = max(self.kept_start, offset)

    cdef int64_t told_start(self) noexcept:
        """The log start that a follower reports to its leader; the leader answers DeleteRecords
        once all replicas have reported the new log start. The reported log start is never above the
        one that a restart would find."""
        return min(self.kept_start, self.log.log_start_offset)

    cdef bint must_sync(self) noexcept:
        """Whether flush.messages requires a flush before the log's end may be relied on."""
        return self.log.log_end_offset - self.log.durable_offset() >= self.log.flush_messages

    def own_end(self):
        """Return the last leader epoch of this replica's log (-1 for none) and the log's end. If
        the log is damaged, both are those of the records before the damage."""
        if self.log.health.offline is not None:
            return self.log.readable_own_end()
        return self.log.latest_epoch, self.log.log_end_offset

    def low_watermark(self):
        """The least log start of all live replicas (KIP-107); -1 while the log start of one of them
        is unknown."""
        least = self.log.log_start_offset
        for node, broker_epoch, _, log_start, _ in self.role.follower_states():
            registered = self.cluster.broker_epoch_of(node)
            if registered >= 0 and node not in self.offline:
                least = min(least, log_start if broker_epoch == registered else -1)
        return least

    @property
    def damaged(self):
        """Whether this is one of several replicas and its log refuses writes because it is
        damaged."""
        return self.role.replicated and self.log.damage is not None

    # The role's methods, for Python

    def fetched_by(self, int node_id, broker_epoch, offset, log_start=0):
        """`ReplicaRole.replica_fetched`."""
        return self.role.replica_fetched(self, node_id, broker_epoch, offset, log_start)

    def check_min_isr(self):
        """min.insync.replicas has changed: compare the committed in-sync set with it."""
        self.role.check_min_isr(self)

    def brokers_changed(self):
        """Brokers came or went."""
        self.role.brokers_changed(self)

    def propose_isr(self, int node_id, int64_t node_epoch):
        """`ReplicaRole.propose_isr`."""
        return self.role.propose_isr(self, node_id, node_epoch)

    def proposal_failed(self):
        """`ReplicaRole.proposal_failed`."""
        self.role.proposal_failed()

    def follower_states(self):
        """`ReplicaRole.follower_states`."""
        return self.role.follower_states()

    def behind_ms(self, int node_id, int64_t now_ms):
        """`Followers.behind_ms`."""
        return self.role.behind_ms(node_id, now_ms)

    @property
    def end_is_known(self):
        """`ReplicaRole.end_is_known`."""
        return self.role.end_is_known(self)

    def repair(self):
        """`ReplicaRole.repair`."""
        return self.role.repair(self)
