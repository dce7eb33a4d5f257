# cython: boundscheck=False, wraparound=False
"""What differs if the client of a Fetch is a replica: it reads to the end of the log, and its fetch
offset moves the high watermark.

Only a fetch that passed the checks of leader epoch and divergence counts, from a replica in the
assignment, with the broker epoch in the image (KIP-903). Any other fetch is served but does not
move the high watermark.
"""

from libc.stdint cimport int32_t, int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.follower_reads cimport shows_divergence
from ottla.broker.api.records.legacy_fetch cimport count_converted
from ottla.replication.partition cimport Partition

from ottla.wire.errors import NotLeaderOrFollower, OffsetOutOfRange, UnknownLeaderEpoch


cdef int check_replica(FetchItem item, int32_t replica_id, object throttle) except -1:
    """Raise unless the client may be a replica of this partition; note where its log diverges.
    Returns whether it gets no records for now, since replication is throttled (KIP-73)."""
    cdef Partition partition = item.partition
    if not partition.replicated or replica_id not in partition.replicas:
        # One of the two brokers may have an older image than the other.
        if item.current_leader_epoch >= 0:
            raise UnknownLeaderEpoch(f"{replica_id} is no replica of {partition!r} yet")
        raise NotLeaderOrFollower(f"{replica_id} is no replica of {partition!r}")
    # A response for an offset below the log start contains the log start.
    item.log_start = partition.log.log_start_offset
    if item.fetch_offset > partition.log.log_end_offset and partition.log.latest_epoch >= 0:
        # The replica has more records than its leader, in the same or an unknown epoch.
        item.diverging_epoch = partition.log.latest_epoch
        item.diverging_end = partition.log.log_end_offset
        if 0 <= item.last_fetched_epoch < item.diverging_epoch:
            item.diverging_epoch = -1               # check_divergence finds an earlier offset
    return throttle is not None and throttle.wait_for(partition, replica_id) > 0


cdef int count_replica(FetchItem item, int32_t replica_id, int64_t replica_epoch) except -1:
    """Note that the replica has all records below its fetch offset."""
    # If it does not count now, it may once the image has the replica's broker epoch.
    item.uncounted = not item.partition.replica_fetched(
        replica_id, replica_epoch, item.fetch_offset, item.follower_start)
    return 0


cdef int count_sent(
    FetchItem item, Py_ssize_t size, bint by_replica, object throttle
) except -1:
    """Count what an answer has of a partition: what replicas are sent is not for consumers."""
    cdef Partition partition = item.partition
    partition.fetches += 1
    if item.converted is not None:
        partition.bytes_out += count_converted(item)
    elif not by_replica:
        partition.bytes_out += size
    else:
        partition.replicated_out += size
        if throttle is not None:
            throttle.record(partition.topic, item.index, size)
    return 0


cdef int check_divergence(FetchItem item) except -1:
    """Have a client truncate whose last record's epoch ended earlier here (KIP-595)."""
    if item.diverging_epoch >= 0 or item.last_fetched_epoch < 0:
        return 0
    if item.last_fetched_epoch > item.partition.leader_epoch:
        raise OffsetOutOfRange(f"epoch {item.last_fetched_epoch} has not begun")
    epoch, end = item.partition.log.end_offset_for_epoch(item.last_fetched_epoch, True)
    if epoch < 0 or end < 0:
        return 0
    if item.partition.following and not shows_divergence(item.partition, end):
        return 0
    if epoch < item.last_fetched_epoch or end < item.fetch_offset:
        item.diverging_epoch, item.diverging_end = epoch, end
    return 0
