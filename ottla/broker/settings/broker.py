"""The broker's settings that Ottla uses, declared with Kafka's names, types, defaults and limits.

The defaults of topic settings (`log.retention.ms` and the like) are declared with the topic
settings, in broker/settings/topic.py. If `default` is a class such as GroupSettings, that class
has a field with the name of the setting's attribute. The default of that field is used.
"""

from __future__ import annotations

from ottla.broker.settings.declaration import Long, Names, Password, Short, days, hours, setting
from ottla.broker.settings.listener_settings import DYNAMIC_OF_LISTENERS, ListenerSettings
from ottla.groups.settings import GroupSettings, TransactionSettings

INT_MAX = 2**31 - 1

LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
CLEANER_MEMORY_MIN = 1 << 20
"""The minimum memory of a cleaner in bytes: Apache Kafka does not start with less."""
NO_REVOCATION = (
    "Must be false if zookeeper.ssl.client.enable is true: Ottla does not check certificates for"
    " revocation."
)


class BrokerSettings(ListenerSettings):
    """The settings of a broker. A setting of ListenerSettings applies to each listener that does
    not set it itself."""

    node_id: int = setting("node.id", 0, at_least=0, help="This broker's number in its cluster.")
    broker_id: int = setting("broker.id", -1, help="The former name of node.id.")
    broker_rack: str | None = setting(
        "broker.rack", None,
        help="The rack of this broker; the replicas of a partition are placed on different racks.")
    listeners: Names = setting(
        "listeners", ("PLAINTEXT://:9092",),
        help="Addresses to listen on, NAME://host:port; port 0 chooses a free one. If the host is a"
        " name, the broker listens on all addresses of that name; if the host is empty, on every"
        " interface.")
    advertised_listeners: Names | None = setting(
        "advertised.listeners", None,
        help="Addresses that clients are told to connect to, if they differ from listeners.")
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        help="The security protocol of each listener's name, NAME:PROTOCOL.")
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name", None, help="The listener for connections between brokers.")
    security_inter_broker_protocol: str = setting(
        "security.inter.broker.protocol", "PLAINTEXT",
        one_of=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        help="If inter.broker.listener.name is not set, brokers use the listener with this"
        " protocol.")
    sasl_mechanism_inter_broker_protocol: str = setting(
        "sasl.mechanism.inter.broker.protocol", "GSSAPI", dynamic=True,
        help="The mechanism by which brokers log in to each other, on a listener with SASL: PLAIN,"
        " SCRAM-SHA-256 or SCRAM-SHA-512; Kafka's default, GSSAPI, is not served.")
    connection_failed_authentication_delay_ms: int = setting(
        "connection.failed.authentication.delay.ms", 100, at_least=0,
        help="How long the reply to a failed authentication is delayed. After the reply the"
        " connection is closed.")
    delegation_token_secret_key: Password | None = setting(
        "delegation.token.secret.key", None,
        help="The key from which the secrets of delegation tokens are derived; without this key, or"
        " with an empty one, there are no tokens. It has to be the same on all brokers.")
    delegation_token_max_lifetime_ms: Long = setting(
        "delegation.token.max.lifetime.ms", days(7), at_least=1,
        help="The maximum lifetime of a delegation token, however often it is renewed.")
    delegation_token_expiry_time_ms: Long = setting(
        "delegation.token.expiry.time.ms", days(1), at_least=1,
        help="The lifetime of a delegation token that is not renewed.")
    delegation_token_expiry_check_interval_ms: Long = setting(
        "delegation.token.expiry.check.interval.ms", hours(1), at_least=1,
        help="How often expired delegation tokens are removed from the metadata.")
    controller_listener_names: Names = setting(
        "controller.listener.names", (),
        help="Listeners of Kafka's controllers; Ottla does not open them.")
    log_dirs: Names | None = setting("log.dirs", None, help="The data directories.")
    log_dir: Names = setting(
        "log.dir", ("/tmp/kafka-logs",), help="The data directory if log.dirs is not set.")
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", 104_857_600, at_least=1, help="Maximum bytes of a request.")
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size", 50, at_least=1,
        help="Connections that may wait to be accepted.")
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes", 102_400,
        help="SO_SNDBUF of a client's socket; -1 leaves the size to the system.")
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes", -1,
        help="SO_RCVBUF of a client's socket. -1 leaves the size to the system, which lets it grow."
        " Large batches then cost a fifth less CPU than with Apache Kafka's default of 102400.")
    max_connections: int = setting(
        "max.connections", INT_MAX, at_least=0, dynamic=True,
        help="Maximum connections over all listeners; the limit of file descriptors applies, too."
        " With the prefix listener.name.<listener>. it is an additional limit for that listener.")
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", INT_MAX, at_least=0, dynamic=True,
        help="Maximum connections from one address.")
    max_connections_per_ip_overrides: str = setting(
        "max.connections.per.ip.overrides", "", dynamic=True,
        help="Exceptions to max.connections.per.ip: host:count,host:count.")
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate", INT_MAX, at_least=0, dynamic=True,
        help="Maximum new connections per second over all listeners. With the prefix"
        " listener.name.<listener>. it is an additional limit for that listener.")
    quota_window_num: int = setting(
        "quota.window.num", 11, at_least=1,
        help="Number of samples over which the rates of client quotas are measured.")
    quota_window_size_seconds: int = setting(
        "quota.window.size.seconds", 1, at_least=1,
        help="Duration of one sample of quota.window.num.")
    controller_quota_window_num: int = setting(
        "controller.quota.window.num", 11, at_least=1,
        help="A client may use the controller_mutation_rate quota of this many windows at once.")
    controller_quota_window_size_seconds: int = setting(
        "controller.quota.window.size.seconds", 1, at_least=1,
        help="Duration of one window of controller.quota.window.num.")
    connections_max_idle_ms: Long = setting(
        "connections.max.idle.ms", 600_000,
        help="Idle connections are closed after this time; a negative value means never.")
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", 57_671_680, at_least=1024,
        help="Maximum bytes of records in a reply to a consumer; a larger batch is sent alone.")
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", 1000, at_least=0,
        help="Maximum incremental fetch sessions (KIP-227).")
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit", 2000, at_least=1,
        help="Maximum partitions in a reply to DescribeTopicPartitions.")
    num_partitions: int = setting(
        "num.partitions", 1, at_least=1, help="Default number of partitions of a new topic.")
    default_replication_factor: int = setting(
        "default.replication.factor", 1, help="Default number of replicas of a new topic.")
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", True,
        help="Whether a Metadata request creates a missing topic.")
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", 60_000, at_least=0,
        help="How often a standalone broker saves recovery points and high watermarks. A broker of"
        " a cluster saves them after the shorter of this time and"
        " replica.high.watermark.checkpoint.interval.ms.")
    log_flush_scheduler_interval_ms: Long = setting(
        "log.flush.scheduler.interval.ms", 2**63 - 1,
        help="How often logs are checked for an expired flush.ms. Ottla checks at least every"
        " second, whatever the value; Apache Kafka with its default never checks.")
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir", 2, at_least=1, dynamic=True,
        help="Threads per log directory that recover logs after an unclean stop; a"
        " clean stop needs no recovery.")
    delete_topic_enable: bool = setting(
        "delete.topic.enable", True, help="Whether topics can be deleted.")
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", days(1), at_least=1, dynamic=True,
        help="An idempotent producer is forgotten after this time without a record.")
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions", GroupSettings, at_least=1,
        help="Partitions of __consumer_offsets.")
    offsets_topic_replication_factor: Short = setting(
        "offsets.topic.replication.factor", 3, at_least=1,
        help="Replicas of __consumer_offsets. A cluster creates the topic once it has this many"
        " brokers; a standalone broker has one replica.")
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes", 100 << 20, at_least=1,
        help="Segment size of __consumer_offsets; values below 1048576 count as 1048576.")
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", GroupSettings,
        help="Maximum size of the metadata of a committed offset.")
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms", GroupSettings, at_least=1,
        help="How long a group's request, such as a commit, waits for the in-sync replicas. After"
        " this time the client gets a retriable error.")
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", GroupSettings, at_least=1,
        help="How long committed offsets that are not in use are kept. Not in use are all offsets"
        " of a group without members, and those of topics that a group's members no longer read."
        " The time counts from the commit or, for a classic group without members, from when its"
        " last member left.")
    offsets_retention_check_interval_ms: Long = setting(
        "offsets.retention.check.interval.ms", GroupSettings, at_least=1,
        help="How often expired offsets are removed.")
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms", GroupSettings,
        help="How long a new group waits for members.")
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms", GroupSettings,
        help="The shortest session timeout of a member.")
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms", GroupSettings,
        help="The longest session timeout of a member.")
    group_max_size: int = setting(
        "group.max.size", GroupSettings, at_least=1, help="Maximum members of a classic group.")
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms", GroupSettings, at_least=1,
        help="Session timeout of KIP-848 members.")
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms", GroupSettings, at_least=1,
        help="Minimum session timeout of KIP-848 members; it also limits a group's own setting.")
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms", GroupSettings, at_least=1,
        help="Maximum session timeout of KIP-848 members; it also limits a group's own setting.")
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms", GroupSettings, at_least=1,
        help="Heartbeat interval of KIP-848 members.")
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms", GroupSettings, at_least=1,
        help="Minimum heartbeat interval of KIP-848 members; it also limits a group's own setting.")
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms", GroupSettings, at_least=1,
        help="Maximum heartbeat interval of KIP-848 members; it also limits a group's own setting.")
    group_consumer_assignors: Names = setting(
        "group.consumer.assignors", GroupSettings,
        help="Server-side assignors that KIP-848 members may request: uniform, range or both. The"
        " first one in the list is the default.")
    group_coordinator_rebalance_protocols: Names = setting(
        "group.coordinator.rebalance.protocols", ("classic", "consumer", "streams"),
        one_of=("consumer", "classic", "share", "streams"),
        help="Protocols that groups may use; without `consumer` there are no KIP-848 members."
        " Share and streams groups are not served.")
    group_consumer_max_size: int = setting(
        "group.consumer.max.size", GroupSettings, at_least=1,
        help="Maximum members of a KIP-848 group.")
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy", GroupSettings, any_case=True,
        one_of=("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"),
        help="Whether a group with members may change between the classic and the KIP-848"
        " protocol.")
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions", TransactionSettings, at_least=1,
        help="Partitions of __transaction_state.")
    transaction_state_log_replication_factor: Short = setting(
        "transaction.state.log.replication.factor", 3, at_least=1,
        help="Replicas of __transaction_state. A cluster creates the topic once it has this many"
        " brokers; a standalone broker has one replica.")
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr", 2, at_least=1,
        help="In-sync replicas needed to change a transaction. If __transaction_state has fewer"
        " replicas, all of them must be in sync.")
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes", 100 << 20, at_least=1,
        help="Segment size of __transaction_state; values below 1048576 count as 1048576.")
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms", TransactionSettings, at_least=1,
        help="The maximum transaction timeout that a client may request.")
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms", TransactionSettings, at_least=1,
        help="An unused transactional id is forgotten after this time.")
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", TransactionSettings,
        at_least=1,
        help="Delay before a failed abort of an expired transaction is retried. The first attempt"
        " does not wait for this interval, unlike Kafka's: it is made once the transaction's"
        " timeout has passed.")
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", TransactionSettings,
        at_least=1,
        help="How often expired transactional ids are removed.")
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", True,
        help="Whether topics with cleanup.policy compact are compacted.")
    log_cleaner_backoff_ms: Long = setting(
        "log.cleaner.backoff.ms", 15_000, at_least=0, dynamic=True,
        help="How long the cleaner sleeps when no log needs compaction.")
    log_cleaner_dedupe_buffer_size: Long = setting(
        "log.cleaner.dedupe.buffer.size", 134_217_728, dynamic=True,
        help="Maximum memory for keys while a log is compacted, 27 bytes per key. If the keys need"
        " more, a compaction takes several passes.")
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second", 1.7976931348623157e308, dynamic=True,
        help="Maximum bytes that the cleaner reads and writes per second; with 0 compaction waits.")
    log_retention_check_interval_ms: Long = setting(
        "log.retention.check.interval.ms", 300_000, at_least=1,
        help="How often segments are checked for deletion.")
    replica_fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", 500,
        help="How long a leader waits for new records before it answers a follower.")
    replica_fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", 1,
        help="A leader that has this many bytes of new records answers a follower at once.")
    replica_fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", 1_048_576, at_least=0,
        help="Maximum bytes of one partition in a reply to a follower; a larger batch is sent"
        " alone.")
    replica_fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", 10_485_760, at_least=0,
        help="Maximum bytes of records in a reply to a follower.")
    replica_fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", 1000, at_least=0,
        help="Maximum delay of a follower between failed attempts to fetch from a leader.")
    replica_socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms", 30_000,
        help="A follower reconnects to a leader that sends nothing for this time.")
    leader_replication_throttled_rate: Long = setting(
        "leader.replication.throttled.rate", 2**63 - 1, at_least=0, dynamic=True,
        help="Maximum bytes per second that this broker sends to throttled replicas that are out"
        " of sync; with 0 these replicas wait. Apache Kafka accepts this setting only at run time.")
    follower_replication_throttled_rate: Long = setting(
        "follower.replication.throttled.rate", 2**63 - 1, at_least=0, dynamic=True,
        help="Maximum bytes per second that this broker fetches for throttled replicas that are"
        " out of sync; with 0 these replicas wait. Apache Kafka accepts this setting only at run"
        " time.")
    replica_alter_log_dirs_io_max_bytes_per_second: Long = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second", 2**63 - 1, at_least=0, dynamic=True,
        help="Maximum bytes per second for moving partitions to another log directory; with 0 the"
        " moves wait. Apache Kafka accepts this setting only at run time.")
    replica_lag_time_max_ms: Long = setting(
        "replica.lag.time.max.ms", 30_000,
        help="A follower that has not caught up for this time leaves the in-sync set.")
    replica_high_watermark_checkpoint_interval_ms: Long = setting(
        "replica.high.watermark.checkpoint.interval.ms", 5000,
        help="How often a broker of a cluster saves its high watermarks and recovery points, unless"
        " log.flush.offset.checkpoint.interval.ms is shorter.")
    replica_selector_class: str | None = setting(
        "replica.selector.class", None,
        help=f"Which replica consumers read from (KIP-392). {RACK_AWARE_SELECTOR}: an in-sync"
        f" replica whose broker.rack equals their client.rack. {LEADER_SELECTOR}, or empty: the"
        " leader. Set the same value on all brokers.")
    ottla_open_segments_max: int = setting(
        "ottla.open.segments.max", 300, at_least=10,
        help="Maximum segments with open files. Each uses one file descriptor, or three if its"
        " indexes are in use. The value is limited to a quarter of ulimit -n. A broker that writes"
        " to more partitions than this at a time is faster with a higher value.")
    ottla_log_scrub_bytes_per_second: Long = setting(
        "ottla.log.scrub.bytes.per.second", 10_000_000, at_least=0,
        help="Rate at which sealed segments are checked for damage in the background;"
        " 0 is off.")
    ottla_log_scrub_interval_ms: Long = setting(
        "ottla.log.scrub.interval.ms", days(1), at_least=1000,
        help="Time until a segment is checked again; it takes longer if"
        " ottla.log.scrub.bytes.per.second is too low to read all segments in this time.")
    cordoned_log_dirs: Names = setting(
        "cordoned.log.dirs", (), dynamic=True,
        help="Log directories that get no new partitions while the broker has another one that it"
        " can use; * means all. If all are cordoned at run time, not only in the file, the broker"
        " gets no new replicas. `ottla cluster drain` also moves the existing partitions of a"
        " directory to the other directories.")
    ottla_forget_directories: str = setting(
        "ottla.forget.directories", "",
        help="Comma-separated ids (directory.id in meta.properties) of log directories"
        " that are lost for good. The partitions in them are lost, and start empty."
        " The partitions of other missing directories are offline until the directories are back.")
    ottla_stray_retention_ms: Long = setting(
        "ottla.stray.retention.ms", days(7), at_least=-1,
        help="If a partition's topic does not exist, its directory is renamed to end in -stray, and"
        " is deleted after this time; -1 means never.")
    authorizer_class_name: str = setting(
        "authorizer.class.name", "",
        help="Kafka's StandardAuthorizer enables ACLs. Empty: every client may do"
        " everything.")
    super_users: str = setting(
        "super.users", "",
        help="Users who may do everything, separated by semicolons: User:a;User:b.")
    allow_everyone_if_no_acl_found: bool = setting(
        "allow.everyone.if.no.acl.found", False,
        help="Whether resources without a matching ACL are open to everybody.")
    zookeeper_connect: str = setting(
        "zookeeper.connect", "",
        help="ZooKeeper's addresses, host:port,host:port/chroot; makes this broker part of a"
        " cluster. Empty: a single broker, which stores the metadata itself.")
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms", 9000, at_least=1,
        help="A broker from which ZooKeeper hears nothing for this time is considered dead. Apache"
        " Kafka's KRaft mode has the same default; its ZooKeeper mode had 18000.")
    zookeeper_connection_timeout_ms: int = setting(
        "zookeeper.connection.timeout.ms", 18_000, at_least=1,
        help="How long a starting broker waits for ZooKeeper before it gives up.")
    ottla_unavailable_broker_listed_ms: int = setting(
        "ottla.unavailable.broker.listed.ms", 10_000, at_least=0,
        help="How long Metadata responses still list a broker that has stopped or died, unless it"
        " is unregistered. This does not delay the move of its partitions and groups. The"
        " broker stays listed because librdkafka's transactional producers may hang if a group"
        " coordinator disappears from these responses. Meanwhile, clients that connect to the"
        " departed broker are refused. Apache Kafka lists a dead broker until its session"
        " ends, by default after 9 s.")
    initial_broker_registration_timeout_ms: int = setting(
        "initial.broker.registration.timeout.ms", 60_000,
        help="How long a starting broker waits for the end of another process's ZooKeeper session;"
        " at least one and a half session timeouts. It waits if that process has the same node.id"
        " but other log directories. This happens when a broker is restarted with a new disk"
        " before the session of its previous process has ended.")
    zookeeper_ssl_client_enable: bool = setting(
        "zookeeper.ssl.client.enable", False,
        help="Whether to connect to ZooKeeper over TLS, at its secureClientPort.")
    zookeeper_ssl_keystore_location: str | None = setting(
        "zookeeper.ssl.keystore.location", None,
        help="The file with the broker's key and certificate for ZooKeeper: PEM or PKCS12.")
    zookeeper_ssl_keystore_type: str = setting(
        "zookeeper.ssl.keystore.type", "JKS",
        help="The format of zookeeper.ssl.keystore.location; values as for ssl.keystore.type.")
    zookeeper_ssl_keystore_password: Password | None = setting(
        "zookeeper.ssl.keystore.password", None,
        help="The password of a PKCS12 file, or of an encrypted key in PEM.")
    zookeeper_ssl_truststore_location: str | None = setting(
        "zookeeper.ssl.truststore.location", None,
        help="The file with the trusted certificates, one of which must have signed ZooKeeper's"
        " certificate; if no file is set, the system's certificates are trusted.")
    zookeeper_ssl_truststore_type: str = setting(
        "zookeeper.ssl.truststore.type", "JKS",
        help="The format of zookeeper.ssl.truststore.location; values as for ssl.keystore.type.")
    zookeeper_ssl_truststore_password: Password | None = setting(
        "zookeeper.ssl.truststore.password", None, help="The password of a PKCS12 file.")
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        "zookeeper.ssl.endpoint.identification.algorithm", "HTTPS",
        help="Whether the certificate of a ZooKeeper server must contain the server's host name;"
        " empty disables the check.")
    zookeeper_ssl_enabled_protocols: Names = setting(
        "zookeeper.ssl.enabled.protocols", ("TLSv1.2", "TLSv1.3"), help="Versions of TLS.")
    zookeeper_ssl_cipher_suites: Names = setting(
        "zookeeper.ssl.cipher.suites", (),
        help="The allowed cipher suites, as in ssl.cipher.suites.")
    zookeeper_ssl_crl_enable: bool = setting(
        "zookeeper.ssl.crl.enable", False, help=NO_REVOCATION)
    zookeeper_ssl_ocsp_enable: bool = setting(
        "zookeeper.ssl.ocsp.enable", False, help=NO_REVOCATION)
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", True,
        help="Whether the controller returns leadership to the first replica of each partition"
        " once that replica is in sync.")
    leader_imbalance_check_interval_seconds: Long = setting(
        "leader.imbalance.check.interval.seconds", 300, at_least=1,
        help="How often the controller checks whether leadership can return to first replicas"
        " (auto.leader.rebalance.enable).")
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable", True,
        help="Whether a broker of a cluster hands over leadership before it stops.")
    telemetry_max_bytes: int = setting(
        "telemetry.max.bytes", 1_048_576, at_least=1,
        help="Maximum bytes of one push of a client's metrics (KIP-714), before decompression.")
    ottla_metrics_compat: Names = setting(
        "ottla.metrics.compat", (),
        help="Further sets of names under which metrics are served: confluent (for Confluent's"
        " dashboards), lag_exporter (as in Lightbend's kafka-lag-exporter).")
    ottla_http_listener: str = setting(
        "ottla.http.listener", "",
        help="Where metrics, health and status are served over HTTP, host:port; empty for none.")
    ottla_http_networks: Names = setting(
        "ottla.http.networks", (),
        help="Networks such as 192.0.2.0/24 whose clients may read all of /api/v1 on"
        " ottla.http.listener, like clients on this machine. Other clients may only read"
        " /api/v1/status, because the rest names users, clients and groups.")
    ottla_http_names: Names = setting(
        "ottla.http.names", (),
        help="Further host names by which HTTP clients may address ottla.http.listener, besides"
        " those of the machine and of the listeners; requests with other names are refused.")
    ottla_console_listener: str = setting(
        "ottla.console.listener", "",
        help="Where the console (docs/console.md) is served, host:port; empty for none. The broker"
        " starts and stops the console as a separate process.")
    ottla_console_config: str = setting(
        "ottla.console.config", "",
        help="A file of client settings, with which the console connects to the broker; needed if"
        " no listener is PLAINTEXT.")
    ottla_console_allow_changes: bool = setting(
        "ottla.console.allow.changes", False,
        help="Whether the console allows changes without a login.")
    ottla_acks_all_flush: bool = setting(
        "ottla.acks.all.flush", True,
        help="Whether acks=all waits for a flush to the disk while this broker is the"
        " only in-sync replica; false gives Kafka's weaker guarantee.")


DYNAMIC = frozenset(
    name for name, declared in BrokerSettings.declared.items() if declared.dynamic
) - DYNAMIC_OF_LISTENERS
"""Settings that can be changed on a running broker (KIP-226). Most defaults of topics and some
settings of listeners can be changed, too, but are not in this set."""
