# cython: boundscheck=False, wraparound=False
"""Consumers that read from the closest replica (KIP-392): what a follower serves, and where a
leader with a selector sends them.

A follower serves what it knows to be committed, whether or not there is a selector. Its log may
have more than that, and until it has compared its log with the current leader's it may even lack
records that others have read: then consumers wait.
"""

from libc.stdint cimport int64_t

from ottla.broker.api.records.fetch_sessions cimport FetchItem
from ottla.broker.security.client cimport Client
from ottla.replication.partition cimport Partition

from ottla.wire.errors import NotLeaderOrFollower


cdef bint check_reader(FetchItem item, bint at_once) except -1:
    """Raise unless this broker is a follower from which a consumer of the item's leader epoch may
    read. Returns whether there is nothing to read yet; a consumer that waits no longer goes back to
    the leader, from which this broker may be cut off."""
    cdef Partition partition = item.partition
    partition.check_follower(max(item.current_leader_epoch, -1))
    if at_once and not partition.in_step:
        raise NotLeaderOrFollower(f"{partition!r} has not heard from broker {partition.leader_id}")
    return not partition.in_step


cdef bint shows_divergence(Partition partition, int64_t end) noexcept:
    """Whether `end` in a follower's log is where an epoch ends for everybody. It is if a later
    record is committed; otherwise this log may lack records of the epoch, or have ones that no
    other replica has."""
    return partition.in_step and end < partition.high_watermark


cdef bint redirect(FetchItem item, str rack, object broker, Client client) except -1:
    """Find the replica in the rack of a consumer, if this broker leads the partition and is in
    another one; what the reply says besides is as for a fetch that finds nothing."""
    cdef Partition partition = item.partition
    if partition.followers is None or len(partition.isr) < 2:
        return False
    brokers, near = broker.image.brokers, []
    for node_id in partition.isr:
        known = brokers.get(node_id)
        if known is not None and known.rack == rack and known.endpoint(client.listener):
            near.append(node_id)
    if not near:
        return False
    item.preferred = partition.followers.closest(near, item.fetch_offset)
    if item.preferred < 0:
        return False
    item.high_watermark = partition.high_watermark
    item.last_stable_offset = partition.readable_end(True)
    item.log_start = partition.log.log_start_offset
    return True
