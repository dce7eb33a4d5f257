"""The secured broker of docs/security.md, as it stands there: its users come in, others do not."""

from __future__ import annotations

import re
from pathlib import Path

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateAclsRequest, CreateTopicsRequest, MetadataRequest
from tests.broker.running import RunningBroker, WireClient
from tests.broker.security.authority import Authority
from tests.broker.security.logging_in import make_user

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "security.md"


def documented(directory: Path, key: Path) -> dict[str, str]:
    """The ten lines, with this machine's addresses and paths."""
    [text] = re.findall(r"## A secured broker in ten lines\n\n```properties\n(.*?)```",
                        DOCUMENT.read_text(), re.DOTALL)  # fmt: skip
    assert len(text.splitlines()) == 10
    text = text.replace("/etc/ottla/server.pem", str(key)).replace("/var/lib/ottla", str(directory))
    for written, used in (("PUBLIC://:9093", "PUBLIC://127.0.0.1:0"),
                          ("localhost:9092", "127.0.0.1:0")):  # fmt: skip
        text = text.replace(written, used)
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in pairs if name != "advertised.listeners"}


def test_the_secured_broker_in_ten_lines_is_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = documented(tmp_path / "data", authority.issue("server"))
    with RunningBroker(tmp_path / "data", **settings) as broker:
        public = ("127.0.0.1", broker.server.listeners[1].port)
        with WireClient(broker.address) as admin:
            make_user(admin, "alice", "her-secret", "SCRAM-SHA-512")
            topic = CreateTopicsRequest.Topic(name="orders", num_partitions=1, replication_factor=1)
            assert not admin.call(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code
            rule = CreateAclsRequest.Creation(
                resource_type=2, resource_name="orders", resource_pattern_type=3,
                principal="User:alice", host="*", operation=3, permission_type=3,
            )
            admin.call(CreateAclsRequest(creations=[rule]), 3)

        def client(password: str) -> WireClient:
            return WireClient(
                public, security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512",
                ssl_truststore_location=str(authority.file), sasl_jaas_config=(
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
