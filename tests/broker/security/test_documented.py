"""The secured broker of docs/security.md, exactly as the page shows it: its users can log in,
others cannot."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateTopicsRequest, MetadataRequest
from tests.broker.running import RunningBroker, WireClient
from tests.documents import ROOT, blocks, commands, run_as_written

DOCUMENT = ROOT / "docs" / "security.md"
BIN = Path(sys.executable).parent
CERTIFICATE, USERS, FIRST_USER, BY_FIRST_USER = (
    block.text for block in commands("docs/security.md"))


def documented(directory: Path, key: Path) -> dict[str, str]:
    """The properties in the page's ten lines, with this machine's addresses and paths, and without
    advertised.listeners."""
    [text] = re.findall(r"## A secured broker in ten lines\n\n```properties\n(.*?)```",
                        DOCUMENT.read_text(), re.DOTALL)  # fmt: skip
    assert len(text.splitlines()) == 10
    text = text.replace("/etc/ottla/server.pem", str(key)).replace("/var/lib/ottla", str(directory))
    for written, used in (("PUBLIC://:9093", "PUBLIC://127.0.0.1:0"),
                          ("localhost:9092", "127.0.0.1:0")):  # fmt: skip
        text = text.replace(written, used)
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in pairs if name != "advertised.listeners"}


def ottla(directory: Path, *words: str) -> str:
    """Run an `ottla` command; returns what it prints."""
    return subprocess.run(
        [BIN / "ottla", *words], cwd=directory, capture_output=True, text=True, check=True
    ).stdout


def test_the_first_user_exists_before_the_first_start_and_administers(tmp_path: Path) -> None:
    """A trial user who followed the page got an administrator without permissions."""
    run_as_written(CERTIFICATE, tmp_path, "")
    server, client = (
        block.text for block in blocks("docs/security.md")
        if block.text.startswith("listeners=PUBLIC") or 'username="admin"' in block.text
    )  # fmt: skip
    (tmp_path / "server.properties").write_text(server)
    run_as_written(FIRST_USER, tmp_path, "")
    pairs = dict(line.split("=", 1) for line in server.splitlines())
    data = tmp_path / pairs["log.dirs"]
    kept = (data / "ottla-bootstrap.jsonl").read_text()
    assert "admin" in kept and "secret" not in kept
    del pairs["advertised.listeners"]
    here = {
        "listeners": "PUBLIC://127.0.0.1:0", "log.dirs": str(data),
        "listener.name.public.ssl.keystore.location": str(tmp_path / "server.pem"),
    }  # fmt: skip
    with RunningBroker(data, **pairs | here) as broker:
        address = f"127.0.0.1:{broker.server.listeners[0].port}"
        (tmp_path / "admin.properties").write_text(client.replace("localhost:9093", address))
        made = run_as_written(BY_FIRST_USER, tmp_path, address)
    assert "user bob" in made and "Created topic payments" in made and "User:bob" in made


def test_the_secured_broker_in_ten_lines_is_one(tmp_path: Path) -> None:
    run_as_written(CERTIFICATE, tmp_path, "")
    authority = tmp_path / "ca.pem"
    settings = documented(tmp_path / "data", tmp_path / "server.pem")
    with RunningBroker(tmp_path / "data", **settings) as broker:
        public = ("127.0.0.1", broker.server.listeners[1].port)
        with WireClient(broker.address) as admin:
            topic = CreateTopicsRequest.Topic(name="orders", num_partitions=1, replication_factor=1)
            assert not admin.call(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code
        run_as_written(USERS, tmp_path, f"{broker.address[0]}:{broker.address[1]}")
        text = next(b.text for b in blocks("docs/security.md") if b.text.startswith("bootstrap"))
        client_file = text.replace("kafka.example.org:9093", f"127.0.0.1:{public[1]}")
        (tmp_path / "client.properties").write_text(
            client_file.replace("=ca.pem", f"={authority}"))
        shown = ottla(tmp_path, "topic", "list", "--command-config", "client.properties")
        assert "orders" in shown

        def client(password: str) -> WireClient:
            return WireClient(
                public, security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512",
                ssl_truststore_location=str(authority), sasl_jaas_config=(
                    "org.apache.kafka.common.security.scram.ScramLoginModule required"
                    f' username="alice" password="{password}";'
                ),
            )

        with client("her-secret") as alice:
            asked = [MetadataRequest.Topic(name=name) for name in ("orders", "others")]
            answer = alice.call(MetadataRequest(topics=asked), 9)
            codes = {topic.name: topic.error_code for topic in answer.topics}
            assert codes == {"orders": 0, "others": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        try:
            client("guessed").call(MetadataRequest(topics=[]), 9)
        except Exception as error:
            assert "invalid credentials" in str(error)
        else:
            raise AssertionError("a wrong password was accepted")
