"""Brokers connect to each other over TLS, SASL or both, to replicate and to forward requests. A
broker that the others do not trust logs this, and keeps trying."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.settings.config import SettingsError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateAclsRequest, FindCoordinatorRequest, MetadataRequest
from tests.broker.cluster.running_cluster import RunningCluster, clustered, create
from tests.broker.configs import alter
from tests.broker.produce_fetch import batch, produce
from tests.broker.security.authority import Authority
from tests.broker.security.logging_in import make_user
from tests.waiting import until

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
INSIDE = "listener.name.inside."
CLUSTER_ACTION, ALLOW, ON_CLUSTER, LITERAL = 9, 3, 4, 3
SUBJECT = "CN=broker,O=Tests\\, Inc,C=SI"


def plain(password: str = "b-secret") -> dict[str, str]:
    """Settings for the broker's login by PLAIN, and for the user that its listener accepts."""
    return {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        INSIDE + "sasl.enabled.mechanisms": "PLAIN",
        INSIDE + "plain.sasl.jaas.config":
            f'{PLAIN_MODULE} required username="broker" password="{password}"'
            ' user_broker="b-secret";',
    }


def scram(password: str = "b-secret") -> dict[str, str]:
    return {
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        INSIDE + "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        INSIDE + "scram-sha-512.sasl.jaas.config":
            f'{SCRAM_MODULE} required username="broker" password="{password}";',
    }


def tls(authority: Authority, name: str = "broker") -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue(name)),
        "ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.file),
        INSIDE + "ssl.client.auth": "required",
    }


def settings(protocol: str, tmp_path: Path, login: dict[str, str] | None = None) -> dict[str, Any]:
    found = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,INSIDE:{protocol}",
        "inter.broker.listener.name": "INSIDE",
    }
    if protocol.endswith("SSL"):
        found |= tls(Authority(tmp_path / "certificates"))
    return found | (login or {})


def in_sync(cluster: RunningCluster, topic: str) -> set[int]:
    image = cluster.servers[cluster.controller].metadata_log.image
    return {each for state in image.topics[topic].partitions for each in state.isr}


def writes(cluster: RunningCluster, topic: str) -> None:
    """Produce a record with acks=all to the topic's only partition."""
    (state,) = cluster.servers[1].metadata_log.image.topics[topic].partitions
    with cluster.client(state.leader) as client:
        # The leader may not have heard of the topic yet.
        until(lambda: produce(client, topic, batch(b"a record")).error_code == 0, "it is written")


@pytest.mark.parametrize(
    ("protocol", "login", "principal"),
    [
        ("SASL_PLAINTEXT", plain(), "User:broker"),
        ("SSL", {}, f"User:{SUBJECT}"),
        ("SASL_SSL", plain(), "User:broker"),
    ],
)
def test_brokers_replicate_and_forward_over_every_protocol(
    tmp_path: Path, protocol: str, login: dict[str, str], principal: str
) -> None:
    overrides = settings(protocol, tmp_path, login) | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;{principal}", "min.insync.replicas": 3,
    }
    with RunningCluster(tmp_path, **overrides) as cluster:
        for node_id in (1, 2, 3):           # two of them forward the request
            assert create(cluster, node_id, f"t{node_id}", 1, 3) == 0
        writes(cluster, "t1")               # needs all three, by min.insync.replicas
        cluster.stop(2)
        cluster.until(lambda: in_sync(cluster, "t1") == {1, 3}, "it has left")
        cluster.start(2)
        cluster.until(lambda: in_sync(cluster, "t1") == {1, 2, 3}, "it has come back")
        writes(cluster, "t1")


def test_brokers_log_in_by_scram_once_their_user_is_there(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, **settings("SASL_PLAINTEXT", tmp_path, scram())) as cluster:
        with cluster.client(cluster.controller) as client:
            make_user(client, "broker", "b-secret", "SCRAM-SHA-512")
        assert create(cluster, cluster.controller, "t", 1, 3) == 0
        cluster.until(lambda: in_sync(cluster, "t") == {1, 2, 3}, "all are in sync")


