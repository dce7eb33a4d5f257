"""How a follower fetches."""


cdef class FetchSettings:
    """`replica.fetch.*`: sizes in bytes, times in ms."""

    def __init__(self, wait_ms_max=500, size_min=1, size_max=10 << 20, partition_size_max=1 << 20,
                 backoff_ms_max=1000, client_id="broker-fetcher", throttle=None,
                 tells_high_watermark=False):
        self.wait_ms_max, self.size_min, self.size_max = wait_ms_max, size_min, size_max
        self.partition_size_max, self.backoff_ms_max = partition_size_max, backoff_ms_max
        self.client_id, self.throttle = client_id, throttle
        self.tells_high_watermark = tells_high_watermark
