"""A topic's settings: the defaults are those that Kafka documents."""

from __future__ import annotations

import pytest

from ottla.log.partition.config import LogConfig

LARGEST = 9_223_372_036_854_775_807


def test_a_topic_without_settings_has_kafkas_defaults() -> None:
    assert LogConfig()._asdict() == {
        "segment_bytes": 1_073_741_824,
        "segment_ms": 604_800_000,
        "segment_jitter_ms": 0,
        "segment_index_bytes": 10_485_760,
        "index_interval_bytes": 4096,
        "max_message_bytes": 1_048_588,
        "retention_ms": 604_800_000,
        "retention_bytes": -1,
        "cleanup_policy": {"delete"},
        "message_timestamp_type": "CreateTime",
        "message_timestamp_before_max_ms": LARGEST,
        "message_timestamp_after_max_ms": 3_600_000,
        "compression_type": "producer",
        "compression_gzip_level": -1,
        "compression_lz4_level": 9,
        "compression_zstd_level": 3,
        "max_decompressed_message_bytes": 2_147_483_639,
        "delete_retention_ms": 86_400_000,
        "file_delete_delay_ms": 60_000,
        "flush_messages": LARGEST,
        "flush_ms": LARGEST,
        "min_compaction_lag_ms": 0,
        "max_compaction_lag_ms": LARGEST,
        "min_cleanable_dirty_ratio": 0.5,
        "preallocate": False,
        "min_insync_replicas": 1,
        "producer_id_expiration_ms": 86_400_000,
    }


@pytest.mark.parametrize(("policy", "deletes", "compacts"), [
    (("delete",), True, False), (("compact",), False, True), (("delete", "compact"), True, True),
    ((), False, False),
])
def test_a_policy_deletes_or_compacts_or_both(
    policy: tuple[str, ...], deletes: bool, compacts: bool
) -> None:
    config = LogConfig(cleanup_policy=frozenset(policy))
    assert (config.deletes, config.compacts) == (deletes, compacts)