def test_the_brokers_principal_needs_cluster_action(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = settings("SASL_PLAINTEXT", tmp_path, plain()) | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with RunningCluster(tmp_path, 2, **overrides) as cluster:
        controller = cluster.controller
        # The Envelope is refused: the client may create topics, but its broker may not forward.
        refused = create(cluster, 3 - controller, "refused", 1, 1)
        assert refused == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "request forwarded by this broker: CLUSTER_AUTHORIZATION_FAILED" in caplog.text
        rule = CreateAclsRequest.Creation(
            resource_type=ON_CLUSTER, resource_name="kafka-cluster",
            resource_pattern_type=LITERAL, principal="User:broker", host="*",
            operation=CLUSTER_ACTION, permission_type=ALLOW,
        )
        with cluster.client(controller) as client:
            assert client.call(CreateAclsRequest(creations=[rule]), 3).results[0].error_code == 0
        other = cluster.servers[3 - controller]
        cluster.until(lambda: other.metadata_log.image.rules, "the rule is everywhere")
        assert create(cluster, 3 - controller, "t", 1, 2) == 0
        cluster.until(lambda: in_sync(cluster, "t") == {1, 2}, "both are in sync")
        with cluster.client(3 - controller) as client:
            client.call(MetadataRequest(topics=[MetadataRequest.Topic(name="automatic")]), 12)
            client.call(FindCoordinatorRequest(key="g"), 3)
        log_ends = clustered(cluster.servers[controller]).ends
        assert log_ends is not None
        image = other.metadata_log.image
        ends = cluster.run(log_ends.ask(image, {("t", 0): (1, 2)}))
        assert ends["t", 0].keys() == {1, 2}, "without which no longest log is elected"
        assert "automatic" in image.topics, "what its client may create"
        assert "__consumer_offsets" in image.topics, "what brokers need themselves"


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("SASL_PLAINTEXT",
         "the other broker refused the login as broker by PLAIN: Authentication failed"),
        ("SSL", "the other broker's certificate is not accepted: "),
    ],
)
def test_a_broker_that_is_not_trusted_says_why_and_comes_in_once_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, protocol: str, reason: str
) -> None:
    login = plain() if protocol == "SASL_PLAINTEXT" else {}
    with RunningCluster(tmp_path, 2, **settings(protocol, tmp_path, login)) as cluster:
        assert create(cluster, 1, "t", 1, 2) == 0
        cluster.until(lambda: in_sync(cluster, "t") == {1, 2}, "both are in sync")
        cluster.stop(2)
        cluster.until(lambda: in_sync(cluster, "t") == {1}, "it has left")
        wrong = plain("wrong") if login else tls(Authority(tmp_path / "foreign", "foreign"))
        with caplog.at_level(logging.WARNING):
            wrong["controlled.shutdown.enable"] = "false"
            cluster.start(2, **wrong)       # it starts, and keeps trying
            port = cluster.servers[1].listeners[1].port
            found = f"cannot connect to broker 1 at 127.0.0.1:{port}"
            lines: list[str] = []

            def said() -> bool:
                lines[:] = [each for each in map(logging.LogRecord.getMessage, caplog.records)
                            if each.startswith(found)]
                return any(reason in each for each in lines)

            cluster.until(said, "why it does not reach the other")
            assert "wrong" not in caplog.text, "the password is in no line"
        assert in_sync(cluster, "t") == {1}
        cluster.stop(2)
        cluster.start(2)
        cluster.until(lambda: in_sync(cluster, "t") == {1, 2}, "it is trusted again")


def test_logins_are_renewed_before_they_expire(tmp_path: Path) -> None:
    overrides = settings("SASL_PLAINTEXT", tmp_path, plain()) | {
        "connections.max.reauth.ms": 60_000,
    }
    with RunningCluster(tmp_path, 2, **overrides) as cluster:
        assert create(cluster, 1, "t1", 1, 2) == create(cluster, 2, "t2", 1, 2) == 0
        for topic in ("t1", "t2"):
            cluster.until(lambda t=topic: in_sync(cluster, t) == {1, 2}, "both are in sync")
        def links() -> list[Any]:
            return [s.link for b in cluster.servers.values()
                    for s in clustered(b).fetchers.sources.values()]  # fmt: skip

        # The replicas of new topics are in sync even before their followers have connected.
        cluster.until(lambda: len(links()) == 2 and all(links()), "each fetches from the other")
        before = links()
        assert all(link.expires_at > 0 for link in before)
        cluster.leap(52)
        for broker in cluster.servers.values():
            for source in clustered(broker).fetchers.sources.values():
                cluster.until(lambda s=source: s.link not in (None, *before), "it has logged in")
        assert create(cluster, 1, "u1", 1, 2) == create(cluster, 2, "u2", 1, 2) == 0
        assert in_sync(cluster, "t1") == {1, 2}, "nobody was without it for long"


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "choose among PLAIN"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
         "must be in sasl.enabled.mechanisms of listener INSIDE"),
        ({INSIDE + "plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_broker="b";'},
         'inside.plain.sasl.jaas.config: needs username="…" and password="…"'),
    ],
)
def test_brokers_that_could_not_log_in_to_each_other_do_not_start(
    tmp_path: Path, changed: dict[str, str], problem: str
) -> None:
    overrides = settings("SASL_PLAINTEXT", tmp_path, plain()) | changed
    with pytest.raises(SettingsError) as raised, RunningCluster(tmp_path, 1, **overrides):
        pass
    assert problem in str(raised.value)


def test_brokers_that_would_not_trust_themselves_do_not_start(tmp_path: Path) -> None:
    overrides = settings("SSL", tmp_path)
    overrides["ssl.truststore.location"] = str(Authority(tmp_path / "foreign", "foreign").file)
    with pytest.raises(SettingsError) as raised, RunningCluster(tmp_path, 1, **overrides):
        pass
    assert "brokers would refuse each other's certificates on listener INSIDE" in str(raised.value)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-256"])
def test_a_mechanism_by_which_brokers_could_not_log_in_is_refused_at_run_time(
    tmp_path: Path, mechanism: str
) -> None:
    """With such a value, the broker could no longer apply new certificates or mechanisms to any of
    its listeners."""
    name = "sasl.mechanism.inter.broker.protocol"
    with RunningCluster(tmp_path, 1, **settings("SASL_PLAINTEXT", tmp_path, plain())) as cluster:
        with cluster.client(1) as client:
            assert alter(client, 4, "1", (name, 0, mechanism)) == ErrorCode.INVALID_REQUEST
            assert alter(client, 4, "1", (name, 0, "PLAIN")) == 0
            both = scram() | plain() | {
                INSIDE + "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512", name: "SCRAM-SHA-512"}
            changes = [(key, 0, value) for key, value in both.items()]
            assert alter(client, 4, "1", *changes) == 0, "with what it needs"
        login = cluster.servers[1].listener_set.security["INSIDE"].login
        assert login is not None and login.mechanism == "SCRAM-SHA-512"
