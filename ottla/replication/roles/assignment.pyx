# cython: boundscheck=False, wraparound=False
"""Gives a partition the role that it has in the image: sole replica, leader or follower."""

from libc.stdint cimport int64_t

from ottla.log.partition.partition_log cimport PartitionLog
from ottla.replication.followers cimport Followers
from ottla.replication.partition cimport Partition, ReplicaRole
from ottla.replication.roles.follower_replica cimport FollowerReplica
from ottla.replication.roles.leader_replica cimport LeaderReplica
from ottla.replication.roles.sole_replica cimport SoleReplica

cdef SoleReplica SOLE = SoleReplica()


def lead_alone(
    Partition partition not None, int leader_id, int leader_epoch, bint led_here
):
    """Lead a partition whose only replica is here, in a new leader epoch of the image. `led_here`
    is False while the partition has no leader in the image."""
    if led_here and leader_epoch > partition.leader_epoch:
        partition.log.assign_epoch_start(leader_epoch)
    partition.take_role(SOLE, leader_id, leader_epoch, led_here)
    partition.wake()


def assume(
    Partition partition not None, int leader_id, int leader_epoch, int node_id, tuple replicas,
    tuple isr, int partition_epoch, tuple offline=(), int adding=0
):
    """Lead or follow among several replicas, as the image says; `node_id` is this broker. A call
    with an older leader epoch or partition epoch is ignored. `offline` are replicas in failed log
    directories: the leader ignores their fetches. `adding` is how many replicas a reassignment
    adds."""
    cdef bint led = leader_id == node_id, was_led = partition.led_here, begins, counts_again
    cdef ReplicaRole before = partition.role, role = before
    assert leader_id < 0 or leader_id in replicas, "the leader has no replica of the partition"
    if before.replicated and (
            leader_epoch < partition.leader_epoch or partition_epoch < partition.partition_epoch):
        return
    begins = led and (
        leader_epoch > partition.leader_epoch or not isinstance(before, LeaderReplica))
    if begins:
        role = leading(partition, leader_epoch, node_id, replicas, isr)
    elif not led:
        role = following(partition, leader_id, leader_epoch)
    if not before.replicated or not led:
        partition.flush_wanted_upto = 0
    # The leader ignored the fetches of replicas that were offline, and accepts them now.
    counts_again = led and partition.offline != offline
    partition.take_role(role, leader_id, leader_epoch, led)
    partition.replicas, partition.offline, partition.adding = replicas, offline, adding
    partition.log.health.replaceable = len(isr) > (node_id in isr)
    if led:
        (<LeaderReplica>partition.role).take_isr(
            partition, isr, partition_epoch, node_id, begins)
    else:
        partition.isr, partition.partition_epoch = isr, partition_epoch
        if was_led:
            partition.give_up()
    if begins or not led:
        partition.wake()
    if begins or not led or counts_again:
        partition.wake_followers()


cdef LeaderReplica leading(
    Partition partition, int leader_epoch, int node_id, tuple replicas, tuple isr
):
    """The role of a leader whose epoch begins now."""
    cdef PartitionLog log = partition.log
    cdef ReplicaRole before = partition.role
    # Recorded before any append, so that followers find where this epoch began.
    log.assign_epoch_start(leader_epoch)
    assert partition.high_watermark <= log.log_end_offset
    return LeaderReplica(
        Followers([node for node in replicas if node != node_id], isr, partition.cluster.lag_ms,
                  log.clock.monotonic_ms()),
        log.log_end_offset, before.under_min_isr)


cdef FollowerReplica following(Partition partition, int leader_id, int leader_epoch):
    """The role of a follower, which stays the same while leader and epoch are the same."""
    cdef int64_t high_watermark = 0
    if isinstance(partition.role, FollowerReplica):
        if leader_id == partition.leader_id and leader_epoch == partition.leader_epoch:
            return partition.role
        high_watermark = (<FollowerReplica>partition.role).leader_high_watermark
    return FollowerReplica(leader_id >= 0, high_watermark)
