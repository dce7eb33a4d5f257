# cython: boundscheck=False, wraparound=False
"""Fetches by replicas: they read to the end of the log, and their fetch offsets move the high
watermark.

A fetch moves the high watermark only if it has passed the checks of leader epoch and divergence.
The replica's broker epoch must also be the one in the image (KIP-903). A fetch with another broker
epoch is served, but does not move the high watermark.
"""

from libc.stdint cimport int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.follower_reads cimport shows_divergence
from ottla.broker.api.records.reader cimport MAY_NOT_YET, MAY_READ, Fetch, Reader
from ottla.broker.network.promises cimport Wait
from ottla.replication.partition cimport Partition

from ottla.wire.errors import NotLeaderOrFollower, OffsetOutOfRange, UnknownLeaderEpoch


cdef class ReplicaReader(Reader):
    """A broker that has a replica of each partition that it fetches."""

    def __init__(self, throttle):
        self.consumer, self.throttle = False, throttle

    cdef int admit(self, Fetch fetch, FetchItem item) except -1:
        """Raise unless the client may be a replica of this partition. Record where the client's log
        diverges from the log on this broker. The client gets no records while replication is
        throttled (KIP-73)."""
        cdef Partition partition = item.partition
        Reader.admit(self, fetch, item)
        if not partition.role.replicated or fetch.replica_id not in partition.replicas:
            # One of the two brokers may have an older image than the other.
            if item.current_leader_epoch >= 0:
                raise UnknownLeaderEpoch(
                    f"broker {fetch.replica_id} is not a replica of {partition!r} yet")
            raise NotLeaderOrFollower(
                f"broker {fetch.replica_id} is not a replica of {partition!r}")
        # The response contains the log start, even if the fetch offset is below it.
        item.log_start = partition.log.log_start_offset
        if item.fetch_offset > partition.log.log_end_offset and partition.log.latest_epoch >= 0:
            # The replica has more records than its leader, in the same epoch or an unknown one.
            item.diverging_epoch = partition.log.latest_epoch
            item.diverging_end = partition.log.log_end_offset
            if 0 <= item.last_fetched_epoch < item.diverging_epoch:
                item.diverging_epoch = -1           # check_divergence finds an earlier offset
        if self.throttle is not None and self.throttle.wait_for(partition, fetch.replica_id) > 0:
            return MAY_NOT_YET
        return MAY_READ

    cdef object topic_to_check(self, FetchItem item):
        """Return None: a replica needs CLUSTER_ACTION, which allows it to read all topics."""
        return None

    cdef int64_t end(self, Fetch fetch, Partition partition) except -1:
        return partition.log.log_end_offset

    cdef int64_t end_found(self, Fetch fetch, FetchItem item) noexcept:
        if item.partition is None:
            return Reader.end_found(self, fetch, item)
        return item.partition.log.log_end_offset

    cdef int has_read(self, Fetch fetch, FetchItem item) except -1:
        """Note that the replica has all records below its fetch offset."""
        if item.uncounted:
            # A fetch that does not count now may count once the image has the replica's broker
            # epoch.
            item.uncounted = not item.partition.role.replica_fetched(
                item.partition, fetch.replica_id, fetch.replica_epoch, item.fetch_offset,
                item.follower_start)
        return 0

    cdef bint has_new_offsets(self, Fetch fetch, FetchItem item) noexcept:
        """Whether the replica gets a new high watermark for which its consumers may be waiting."""
        return fetch.session is not None and fetch.session.reports_at_once and (
            item.sent_high_watermark < min(item.high_watermark, item.fetch_offset))

    cdef int watch(self, Partition partition, Wait wait) except -1:
        partition.watch_appends(wait)
        return 0

    cdef int count_sent(self, FetchItem item, Py_ssize_t size) except -1:
        """Count an answer as replication traffic. As in Kafka, an answer with converted records is
        counted as consumer traffic instead."""
        cdef Partition partition = item.partition
        if item.converted is not None:
            return Reader.count_sent(self, item, size)
        partition.counters.fetches += 1
        partition.counters.replicated_out += size
        if self.throttle is not None:
            self.throttle.record(partition.topic, item.index, size)
        return 0


cdef int check_divergence(FetchItem item) except -1:
    """Report a divergence if the epoch of the client's last record ends earlier in this log than
    the client has read (KIP-595). A replica then truncates its log."""
    if item.diverging_epoch >= 0 or item.last_fetched_epoch < 0:
        return 0
    if item.last_fetched_epoch > item.partition.leader_epoch:
        raise OffsetOutOfRange(
            f"the client's last record has leader epoch {item.last_fetched_epoch}, but"
            f" {item.partition!r} is only in leader epoch {item.partition.leader_epoch}")
    epoch, end = item.partition.log.end_offset_for_epoch(item.last_fetched_epoch, True)
    if epoch < 0 or end < 0:
        return 0
    if item.partition.role.following and not shows_divergence(item.partition, end):
        return 0
    if epoch < item.last_fetched_epoch or end < item.fetch_offset:
        item.diverging_epoch, item.diverging_end = epoch, end
    return 0
