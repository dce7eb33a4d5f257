"""server.properties as Kafka's users write them: accepted, warned about or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.settings.addresses import Address
from ottla.broker.settings.change_rules import rules_for
from ottla.broker.settings.config import OF_AUTHORIZERS, BrokerConfig, SettingsError
from ottla.broker.settings.kafka_settings import kafka_settings
from ottla.log.partition.config import LogConfig
from ottla.replication.metadata import ConfigSet, MetadataImage
from ottla.wire.errors import InvalidRequest

STOCK_FILE = """\
# Kafka's own config/server.properties of 4.x, without its comments
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/tmp/kraft-combined-logs
num.partitions=3
offsets.topic.replication.factor=1
log.retention.hours=24
log.segment.bytes=1073741824
"""
AUTHORIZED = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def config(*overrides: str) -> BrokerConfig:
    return BrokerConfig.load(None, overrides)


def refused(*overrides: str) -> str:
    with pytest.raises(SettingsError) as raised:
        config(*overrides)
    return str(raised.value)


def test_without_a_file_it_serves_localhost_from_data() -> None:
    broker = config()
    assert broker.endpoints() == [Address("PLAINTEXT", "localhost", 9092)]
    assert broker.log_directories() == [Path("data")]
    assert (broker.node_id, broker.warnings) == (0, [])


def test_an_empty_replica_selector_is_the_leader() -> None:
    assert not config("replica.selector.class=").redirects_consumers


def test_a_single_directory_is_used_unless_several_are_given() -> None:
    """A broker without a file has a default for log.dirs. It does not hide `log.dir`."""
    assert config("log.dir=/a").log_directories() == [Path("/a")]
    assert config("log.dir=/a", "log.dirs=/b,/c").log_directories() == [Path("/b"), Path("/c")]


def test_a_repeated_entry_of_a_list_counts_once_with_a_warning() -> None:
    """This is as in Apache Kafka 4.4 (KAFKA-19875)."""
    broker = config("log.dirs=/a,/a", "log.cleanup.policy=delete,delete")
    assert broker.log_directories() == [Path("/a")]
    assert broker.topic_defaults()["cleanup.policy"] == "delete,delete"
    assert broker.warnings[:2] == [
        "log.dirs=/a,/a: a repeated entry counts once",
        "log.cleanup.policy=delete,delete: a repeated entry counts once",
    ]


def test_a_repeated_entry_is_refused_where_a_running_broker_is_changed() -> None:
    """This, too, is as in Apache Kafka 4.4."""
    rules = rules_for([1], 1, {})["broker"]
    changes = {"log.cleanup.policy": "delete,delete"}
    with pytest.raises(InvalidRequest, match="must not be duplicated"):
        rules.check("1", changes, frozenset(changes))


def test_kafkas_own_server_properties_start_a_broker(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(STOCK_FILE)
    broker = BrokerConfig.load(path, ["num.partitions=5"])
    assert broker.endpoints() == [Address("PLAINTEXT", "", 9092)]
    assert broker.advertised("PLAINTEXT", 9092) == ("localhost", 9092)
    assert (broker.node_id, broker.num_partitions) == (1, 5)
    assert broker.topic_defaults() == {"retention.ms": "86400000", "segment.bytes": "1073741824"}
    assert any("num.io.threads, num.network.threads" in warning for warning in broker.warnings)


def test_a_file_without_log_dirs_has_kafkas_defaults(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=7\n")
    broker = BrokerConfig.load(path)
    assert broker.node_id == 7
    assert broker.endpoints() == [Address("PLAINTEXT", "", 9092)]
    assert broker.log_directories() == [Path("/tmp/kafka-logs")]


def test_properties_without_effect_share_one_warning() -> None:
    broker = config("num.io.threads=4", "zookeeper.set.acl=true", "super.users=User:a",
                    "listener.name.plaintext.ssl.keystore.location=x")
    assert broker.warnings == [
        "without effect in Ottla: listener.name.plaintext.ssl.keystore.location, num.io.threads,"
        " super.users, zookeeper.set.acl"
    ]


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("# Ottla\n\nA broker.\n\nnode.ids=1\n")
    with pytest.raises(SettingsError, match=r"A: Kafka and Ottla know .* is it the right file\?"):
        BrokerConfig.load(page)
    page.write_text("A broker.\nnode.id=1\n")
    assert BrokerConfig.load(page).warnings


def test_a_member_of_a_cluster_needs_a_number() -> None:
    with pytest.raises(SettingsError, match=r"node\.id"):
        BrokerConfig({"zookeeper.connect": "z:2181"})
    assert BrokerConfig({"zookeeper.connect": "z:2181", "broker.id": "7"}).node_id == 7


def test_broker_and_node_have_one_number() -> None:
    assert refused("node.id=1", "broker.id=2") == (
        "node.id: is 1 but broker.id is 2: remove broker.id"
    )
    for same in (["node.id=3", "broker.id=3"], ["node.id=3"], ["broker.id=3"],
                 ["node.id=3", "broker.id=-1"]):
        assert (config(*same).node_id, config(*same).broker_id) == (3, 3)


@pytest.mark.parametrize("users", ["admin", "User:a;admin", ":admin", "User:"])
def test_a_super_user_has_a_type(users: str) -> None:
    """An earlier version accepted such an entry, which matches no user. Kafka does not start with
    it."""
    assert "is not of the form principalType:principalName" in refused(
        AUTHORIZED, f"super.users={users}"
    )
    assert config(f"super.users={users}").super_user_names == frozenset(), "nobody reads it"


def test_super_users_are_separated_by_semicolons() -> None:
    users = config(AUTHORIZED, "super.users= User:a ; User:CN=b,O=c;;").super_user_names
    assert users == {"User:a", "User:CN=b,O=c"}


def test_a_lone_broker_says_that_topics_have_one_replica() -> None:
    [warning] = config("default.replication.factor=3").warnings
    assert "topics have one replica" in warning
    member = ("zookeeper.connect=z:2181", "node.id=1", "default.replication.factor=3")
    assert config(*member).warnings == config("default.replication.factor=1").warnings == []


@pytest.mark.parametrize(("connect", "reason"), [
    ("z:2181:2181", "'z:2181:2181' in .* is not of the form host:port"),
    ("z:port/ottla", "'z:port' in .* is not of the form host:port"),
    ("::1/ottla", "write an IPv6 address in brackets"),
    ("[::1/ottla", "write an IPv6 address in brackets"),
    ("a:1,,b:2", "'' in 'a:1,,b:2' is not of the form"),
    ("/ottla", "'' in '/ottla' is not of the form"),
    ("a:2181/ottla,b:2181/ottla", "has a chroot before the last server"),
    ("a:2181/ottla/../x", "the chroot '/ottla/../x' must not contain"),
])
def test_zookeepers_addresses_are_checked_before_anything_is_connected(
    connect: str, reason: str
) -> None:
    """ZooKeeper clients take everything from the first slash on for the chroot. With
    `a:2181/ottla,b:2181/ottla` they would use server a alone, with the chroot
    `/ottla,b:2181/ottla`."""
    with pytest.raises(SettingsError, match=reason):
        BrokerConfig({"zookeeper.connect": connect, "node.id": "1"})


@pytest.mark.parametrize("connect", [
    "z", "z:2181", "a:2181, b:2181/ottla", "[::1]:2181,[fe80::1]:2181/a/b", "in-memory:1", "z/",
])
def test_zookeepers_addresses_that_are_understood(connect: str) -> None:
    assert BrokerConfig({"zookeeper.connect": connect, "node.id": "1"}).zookeeper_connect == connect


def test_an_unknown_property_is_warned_about_with_the_nearest_name() -> None:
    [warning] = config("log.retentoin.ms=1").warnings
    assert "log.retentoin.ms" in warning and "log.retention.ms" in warning
    [warning] = config("qwertyuiop=1").warnings
    assert "did you mean" not in warning


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("num.partitions=0", "at least 1"),
        ("num.partitions=x", "whole number"),
        ("num.partitions=2147483648", "whole number (32 bits)"),
        ("offsets.topic.replication.factor=40000", "16 bits"),
        ("auto.create.topics.enable=yes", "true or false"),
        ("log.cleanup.policy=compact,keep", "compact, delete"),
        ("log.segment.bytes=100", "at least 1048576"),
        # Kafka's table of the broker's settings has no limits of these; the topic's settings have.
        ("log.retention.ms=-2", "at least -1"),
        ("log.roll.ms=0", "at least 1"),
        ("log.roll.jitter.ms=-1", "at least 0"),
        ("log.flush.interval.ms=-1", "at least 0"),
        ("log.flush.scheduler.interval.ms=-1", "at least 0"),
        ("compression.type=brotli", "uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level=0", "at least 1, at most 9, or -1"),
        ("log.cleaner.min.cleanable.ratio=1.5", "at most 1"),
        ("log.cleaner.min.cleanable.ratio=nan", "a number"),
        ("num.io.threads=many", "whole number"),
        ("log.retention.hours=3.5", "whole number"),
        ("group.consumer.migration.policy=sideways", "BIDIRECTIONAL"),
        ("max.connections.per.ip.overrides=1.2.3.4", "host:count"),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_property_and_what_it_allows(
    override: str, allowed: str
) -> None:
    message = refused(override)
    assert message.startswith(override.partition("=")[0] + ": ")
    assert allowed in message


def test_all_bad_values_and_the_warnings_are_told_together() -> None:
    with pytest.raises(SettingsError) as raised:
        config("num.partitions=0", "num.io.threads=many", "listeners=PLAINTEXT://:9092x",
               "node.id=7", "broker.id=8", "ottla.http.networks=x", "log.retentoin.ms=1")
    names = [error.name for error in (raised.value, *raised.value.others)]
    assert sorted(names) == [
        "listeners", "node.id", "num.io.threads", "num.partitions", "ottla.http.networks"]
    [unknown, _] = raised.value.warnings
    assert "did you mean log.retention.ms?" in unknown
    assert raised.value.others[0].others == (), "one list of them"


@pytest.mark.parametrize("also", ["broker.id=3", "zookeeper.connect=localhost:2181"])
@pytest.mark.parametrize("wrong", ["node.id", "broker.id"])
def test_a_wrong_id_is_not_compared_with_others(wrong: str, also: str) -> None:
    with pytest.raises(SettingsError, match=f"{wrong}: ") as raised:
        config(also, f"{wrong}=x")
    assert raised.value.others == []


def test_values_are_read_as_kafka_reads_them() -> None:
    broker = config("auto.create.topics.enable= FALSE ", "num.partitions=+4",
                    "log.dirs= /a , /b", "group.consumer.migration.policy=Upgrade")
    assert broker.auto_create_topics_enable is False
    assert broker.num_partitions == 4
    assert broker.log_directories() == [Path("/a"), Path("/b")]


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ("PLAINTEXT://:0", [Address("PLAINTEXT", "", 0)]),
        ("plaintext://127.0.0.1:1", [Address("PLAINTEXT", "127.0.0.1", 1)]),
        ("PLAINTEXT://[::1]:9092", [Address("PLAINTEXT", "::1", 9092)]),
        ("PLAINTEXT://a-b.c_d:9", [Address("PLAINTEXT", "a-b.c_d", 9)]),
    ],
)
def test_listeners_are_names_hosts_and_ports(listeners: str, expected: list[Address]) -> None:
    assert config(f"listeners={listeners}").endpoints() == expected


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["listeners=localhost:9092"], "NAME://host:port"),
        (["listeners=PLAINTEXT://localhost"], "NAME://host:port"),
        (["listeners=PLAINTEXT://::1:9092"], "NAME://host:port"),
        (["listeners=PLAINTEXT://h:65536"], "from 0 to 65535"),
        (["listeners=PLAINTEXT://h:-1"], "from 0 to 65535"),
        (["listeners="], "no listener"),
        (["listeners=PLAINTEXT://h:1,PLAINTEXT://h:2"], "two listeners have the name PLAINTEXT"),
        (["listeners=PLAINTEXT://h:1,A://h:1",
          "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,A:PLAINTEXT"], "both use port 1"),
        (["listeners=INSIDE://h:1"], "no security protocol for INSIDE"),
        (["listener.security.protocol.map=PLAINTEXT:TLS"], "PLAINTEXT:TLS"),
        (["listeners=PLAINTEXT://0.0.0.0:1"], "clients cannot reach 0.0.0.0"),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:1"], "0.0.0.0"),
        (["advertised.listeners=OTHER://h:1"], "has no listener with the name OTHER"),
        (["inter.broker.listener.name=OTHER"], "has no listener with the name OTHER"),
    ],
)
def test_listeners_that_cannot_be_served_are_an_error_at_start(
    overrides: list[str], problem: str
) -> None:
    assert problem in refused(*overrides)


def test_one_port_may_serve_both_internet_protocols() -> None:
    broker = config("listeners=A://127.0.0.1:1,B://[::1]:1",
                    "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT")
    assert [address.name for address in broker.endpoints()] == ["A", "B"]


def test_clients_are_told_the_advertised_address_or_where_the_listener_is() -> None:
    broker = config("listeners=PLAINTEXT://:0,INSIDE://10.0.0.1:7",
                    "advertised.listeners=PLAINTEXT://kafka.example:0",
                    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT")
    assert broker.advertised("PLAINTEXT", 40000) == ("kafka.example", 40000)
    assert broker.advertised("INSIDE", 7) == ("10.0.0.1", 7)
    assert config("listeners=PLAINTEXT://:0").advertised("PLAINTEXT", 1)[0] not in ("", "0.0.0.0")


def test_advertising_localhost_beyond_this_machine_is_warned_about() -> None:
    broker = config("listeners=PLAINTEXT://0.0.0.0:9092",
                    "advertised.listeners=PLAINTEXT://localhost:9092")
    assert any("advertises localhost" in warning for warning in broker.warnings)


@pytest.mark.parametrize("override", ["nothing", "=x", ""])
def test_an_override_has_a_name_and_a_value(override: str) -> None:
    assert "name=value" in refused(override)


OTHER_DEFAULTS = {"socket.receive.buffer.bytes"}
"""Settings whose default differs from Kafka's; the setting's description says why."""
ONLY_DYNAMIC = {
    "follower.replication.throttled.rate", "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Settings that Kafka does not allow in a file. Kafka's table of broker settings lacks them, so
there is nothing to compare."""


