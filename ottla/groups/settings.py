"""The settings that the group coordinator reads; the broker fills them from server.properties."""

from typing import NamedTuple


class GroupSettings(NamedTuple):
    """Kafka's own names with underscores, and Kafka's defaults."""

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    group_new_member_join_timeout_ms: int = 300_000
    """The session timeout of a new member until its first JoinGroup is answered."""
    offset_metadata_max_bytes: int = 4_096
    offsets_commit_timeout_ms: int = 5_000
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_migration_policy: str = "bidirectional"
    """Whether a group with members may change its protocol: disabled, upgrade, downgrade or
    bidirectional."""
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """Server-side assignors that members may request; the first is the default."""

    @property
    def offsets_retention_ms(self) -> int:
        """How long offsets are kept after their last use (KIP-211)."""
        return self.offsets_retention_minutes * 60_000


class TransactionSettings(NamedTuple):
    """The settings of the transaction coordinator, with Kafka's names and defaults."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    """The delay before the coordinator retries an abort that the log refused. Timeouts do not
    depend on this setting: they are exact to the ms."""
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_state_log_num_partitions: int = 50
