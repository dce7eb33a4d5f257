# cython: boundscheck=False, wraparound=False
"""What differs where the client of a Fetch is a replica: it reads to the end of the log, and how
far it is moves the high watermark.

Only a fetch that passed the checks of leader epoch and divergence counts, from a replica of the
assignment, under the broker epoch that the image has (KIP-903). Any other one is served, and moves
nothing.
"""

from ottla.broker.api.records.fetch cimport Fetch
from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.replication.partition cimport Partition

from ottla.wire.errors import NotLeaderOrFollower, UnknownLeaderEpoch


cdef int check_replica(Fetch fetch, FetchItem item) except -1:
    """Raise unless the client may be a replica of this partition; note where its log parts."""
    cdef Partition partition = item.partition
    if not partition.replicated or fetch.replica_id not in partition.replicas:
        # The image of one of the two may be behind the other's.
        if item.current_leader_epoch >= 0:
            raise UnknownLeaderEpoch(f"{fetch.replica_id} is no replica of {partition!r} yet")
        raise NotLeaderOrFollower(f"{fetch.replica_id} is no replica of {partition!r}")
    # A log that begins later says so with the error that it is answered with.
    item.log_start = partition.log.log_start_offset
    if item.fetch_offset > partition.log.log_end_offset and partition.log.latest_epoch >= 0:
        # Its last epochs are unknown, or the same: it has more of them than its leader.
        item.diverging_epoch = partition.log.latest_epoch
        item.diverging_end = partition.log.log_end_offset
        if 0 <= item.last_fetched_epoch < item.diverging_epoch:
            item.diverging_epoch = -1               # by its epoch the two parted earlier
    return 0


cdef int count_replica(Fetch fetch, FetchItem item) except -1:
    """Note that the replica has everything below what it asks for."""
    # What does not count now may once the image has the replica's broker epoch.
    item.uncounted = not item.partition.replica_fetched(
        fetch.replica_id, fetch.replica_epoch, item.fetch_offset, item.follower_start)
    return 0