@pytest.mark.parametrize("name", sorted(BrokerConfig.declared))
def test_declared_settings_are_as_kafka_has_them(name: str) -> None:
    ours = BrokerConfig.declared[name]
    if name.startswith("ottla.") or name in OF_AUTHORIZERS or name in ONLY_DYNAMIC:
        assert name not in kafka_settings("broker")
        return
    if name in kafka_settings("removed"):       # from Kafka's ZooKeeper mode
        assert ours.kind == kafka_settings("removed")[name].setting.kind
        return
    theirs = kafka_settings("broker")[name]
    for part in ("kind", "at_least", "at_most", "also", "one_of", "any_case"):
        assert getattr(ours, part) == getattr(theirs.setting, part), part
    assert ours.attribute == name.replace(".", "_")
    # Settings that Kafka requires (KRaft's roles) have a default here.
    same = ours.default == theirs.setting.default
    assert same != (name in OTHER_DEFAULTS) or theirs.required


def test_the_nearest_layer_of_a_topics_setting_counts() -> None:
    broker = config("log.retention.hours=1")
    image = MetadataImage.empty().apply([ConfigSet("topic", "own", "retention.ms", "5")])
    plain = broker.topic_log_config(image, "plain")
    assert (plain.retention_ms, plain.segment_bytes) == (3_600_000, LogConfig().segment_bytes)
    assert broker.topic_log_config(image, "own").retention_ms == 5
    image = image.apply([ConfigSet("broker", "", "log.retention.ms", "7")])
    assert broker.topic_log_config(image, "plain").retention_ms == 7
    image = image.apply([ConfigSet("broker", "0", "log.retention.ms", "9")])
    assert broker.topic_log_config(image, "plain").retention_ms == 9
    assert broker.topic_log_config(image, "own").retention_ms == 5
    image = image.apply([ConfigSet("broker", "0", "log.retention.ms", None)])
    assert broker.topic_log_config(image, "plain").retention_ms == 7


