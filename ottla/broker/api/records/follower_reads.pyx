# cython: boundscheck=False, wraparound=False
"""Consumers that read from the closest replica (KIP-392): what a follower serves, and to which
replica a leader with a replica selector sends consumers.

With or without a selector, a follower serves only records that it knows to be committed. Its log
may have more records. It may also lack records that consumers have read from other replicas, until
it has compared its log with the current leader's. Consumers wait until then.
"""

from libc.stdint cimport int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.api.records.reader cimport (
    MAY_NOT_YET, MAY_READ, REDIRECTED, Fetch, Reader,
)
from ottla.replication.partition cimport Partition

from ottla.wire.errors import NotLeaderOrFollower


cdef bint shows_divergence(Partition partition, int64_t end) noexcept:
    """Whether an epoch ends at offset `end` in all logs, given that it ends there in this
    follower's log. Only then may the follower report a divergence to a consumer. This is certain if
    a record at or above `end` is committed. Otherwise this log may lack records of the epoch, or
    may have records that no other replica has."""
    return partition.role.in_step and end < partition.high_watermark


cdef class AnyReplicaReader(Reader):
    """A consumer that knows that followers may answer: Fetch 11 and above."""

    cdef int admit(self, Fetch fetch, FetchItem item) except -1:
        """Raise unless this broker leads the partition, or follows it in the item's leader epoch.
        A follower that has received nothing from the leader yet lets the consumer wait. After the
        wait, an error sends the consumer back to the leader, since this broker may be cut off from
        the leader."""
        cdef Partition partition = item.partition
        if partition.led_here:
            return Reader.admit(self, fetch, item)
        partition.check_follower(max(item.current_leader_epoch, -1))
        if partition.role.in_step:
            return MAY_READ
        if fetch.at_once:
            raise NotLeaderOrFollower(
                f"this replica of {partition!r} has not yet received anything from its leader,"
                f" broker {partition.leader_id}")
        return MAY_NOT_YET


cdef class RackReader(AnyReplicaReader):
    """A consumer in another rack. This broker may send it to a replica in the consumer's rack."""

    def __init__(self, metadata):
        self.metadata = metadata

    cdef int admit(self, Fetch fetch, FetchItem item) except -1:
        cdef int admitted = AnyReplicaReader.admit(self, fetch, item)
        item.preferred = self.closest(fetch, item)
        if item.preferred < 0:
            return admitted
        # Apart from `preferred`, the reply is the same as for a fetch that finds no records.
        item.high_watermark = item.partition.high_watermark
        item.last_stable_offset = item.partition.readable_end(True)
        item.log_start = item.partition.log.log_start_offset
        return REDIRECTED

    cdef int closest(self, Fetch fetch, FetchItem item) except -2:
        """An in-sync replica in the consumer's rack if this broker leads the partition, else -1."""
        cdef Partition partition = item.partition
        if not partition.led_here or len(partition.isr) < 2:
            return -1
        brokers, near = self.metadata.image.brokers, []
        for node_id in partition.isr:
            known = brokers.get(node_id)
            if known is not None and known.rack == fetch.rack and known.endpoint(
                    fetch.client.listener):
                near.append(node_id)
        return partition.role.closest(near, item.fetch_offset) if near else -1
