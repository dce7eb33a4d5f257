"""The broker's settings that Ottla uses, declared with Kafka's names, types, defaults and limits.

Defaults of topics' settings (`log.retention.ms` and the like) are declared beside the topics', in
broker/settings/topic.py.
"""

from __future__ import annotations

from ottla.broker.settings.declaration import Long, Names, Short, days, setting
from ottla.broker.settings.listener_settings import ListenerSettings

INT_MAX = 2**31 - 1

DYNAMIC = frozenset({
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "num.recovery.threads.per.data.dir",
    "producer.id.expiration.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second",
})
"""Settings that can be changed on a running broker (KIP-226), beside the defaults of topics."""
OTHER_DEFAULTS = frozenset({"socket.receive.buffer.bytes"})
"""Where Kafka's default is not ours; the setting's description says why."""
ONLY_DYNAMIC = frozenset({"replica.alter.log.dirs.io.max.bytes.per.second"})
"""Kafka takes these in no file, and has no defaults of them in its table; here a file may."""


class BrokerSettings(ListenerSettings):
    """The settings of a broker; those of ListenerSettings count where a listener has no other."""

    node_id: int = setting("node.id", 0, at_least=0, help="This broker's number in its cluster.")
    broker_id: int = setting("broker.id", -1, help="The former name of node.id.")
    broker_rack: str | None = setting("broker.rack", None, help="Where this broker stands.")
    listeners: Names = setting(
        "listeners", ("PLAINTEXT://:9092",),
        help="Addresses to listen on, NAME://host:port; port 0 takes a free one.")
    advertised_listeners: Names | None = setting(
        "advertised.listeners", None,
        help="Addresses that clients are told, where they are not the listeners' own.")
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        help="The security protocol of each listener's name, NAME:PROTOCOL.")
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name", None, help="The listener that brokers use among themselves.")
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol", "PLAINTEXT",
        one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        help="Without inter.broker.listener.name: brokers use the listener of this protocol.")
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms", 100, at_least=0,
        help="A client that fails to authenticate is answered after so long, and closed.")
    controller_listener_names: Names = setting(
        "controller.listener.names", (),
        help="Listeners for Kafka's controllers: Ottla opens none of them.")
    log_dirs: Names | None = setting("log.dirs", None, help="Directories of the data.")
    log_dir: Names = setting(
        "log.dir", ("/tmp/kafka-logs",), help="The directory of the data without log.dirs.")
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", 104_857_600, at_least=1, help="The largest request.")
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size", 50, at_least=1, help="Clients that may wait to be accepted.")
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes", 102_400,
        help="SO_SNDBUF of a client's socket; -1 leaves it to the system.")
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes", -1,
        help="SO_RCVBUF of a client's socket; -1 leaves it to the system, which lets it grow: large"
        " batches cost a fifth less CPU than with Apache Kafka's default of 102400.")
    max_connections: int = setting(
        "max.connections", INT_MAX, at_least=0,
        help="Connections at a time, over all listeners; no more than file descriptors allow.")
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", INT_MAX, at_least=0, help="Connections from one address.")
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides", "", help="Exceptions: host:count,host:count.")
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate", INT_MAX, at_least=0, help="New connections in a second.")
    quota_window_num: int = setting(
        "quota.window.num", 11, at_least=1,
        help="Samples that the rates of clients' quotas are measured over.")
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", 1, at_least=1, help="How long each of them is.")
    controller_quota_window_num: int = setting(
        "controller.quota.window.num", 11, at_least=1,
        help="How many windows' worth of partitions a client may create or delete at once.")
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds", 1, at_least=1, help="How long each of them is.")
    connections_max_idle_ms: Long = setting(
        "connections.max.idle.ms", 600_000, help="A client that is silent for so long is closed.")
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", 57_671_680, at_least=1024, help="The largest reply to a fetch.")
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", 1000, at_least=0,
        help="Incremental fetch sessions that are remembered (KIP-227).")
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit", 2000, at_least=1,
        help="Partitions that one reply to DescribeTopicPartitions has at most.")
    num_partitions: int = setting(
        "num.partitions", 1, at_least=1, help="Partitions of a topic that does not say.")
    default_replication_factor: int = setting(
        "default.replication.factor", 1, help="Replicas of a topic that does not say.")
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", True, help="Whether asking for a topic's metadata makes it.")
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", 60_000, at_least=0,
        help="How often recovery points and high watermarks are written down.")
    log_flush_scheduler_interval_ms: Long = setting(
        "log.flush.scheduler.interval.ms", 2**63 - 1,
        help="How often logs are looked at whose flush.ms may be over: every second at the least,"
        " where Apache Kafka by default never looks.")
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir", 2, at_least=1,
        help="Threads for each log directory that recover logs after a stop that was not clean; a"
        " clean stop leaves nothing to recover.")
    delete_topic_enable: bool = setting(
        "delete.topic.enable", True, help="Whether topics can be deleted.")
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", days(1), at_least=1,
        help="An idempotent producer is forgotten after so long without a record.")
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", 50, at_least=1, help="Partitions of __consumer_offsets.")
    offsets_topic_replication_factor: Short = setting(
        "offsets.topic.replication.factor", 3, at_least=1,
        help="Replicas of __consumer_offsets; with fewer brokers, as many as there are.")
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", 100 << 20, at_least=1,
        help="Segment size of __consumer_offsets.")
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", 4096, help="Text that may go with a committed offset.")
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", 10_080, at_least=1, help="How long offsets outlive their use.")
    offsets_retention_check_interval_ms: Long = setting(
        "offsets.retention.check.interval.ms", 600_000, at_least=1,
        help="How often outlived offsets are looked for.")
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", 3000, help="A new group waits so long for members.")
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", 6000, help="The shortest session timeout of a member.")
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", 1_800_000, help="The longest session timeout of a member.")
    group_max_size: int = setting(
        "group.max.size", INT_MAX, at_least=1, help="Members of a classic group.")
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms", 45_000, at_least=1,
        help="Session timeout of KIP-848 members.")
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms", 45_000, at_least=1,
        help="Its lower limit, for a group's own setting too.")
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms", 60_000, at_least=1,
        help="Its upper limit, likewise.")
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms", 5000, at_least=1,
        help="Heartbeat interval of KIP-848 members.")
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms", 5000, at_least=1,
        help="Its lower limit, for a group's own setting too.")
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms", 15_000, at_least=1,
        help="Its upper limit, likewise.")
    group_consumer_assignors: Names = setting(
        "group.consumer.assignors", ("uniform", "range"),
        help="Server-side assignors that KIP-848 members may ask for, uniform and range; the first"
        " serves those who ask for none.")
    group_coordinator_rebalance_protocols: Names = setting(
        "group.coordinator.rebalance.protocols", ("classic", "consumer", "streams"),
        one_of=("consumer", "classic", "share", "streams"),
        help="Protocols that groups may use; without consumer there are no KIP-848 members."
        " Share and streams groups are not served.")
    group_consumer_max_size: int = setting(
        "group.consumer.max.size", INT_MAX, at_least=1, help="Members of a KIP-848 group.")
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy", "bidirectional", any_case=True,
        one_of=("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        help="Whether a living group may change between the classic and the KIP-848 protocol.")
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", 50, at_least=1,
        help="Partitions of __transaction_state.")
    transaction_state_log_replication_factor: Short = setting(
        "transaction.state.log.replication.factor", 3, at_least=1,
        help="Replicas of __transaction_state; with fewer brokers, as many as there are.")
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr", 2, at_least=1,
        help="In-sync replicas that a change of a transaction needs, or as many as there can be.")
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", 100 << 20, at_least=1,
        help="Segment size of __transaction_state.")
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", 900_000, at_least=1,
        help="The longest time that a client may ask for its transactions.")
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms", days(7), at_least=1,
        help="A transactional id that is not used for so long is forgotten.")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000, at_least=1,
        help="When an abort that failed is tried again; timeouts themselves are kept to the ms.")
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000, at_least=1,
        help="How often transactional ids that may be forgotten are looked for.")
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", True,
        help="Whether topics with cleanup.policy compact are compacted.")
    log_cleaner_backoff_ms: Long = setting(
        "log.cleaner.backoff.ms", 15_000, at_least=0,
        help="How long the cleaner sleeps when no topic needs it.")
    log_cleaner_dedupe_buffer_size: Long = setting(
        "log.cleaner.dedupe.buffer.size", 134_217_728,
        help="The most memory for keys while a log is compacted, 27 bytes each; with more keys it"
        " takes several passes.")
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", 1.7976931348623157e308,
        help="The most that the cleaner reads and writes in a second.")
    log_retention_check_interval_ms: Long = setting(
        "log.retention.check.interval.ms", 300_000, at_least=1,
        help="How often segments that may go are looked for.")
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", 500,
        help="How long a leader waits for records before it answers a follower that has all.")
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", 1, help="Bytes that end such a wait.")
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", 1_048_576, at_least=0,
        help="The most of one partition in a reply to a follower; a larger batch comes alone.")
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", 10_485_760, at_least=0,
        help="The largest reply to a follower.")
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", 1000, at_least=0,
        help="The longest rest of a follower between attempts that fail.")
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms", 30_000,
        help="A leader that is silent for so long is connected to anew.")
    replica_alter_log_dirs_io_max_bytes_per_second: Long = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second", 2**63 - 1, at_least=0,
        help="The most that a partition's move to another log directory copies in a second; with 0"
        " it waits. Apache Kafka takes it at run time alone.")
    replica_lag_time_max_ms: Long = setting(
        "replica.lag.time.max.ms", 30_000,
        help="A follower that has not caught up for so long leaves the in-sync set.")
    replica_high_watermark_checkpoint_interval_ms: Long = setting(
        "replica.high.watermark.checkpoint.interval.ms", 5000,
        help="How often a member of a cluster writes down what is committed.")
    ottla_open_segments_max: int = setting(
        "ottla.open.segments.max", 300, at_least=10,
        help="Ottla's own. Segments whose files stay open, a descriptor each or three where indexes"
        " are in use; a quarter of ulimit -n is the most. A broker that writes to more partitions"
        " than this at a time works faster with more.")
    ottla_log_scrub_bytes_per_second: Long = setting(
        "ottla.log.scrub.bytes.per.second", 10_000_000, at_least=0,
        help="Ottla's own. How fast sealed segments are read in the background to find damage; 0 is"
        " off.")
    ottla_log_scrub_interval_ms: Long = setting(
        "ottla.log.scrub.interval.ms", days(1), at_least=1000,
        help="Ottla's own. A segment is looked at again after so long, or later where there is more"
        " than the rate gets through.")
    ottla_forget_directories: str = setting(
        "ottla.forget.directories", "",
        help="Ottla's own. Ids (directory.id in meta.properties), with commas, of log directories"
        " that are missing and will never be back: what was in them is lost and begins empty."
        " Without it, what was in a missing directory is offline until it is back.")
    ottla_stray_retention_ms: Long = setting(
        "ottla.stray.retention.ms", days(7), at_least=-1,
        help="Ottla's own. How long the directory of a partition that belongs to no topic is kept"
        " under a name that ends in -stray before its room is given back; -1 is for ever.")
    authorizer_class_name: str = setting(
        "authorizer.class.name", "",
        help="Kafka's StandardAuthorizer has access rules (ACLs) kept and gone by; empty: everybody"
        " may do everything.")
    super_users: str = setting(
        "super.users", "", help="Who may do everything, with semicolons: User:a;User:b.")
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found", False,
        help="Whether what no access rule is about is open to everybody.")
    zookeeper_connect: str = setting(
        "zookeeper.connect", "",
        help="ZooKeeper's addresses, host:port,host:port/chroot: this broker is one of a cluster"
        " then. Empty: it is alone, and keeps the metadata itself.")
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms", 9000, at_least=1,
        help="A broker that ZooKeeper does not hear of for so long is gone. Apache Kafka's KRaft"
        " takes as long; its ZooKeeper mode took 18000.")
    zookeeper_connection_timeout_ms: int = setting(
        "zookeeper.connection.timeout.ms", 18_000, at_least=1,
        help="How long a start waits for ZooKeeper before it gives up.")
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", True,
        help="Whether the controller gives leadership back to the first replica of each partition"
        " once that is in sync.")
    leader_imbalance_check_interval_seconds: Long = setting(
        "leader.imbalance.check.interval.seconds", 300, at_least=1,
        help="How often it looks.")
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable", True,
        help="Whether a broker of a cluster hands over what it leads before it stops.")
    telemetry_max_bytes: int = setting(
        "telemetry.max.bytes", 1_048_576, at_least=1,
        help="The largest push of a client's own metrics (KIP-714), as it is sent.")
    ottla_metrics_compat: Names = setting(
        "ottla.metrics.compat", (),
        help="Ottla's own. Further names for metrics: confluent (Confluent's dashboards),"
        " lag_exporter (Lightbend's kafka-lag-exporter).")
    ottla_http_listener: str = setting(
        "ottla.http.listener", "",
        help="Ottla's own. host:port for metrics, health and status over HTTP; empty for none.")
    ottla_acks_all_flush: bool = setting(
        "ottla.acks.all.flush", True,
        help="Ottla's own. Whether acks=all waits for the disk while this broker is the only one in"
        " sync; false is Kafka's weaker promise.")