def test_topics_without_settings_share_one_log_config() -> None:
    broker, image = config(), MetadataImage.empty()
    assert broker.topic_log_config(image, "a") is broker.topic_log_config(image, "b")


def test_milliseconds_hide_minutes_and_minutes_hide_hours() -> None:
    hours, minutes = "log.retention.hours=1", "log.retention.minutes=2"
    millis = "log.retention.ms=3"
    assert config(hours).topic_defaults()["retention.ms"] == "3600000"
    assert config(hours, minutes).topic_defaults()["retention.ms"] == "120000"
    assert config(hours, minutes, millis).topic_defaults()["retention.ms"] == "3"
    assert config("log.retention.hours=-1").topic_defaults()["retention.ms"] == "-1"


@pytest.mark.parametrize("unit", ["ms", "minutes", "hours"])
def test_no_default_deletes_the_records_of_all_topics_at_once(unit: str) -> None:
    """As in Kafka, which accepts 0 only as the setting of a topic."""
    name = f"log.retention.{unit}"
    with pytest.raises(SettingsError, match=f"{name}: must not be 0"):
        BrokerConfig({name: "0"})
    assert BrokerConfig({name: "-1"}) and BrokerConfig({name: "1"})
    hidden = BrokerConfig({"log.retention.hours": "0", "log.retention.ms": "1"})
    assert hidden.topic_defaults()["retention.ms"] == "1"


def test_a_failed_login_is_answered_before_its_connection_is_idle_for_too_long() -> None:
    """As in Kafka. Otherwise clients would not learn why they are disconnected."""
    delay, idle = "connection.failed.authentication.delay.ms", "connections.max.idle.ms"
    for idle_ms in ("0", "100", "99"):
        with pytest.raises(SettingsError, match=f"{delay}: is 100, but has to be less than {idle}"):
            BrokerConfig({idle: idle_ms})
    assert BrokerConfig({idle: "101"}) and BrokerConfig({idle: "-1"})
    assert BrokerConfig({idle: "1", delay: "0"})
