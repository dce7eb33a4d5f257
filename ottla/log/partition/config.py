"""The settings of a topic that its logs use, with Kafka's defaults."""

from typing import NamedTuple

FOREVER_MS = 2**63 - 1


class LogConfig(NamedTuple):
    """One topic's settings, as its partitions use them, under Kafka's names with underscores."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3_600_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1024 * 1024 + 12
    retention_ms: int = 7 * 24 * 3_600_000
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = FOREVER_MS
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    max_decompressed_message_bytes: int = 2**31 - 9
    delete_retention_ms: int = 24 * 3_600_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = FOREVER_MS
    flush_ms: int = FOREVER_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER_MS
    min_cleanable_dirty_ratio: float = 0.5
    preallocate: bool = False
    min_insync_replicas: int = 1
    producer_id_expiration_ms: int = 24 * 3_600_000

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether only the newest record of each key is kept."""
        return "compact" in self.cleanup_policy
