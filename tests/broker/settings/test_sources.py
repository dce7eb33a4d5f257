"""Where properties come from, and what is refused with its line and the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.settings.config import BrokerConfig, has_effect
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.environment import from_environment, log_level
from ottla.broker.settings.hazards import framed, hazards, unresolvable
from ottla.broker.settings.sources import Sources
from ottla.replication.metadata import ConfigSet, MetadataImage


def refusal(data: bytes, tmp_path: Path) -> str:
    path = tmp_path / "server.properties"
    path.write_bytes(data)
    with pytest.raises(SettingsError) as raised:
        Sources(path).read()
    message = str(raised.value)
    return message.replace(str(path), "FILE")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"node.id=1\nlog.dirs=\x00\x01", r"FILE: is not a text file: line 2 has the byte '\x00'"),
        (b"\x7fELF\x02\x01\x01\x00", r"FILE: is not a text file: line 1 has the byte '\x02'"),
        (b'\n {"node.id": 1}', "FILE: appears to be JSON"),
        (b"# a\n\nnode.id=1\n=7\n", "FILE: line 4 has no name before its separator"),
        (b"a=\\u12\nb=1", "FILE: line 1: a: \\u without four hexadecimal digits at character 1"),
        (b"node.id=1\nlog.dirs=${env:OTTLA_DIR}", "config.providers does not name 'env' (FILE, li"),
        (b"log.dirs=/a,\\\n /b/${DATA}", "names no provider: expected a form such as ${env:NAME"),
        (b"config.providers=env\nrack=${env:OTTLA_NOT_SET}", "OTTLA_NOT_SET is not set (FILE, li"),
        (b"config.providers=vault", "config.providers.vault.class"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    if b"vault" in data:
        data += b"\nrack=${vault:a:b}"
    assert reason in refusal(data, tmp_path)


def test_an_override_without_its_value_is_refused_before_a_file_is_read(tmp_path: Path) -> None:
    """In `--override num.partitions 6`, the 6 would be taken for the name of the file."""
    with pytest.raises(SettingsError, match=r"'num\.partitions' is not of the form name=value"):
        Sources(tmp_path / "6", ["num.partitions"]).read()


def test_secrets_come_from_variables_files_and_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_TEST_RACK", "r7")
    (tmp_path / "secrets.properties").write_text("key.password=a:b}c\n")
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "password").write_text("from a mounted file")
    package = "org.apache.kafka.common.config.provider."
    path = tmp_path / "server.properties"
    path.write_text(
        f"config.providers=env,secrets,mounted\n"
        f"config.providers.secrets.class={package}FileConfigProvider\n"
        f"config.providers.mounted.class={package}DirectoryConfigProvider\n"
        f"config.providers.mounted.param.allowed.paths={tmp_path}\n"
        f"broker.rack=rack ${{env:OTTLA_TEST_RACK}}\n"
        f"ssl.key.password=${{secrets:{tmp_path}/secrets.properties:key.password}}\n"
        f"ssl.keystore.password=${{mounted:{tmp_path}/mounted:password}}\n"
    )
    texts = Sources(path).read()
    assert texts["broker.rack"] == "rack r7"
    assert texts["ssl.key.password"] == "a:b}c"
    assert texts["ssl.keystore.password"] == "from a mounted file"
    assert BrokerConfig.load(path).broker_rack == "rack r7"
    path.write_text(path.read_text().replace(f"allowed.paths={tmp_path}", "allowed.paths=/nowhere"))
    with pytest.raises(SettingsError, match=r"is not in allowed\.paths"):
        Sources(path).read()


def test_kafkas_variables_mean_what_they_mean_to_its_images() -> None:
    found = from_environment({
        "KAFKA_LOG_DIRS": "/data", "KAFKA_CFG_NUM_PARTITIONS": "3", "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_LISTENER_NAME_INTERNAL_SASL___X__Y": "z", "KAFKA_LOG4J_LOGGERS": "a=WARN",
        "KAFKA_VERSION": "4.3.1", "PATH": "/bin", "KAFKA_": "x", "KAFKA_OTTLA_HTTP_LISTENER": "h:1",
    })
    assert {name: value for name, (value, _) in found.items()} == {
        "log.dirs": "/data", "num.partitions": "3", "listener.name.internal.sasl-x_y": "z",
        "ottla.http.listener": "h:1",
    }
    assert log_level({"KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN"}) == "warning"
    assert log_level({}) is None


def test_overrides_win_over_variables_and_these_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=1\nlog.dirs=/file\nbroker.rack=file\n")
    environment = {"KAFKA_LOG_DIRS": "/variable", "KAFKA_BROKER_RACK": "variable"}
    read = Sources(path, ["broker.rack=override"], environment).read()
    assert read == {"num.partitions": "1", "log.dirs": "/variable", "broker.rack": "override"}
    assert Sources(None, (), environment).read()["listeners"] == "PLAINTEXT://localhost:9092"


def test_an_error_names_the_line_or_variable_of_the_value(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# remark\nlog.retention.ms=1x\nnum.partitions=abc\nbroker.rack=${env:NONE}\n")

    def told(name: str, *overrides: str, text: str = "is wrong") -> str:
        environment = {"KAFKA_LOG_SEGMENT_BYTES": "big"}
        return Sources(path, overrides, environment).details(SettingsError(name, text))

    assert told("log.retention.ms") == f" ({path}, line 2)"
    assert told("num.partitions") == f" ({path}, line 3)"
    assert told("log.segment.bytes") == " (KAFKA_LOG_SEGMENT_BYTES)"
    assert told("num.partitions", "num.partitions=x") == ""     # the user sees the command line
    assert told("node.id") == ""                                # a default
    assert told("broker.rack", text=f"no variable ({path}, line 4)") == ""      # the text has it
    path.write_text("{}")
    assert told(str(path)) == ""


def said(*overrides: str) -> str:
    return "\n".join(hazards(BrokerConfig.load(None, ["log.dirs=/srv/ottla", *overrides])))


def test_what_a_configuration_risks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said() == ""
    everywhere = ("listeners=PLAINTEXT://:9092", "advertised.listeners=PLAINTEXT://me:9092")
    assert "on all interfaces without authentication" in said(*everywhere)
    for host in ("0.0.0.0", "0", "[::]", "[0:0::0]"):
        other = (f"listeners=PLAINTEXT://{host}:9092", everywhere[1])
        assert "on all interfaces" in said(*other)
    assert said("listeners=PLAINTEXT://10.0.0.0:9092", everywhere[1]) == ""
    tls = ("listeners=SSL://:9092", "advertised.listeners=SSL://me:9092")
    assert "on all interfaces without authentication" in said(*tls)
    assert "without authentication" in said(*tls, "ssl.client.auth=requested")
    assert said(*tls, "listener.name.ssl.ssl.client.auth=required") == ""
    assert "a temporary directory" in said("log.dirs=/tmp/kafka-logs")
    assert said("log.dirs=/tmp/ottla-dev-x1/data") == "", "that of `ottla server dev`"
    assert "names 3 controllers" in said("controller.quorum.voters=1@a:1,2@b:1,3@c:1")
    assert "process.roles=broker" in said("process.roles=broker")
    member = ("zookeeper.connect=z:2181,localhost:2181", "process.roles=broker", "node.id=1")
    assert said(*member, "listeners=PLAINTEXT://10.0.0.1:9092") == ""
    assert "sends the other brokers of the cluster to localhost" in said(*member)
    apart = "listeners=INSIDE://10.0.0.1:9091,PLAINTEXT://localhost:9092"
    protocols = "listener.security.protocol.map=INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    assert said(*member, apart, protocols, "inter.broker.listener.name=INSIDE") == ""
    assert said("zookeeper.connect=localhost:2181,[::1]:2181/ottla", "node.id=1") == ""
    assert said("process.roles=broker,controller", "controller.quorum.voters=1@here:9093") == ""
    for name in ("principal.builder.class", "listener.name.plaintext.principal.builder.class"):
        assert f"{name}: Ottla does not run a.B" in said(f"{name}=a.B")
    assert "no policy refuses the creation of topics" in said("create.topic.policy.class.name=a.B")
    standard = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
    assert said(f"principal.builder.class={standard}") == ""
    text = framed(["first " * 30, "second"])
    assert text.count("ATTENTION") == 2 and max(map(len, text.splitlines())) <= 100


def test_an_advertised_name_that_does_not_resolve_is_warned_about() -> None:
    config = BrokerConfig.load(None, ["advertised.listeners=PLAINTEXT://no-such.invalid:9092"])
    [warning] = unresolvable(config)
    assert warning.startswith("advertised.listeners: PLAINTEXT sends clients to no-such.invalid")
    assert list(unresolvable(BrokerConfig.load(None, []))) == []


def test_reading_again_changes_what_may_change_and_names_the_rest() -> None:
    config = BrokerConfig.load(None, ["max.connections=10", "num.partitions=1"])
    image = MetadataImage.empty()
    found = config.reload(
        config.static | {"max.connections": "20", "num.partitions": "2", "retention.ms": "x",
                         "log.retention.ms": "1000"}, image,
    )
    assert found.changed == {"max.connections": ("10", "20"), "log.retention.ms": (None, "1000")}
    assert found.refused == ["num.partitions", "retention.ms"]
    assert config.max_connections == 20
    assert config.topic_log_config(image, "t").retention_ms == 1000
    with pytest.raises(SettingsError, match=r"max\.connections"):
        config.reload(config.static | {"max.connections": "many"}, image)
    assert config.max_connections == 20
    limit = {"listener.name.plaintext.max.connections": "7"}
    assert config.reload(config.static | limit, image).refused == []
    assert config.listener_limits["PLAINTEXT"].max_connections == 7
    back = dict(config.static)
    del back["max.connections"]
    config.reload(back, image)
    assert config.max_connections == 2147483647


def test_references_are_resolved_anew_when_a_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "limits").write_text("connections=20\n")
    file = tmp_path / "server.properties"
    file.write_text("max.connections=10\n")
    config = BrokerConfig.load(file)
    limit = f"max.connections=${{file:{tmp_path}/limits:connections}}\n"
    file.write_text("config.providers=file\n" + limit)
    found = config.reload(config.sources.read(), MetadataImage.empty())
    assert found.refused == [] and found.changed["config.providers"] == (None, "file")
    assert config.max_connections == 20
    assert has_effect("config.providers") and has_effect("config.providers.file.class")


def test_what_was_set_at_run_time_wins_over_a_file_that_is_read_again() -> None:
    config = BrokerConfig.load(None, ["max.connections=10"])
    image = MetadataImage.empty().apply([ConfigSet("broker", "0", "max.connections", "7")])
    config.follow(MetadataImage.empty(), image, ())
    assert config.max_connections == 7
    config.reload(config.static | {"max.connections": "20"}, image)
    assert config.max_connections == 7
