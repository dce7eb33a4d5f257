"""Delegation tokens in a cluster: any broker issues, renews and ends them, and all know them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.broker.cluster.running_cluster import RunningCluster, lose_next_write
from tests.broker.running import WireClient
from tests.broker.security.logging_in import log_in

DAY_MS = 86_400_000
INSIDE = "listener.name.inside."
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    INSIDE + "sasl.enabled.mechanisms": "PLAIN",
    INSIDE + "plain.sasl.jaas.config":
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        ' username="broker" password="b-secret" user_broker="b-secret";',
    "delegation.token.secret.key": "the cluster's secret",
}


def create(client: WireClient) -> Any:
    """Create a token that the client's user owns."""
    return client.call(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)


def describe(client: WireClient) -> list[str]:
    """The ids of the tokens that the client's user may see."""
    answer = client.call(DescribeDelegationTokenRequest(owners=None), 3)
    assert answer.error_code == 0
    return [token.token_id for token in answer.tokens]


def client_of(cluster: RunningCluster, node_id: int) -> WireClient:
    """A client that has logged in as `broker` on the listener with SASL."""
    client = WireClient(("127.0.0.1", cluster.servers[node_id].listeners[1].port))
    assert log_in(client, "PLAIN", "broker", "b-secret").error_code == 0
    return client


@pytest.mark.parametrize("inside", ["INSIDE", "PLAINTEXT"])
def test_any_broker_issues_renews_and_ends_tokens_that_all_know(
    tmp_path: Path, inside: str
) -> None:
    """Brokers forward requests of their SASL clients even over connections without SASL."""
    with RunningCluster(tmp_path, **SETTINGS, inter_broker_listener_name=inside) as cluster:
        ids = []
        for node_id in (1, 2, 3):
            with client_of(cluster, node_id) as client:
                made = create(client)
                assert made.error_code == 0
                ids.append(made.token_id)
                assert made.token_id in describe(client), "the broker that was asked knows it"
        for node_id in (1, 2, 3):
            server = cluster.servers[node_id]
            cluster.until(
                lambda s=server: set(ids) <= s.metadata_log.image.tokens.keys(), "all know them"
            )
            with client_of(cluster, node_id) as client:
                hmac = made.hmac
                renewed = client.call(
                    RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=DAY_MS), 2
                )
                assert renewed.error_code == 0 and renewed.expiry_timestamp_ms > 0
                wrong = client.call(
                    RenewDelegationTokenRequest(hmac=b"wrong", renew_period_ms=DAY_MS), 2
                )
                assert wrong.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        other = cluster.controller % 3 + 1
        with client_of(cluster, other) as client:
            ended = client.call(
                ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2
            )
            assert ended.error_code == 0 and made.token_id not in describe(client)


def test_a_client_without_sasl_is_refused_by_every_broker(tmp_path: Path) -> None:
    with RunningCluster(tmp_path, **SETTINGS, inter_broker_listener_name="INSIDE") as cluster:
        for node_id in (1, 2, 3):
            with cluster.client(node_id) as client:
                code = create(client).error_code
                assert code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert cluster.servers[1].metadata_log.image.tokens == {}


def test_a_token_is_issued_by_the_next_controller_where_this_one_is_replaced(
    tmp_path: Path,
) -> None:
    """NOT_CONTROLLER would fail Java's clients, because Apache Kafka's brokers never return it."""
    with RunningCluster(tmp_path, **SETTINGS, inter_broker_listener_name="INSIDE") as cluster:
        former = cluster.controller
        with client_of(cluster, former) as client:
            lose_next_write(cluster, cluster.sessions[former])
            made = create(client)
            assert made.error_code == 0
            assert made.token_id in describe(client)
        image = cluster.servers[former].metadata_log.image
        assert list(image.tokens) == [made.token_id] and image.controller_epoch > 1
