# A partition as its leader sees it: the log, the epoch it leads in, and how far clients may read.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ottla.log.partition_log cimport PartitionLog


cdef class Watcher:
    """Somebody who wants to know that clients can read further in a partition."""
    cdef int moved(self, Partition partition) except -1


cdef class Promise:
    """An acknowledgement that is due once `required` offsets are below the high watermark."""
    cdef int64_t required
    cdef int kept(self, Partition partition) except -1


cdef class Partition:
    cdef readonly str topic
    cdef readonly int32_t index
    cdef readonly bytes topic_id
    cdef public PartitionLog log
    cdef public int32_t leader_id
    cdef public int32_t leader_epoch
    cdef readonly bint led_here
    cdef readonly bint flush_before_ack     # acks=all waits for the disk (DESIGN: Durability)
    # log_start <= last_stable <= high_watermark <= log_end; each moves forward only.
    cdef readonly int64_t high_watermark
    cdef int64_t flush_wanted_upto          # the end of the last acks=all batch appended
    # Since the partition was opened, for metrics.
    cdef readonly int64_t messages_in, bytes_in
    cdef public int64_t bytes_out, produces, failed_produces, fetches, failed_fetches
    cdef dict watchers
    cdef list promises                      # ordered by the offset that they require
    cdef dict with_sealed                   # of all partitions, those with a segment to sync

    cdef int64_t append(self, uint8_t *batch, Py_ssize_t size, bint all_replicas) except -2
    cdef int advance(self, int64_t offset) except -1
    cdef int64_t readable_end(self, bint committed_only) except -1
    cdef int promise(self, Promise promise) except -1
    cdef bint break_promise(self, Promise promise) except -1
    cdef int check_leader(self, int32_t client_epoch) except -1
