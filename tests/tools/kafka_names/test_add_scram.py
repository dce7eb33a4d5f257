"""kafka-storage format --add-scram: the first users of a broker that requires passwords."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.running import NODE_ID, WireClient
from tests.broker.security.logging_in import SaslBroker, log_in

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def format_with(
    data: Path, *rules: str, more: str = ""
) -> subprocess.CompletedProcess[str]:
    config = data.parent / "server.properties"
    config.write_text(f"log.dirs={data}\nnode.id={NODE_ID}\n{more}")
    flags = [part for rule in rules for part in ("--add-scram", rule)]
    ottla = str(Path(sys.executable).with_name("ottla"))
    return subprocess.run(
        [ottla, "kafka-storage", "format", "-t", CLUSTER_ID, "-c", str(config), *flags],
        capture_output=True, text=True,
    )  # fmt: skip


def test_users_of_format_may_log_in_from_the_first_start_on(data: Path) -> None:
    done = format_with(
        data, "SCRAM-SHA-256=[name=alice,password=alice-secret]",
        'SCRAM-SHA-512=[name="bob",iterations=8192,password="b,c"]',
    )
    assert done.returncode == 0, done.stderr
    [prepared] = data.glob("ottla-bootstrap*")
    assert prepared.stat().st_mode & 0o777 == 0o600
    assert b"secret" not in prepared.read_bytes()
    for _ in range(2):                      # also from the second start
        with SaslBroker(data) as broker:
            assert not prepared.exists()
            assert broker.server.storage.cluster_id == CLUSTER_ID
            for mechanism, user, password in (
                ("SCRAM-SHA-256", "alice", "alice-secret"), ("SCRAM-SHA-512", "bob", "b,c"),
            ):
                with WireClient(broker.inside) as client:
                    assert log_in(client, mechanism, user, password).error_code == 0


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("SCRAM-SHA-1=[name=a,password=secret]", "SCRAM-SHA-256=[name=alice"),
        ("SCRAM-SHA-256=[password=secret]", "'name'"),
        ("SCRAM-SHA-256=[name=a]", "'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,password=secret,iterations=1]", "Too few iterations"),
        ("SCRAM-SHA-256=[name=a,password=secret,colour=red]", "The fields are name"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=c2VjcmV0]", "'salt'"),
    ],
)
def test_a_rule_that_is_none_formats_nothing_and_shows_no_password(
    data: Path, rule: str, problem: str
) -> None:
    done = format_with(data, rule)
    assert done.returncode != 0 and problem in done.stdout + done.stderr
    if "[name=alice" not in problem:        # that one prints the usage
        assert "secret" not in done.stdout + done.stderr
    assert not data.exists()


@pytest.mark.parametrize(("setting", "problem"), [
    ("", 'Missing required configuration "node.id" which has no default value.'),
    ("broker.id=-1\n", "Invalid value -1 for configuration node.id: Value must be at least 0"),
])
def test_nothing_is_formatted_for_a_broker_without_a_number(
    data: Path, setting: str, problem: str
) -> None:
    """If the directory had another node id than the settings, the broker would refuse to start."""
    config = data.parent / "server.properties"
    config.write_text(f"log.dirs={data}\n{setting}")
    ottla = str(Path(sys.executable).with_name("ottla"))
    done = subprocess.run(
        [ottla, "kafka-storage", "format", "-t", CLUSTER_ID, "-c", str(config)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1 and problem in done.stderr
    assert not data.exists()


def test_the_directories_of_a_cluster_are_not_formatted_and_nothing_is_ignored(data: Path) -> None:
    config = "zookeeper.connect=localhost:2181/ottla\n"
    done = format_with(data, "SCRAM-SHA-256=[name=a,password=secret]", more=config)
    assert done.returncode == 1
    assert "zookeeper.connect is set, so there is nothing to format" in done.stderr
    assert not data.exists()
