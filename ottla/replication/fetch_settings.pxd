# How a follower fetches; see fetch_settings.pyx.

from libc.stdint cimport int32_t, int64_t


cdef class FetchSettings:
    cdef readonly int32_t wait_ms_max, size_min, size_max, partition_size_max
    cdef readonly int64_t backoff_ms_max
    cdef readonly str client_id
    cdef readonly object throttle       # limits replicas that are not in sync; None: no limit
    cdef readonly bint tells_high_watermark     # consumers read from followers (KIP-1166)
