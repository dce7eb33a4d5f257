# cython: boundscheck=False, wraparound=False
"""A leader's followers: how far each one has come, and which of them the high watermark waits for.

The high watermark waits for the followers that *count*: members of the in-sync set and followers
that are proposed for it (the maximal ISR, KIP-497). A follower that was caught up during the last
replica.lag.time.max.ms counts as well: otherwise it could never reach the high watermark while
producers continue.

The lag clock: a fetch in a session names only partitions that changed. So the leader gets no report
from a follower that is at the end of an idle partition. Such a follower is taken as caught up until
the next append, which starts its clock. A later fetch may show that the follower now has everything
that was in the leader's log at the time of the follower's previous fetch. Then the clock is set to
the time of that previous fetch: the follower is taken as caught up at that time.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from ottla.wire.marks cimport reached

cdef int64_t AT_END = 0x7fffffffffffffff
cdef int64_t NEVER = -0x4000000000000000


cdef bint is_ahead(Follower *one, Follower *other) noexcept:
    if one.end != other.end:
        return one.end > other.end
    if one.caught_up_ms != other.caught_up_ms:
        return one.caught_up_ms > other.caught_up_ms
    return one.node_id > other.node_id


cdef class Followers:
    """The state of each replica of one partition except the leader."""

    def __init__(self, nodes, isr, int64_t lag_ms, int64_t now_ms):
        """`nodes` are the other replicas, `isr` is the committed in-sync set."""
        cdef Follower *follower
        assert len(nodes) == len(set(nodes)), "a broker is listed twice"
        self.count = len(nodes)
        self.each = <Follower *>calloc(max(self.count, 1), sizeof(Follower))
        if self.each is NULL:
            raise MemoryError("out of memory for a partition's followers")
        self.lag_ms = lag_ms
        for at, node in enumerate(nodes):
            follower = &self.each[<int>at]
            follower.node_id = node
            follower.broker_epoch = follower.end = follower.log_start = -1
            follower.in_isr = node in isr
            # A new leader has got no fetch yet: each in-sync replica has `lag_ms` to send one.
            follower.caught_up_ms = now_ms if follower.in_isr else NEVER
            follower.seen_ms = NEVER
            follower.stuck_ms = -1

    def __dealloc__(self):
        free(self.each)

    cdef Follower *find(self, int32_t node_id) noexcept:
        """The state of a replica, NULL if that node has none."""
        cdef int at
        for at in range(self.count):
            if self.each[at].node_id == node_id:
                return &self.each[at]
        return NULL

    cdef int64_t least_end(self, int64_t own_end, int64_t now_ms) noexcept:
        """The offset that the leader and all followers that *count* (see above) have reached; -1
        while the log end of one of them is unknown."""
        cdef int64_t least = own_end
        cdef Follower *follower
        cdef int at
        for at in range(self.count):
            follower = &self.each[at]
            if follower.end < least and (
                    follower.in_isr or follower.joining
                    or (follower.live and self.is_caught_up(follower, now_ms))):
                least = follower.end
        return least

    cdef int appended(self, int64_t now_ms) noexcept:
        """The leader's log has grown: followers that were at its end no longer are."""
        cdef int at
        for at in range(self.count):
            if self.each[at].caught_up_ms == AT_END:
                self.each[at].caught_up_ms = now_ms
        return 0

    cdef bint fetched(
        self, Follower *follower, int64_t broker_epoch, int64_t offset, int64_t log_start,
        int64_t log_end, int64_t now_ms
    ) noexcept:
        """Note a fetch from `offset`: the follower has all records below it. Returns whether the
        follower's log end has moved."""
        cdef bint moved = follower.end != offset
        if moved or offset >= log_end:
            follower.stuck_ms = -1
        elif follower.stuck_ms < 0:
            follower.stuck_ms = now_ms
        if follower.broker_epoch != broker_epoch and not follower.in_isr:
            # The follower has restarted and is not in sync. Its fetches before the restart are no
            # reason for the high watermark to wait for it.
            follower.caught_up_ms = follower.seen_ms = NEVER
        if offset >= log_end:
            follower.caught_up_ms = AT_END
        elif offset >= follower.seen_end and follower.seen_ms > follower.caught_up_ms:
            follower.caught_up_ms = follower.seen_ms
        elif follower.caught_up_ms == AT_END:
            follower.caught_up_ms = now_ms          # the follower has lost records
            reached("a follower has fewer records than it had")
        follower.seen_end, follower.seen_ms = log_end, now_ms
        follower.broker_epoch, follower.live = broker_epoch, True
        follower.end, follower.log_start = offset, log_start
        return moved

    cdef bint is_caught_up(self, Follower *follower, int64_t now_ms) noexcept:
        return follower.caught_up_ms == AT_END or now_ms - follower.caught_up_ms <= self.lag_ms

    cdef bint may_join(
        self, Follower *follower, int64_t high_watermark, int64_t epoch_start
    ) noexcept:
        """Whether a live follower outside the in-sync set may join it: it has all committed
        records, and all records from before this leader epoch."""
        return (
            not follower.in_isr and follower.live
            and follower.end >= high_watermark and follower.end >= epoch_start)

    def follow(self, isr, epoch_of, offline=()):
        """Note the committed in-sync set and broker epochs. `epoch_of(node)` is a node's registered
        broker epoch, -1 if it is not registered or is shutting down; `offline` are nodes on which
        the replica's log directory has failed."""
        cdef Follower *follower
        cdef int at
        for at in range(self.count):
            follower = &self.each[at]
            follower.in_isr = follower.node_id in isr
            follower.live = (
                follower.broker_epoch >= 0 and follower.node_id not in offline
                and epoch_of(follower.node_id) == follower.broker_epoch)

    cdef bint all_live(self) noexcept:
        """Whether each follower has fetched under its current broker epoch."""
        cdef int at
        for at in range(self.count):
            if not self.each[at].live:
                return False
        return True

    cdef int32_t closest(self, object nodes, int64_t offset) except -2:
        """The best replica among `nodes` for a consumer that reads at `offset` (KIP-392); -1 if
        there is none. The replica is in sync and live, and has that offset. Of several such
        replicas, this returns the one with the highest log end; of replicas with the same end, the
        one that caught up last."""
        cdef Follower *follower
        cdef Follower *best = NULL
        cdef int at
        for at in range(self.count):
            follower = &self.each[at]
            if (follower.in_isr and follower.live and follower.node_id in nodes
                    and follower.log_start <= offset <= follower.end
                    and (best is NULL or is_ahead(follower, best))):
                best = follower
        return -1 if best is NULL else best.node_id

    def behind_ms(self, int32_t node_id, int64_t now_ms):
        """How many ms ago a follower was at the log's end; 0 if it is there now, -1 if that is not
        known. A follower that was in sync when this leader epoch began is taken as caught up at
        that time."""
        cdef Follower *follower = self.find(node_id)
        if follower is NULL or follower.caught_up_ms == NEVER:
            return -1
        return 0 if follower.caught_up_ms == AT_END else now_ms - follower.caught_up_ms

    def propose(self, high_watermark, epoch_start, now_ms):
        """The nodes that should join the in-sync set, with their broker epochs, and the nodes that
        should leave it. From now on, the high watermark waits for the joining nodes, too."""
        cdef Follower *follower
        cdef int at
        joining, leaving = [], []
        for at in range(self.count):
            follower = &self.each[at]
            if follower.in_isr and not self.is_caught_up(follower, now_ms):
                leaving.append(follower.node_id)
                reached("a lagging follower has to leave the in-sync set")
            elif self.may_join(follower, high_watermark, epoch_start):
                assert not follower.joining, "an earlier proposal is still open"
                follower.joining = True
                joining.append((follower.node_id, follower.broker_epoch))
                reached("a follower may join the in-sync set")
        return joining, leaving

    def decided(self):
        """The proposal has ended, committed or not."""
        cdef int at
        for at in range(self.count):
            self.each[at].joining = False

    def states(self):
        """(node, broker epoch, end, log start, in sync) of each follower; -1 for unknown."""
        cdef int at
        return [
            (self.each[at].node_id, self.each[at].broker_epoch, self.each[at].end,
             self.each[at].log_start, bool(self.each[at].in_isr))
            for at in range(self.count)]
