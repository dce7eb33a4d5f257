"""A user whose name has quotes, line ends and characters of several languages is the same user
everywhere."""

from __future__ import annotations

import logging
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.log_output import TextLines
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    CreateAclsRequest,
    CreateTopicsRequest,
    DescribeClientQuotasRequest,
    MetadataRequest,
)
from tests.broker.running import WireClient
from tests.broker.security.logging_in import SaslBroker, delete_user, log_in, make_user
from tests.broker.topics import create

NAME, SCRAM = 'a,b="x\n\\ü大😀 =2C{}:;', "SCRAM-SHA-256"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS", "ottla.http.listener": "127.0.0.1:0",
}


def limit(admin: WireClient) -> None:
    made = AlterClientQuotasRequest.Entry
    entry = made(
        entity=[made.Entity(entity_type="user", entity_name=NAME)],
        ops=[made.Op(key="producer_byte_rate", value=5000.0, remove=False)],
    )
    assert not admin.call(AlterClientQuotasRequest(entries=[entry]), 1).entries[0].error_code


def allow(admin: WireClient) -> None:
    rule = CreateAclsRequest.Creation(
        resource_type=2, resource_name="t", principal=f"User:{NAME}", host="*", operation=8,
        permission_type=3, resource_pattern_type=3,
    )
    assert not admin.call(CreateAclsRequest(creations=[rule]), 3).results[0].error_code


def sees(broker: SaslBroker) -> list[str]:
    """Log in as the user; returns the topics that the user sees. Asserts that the metrics name the
    user."""
    with WireClient(broker.inside) as client:
        assert not log_in(client, SCRAM, NAME, "pw").error_code
        topic = CreateTopicsRequest.Topic(name="refused", num_partitions=1, replication_factor=1)
        client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        limited = metrics_of(broker)
        assert limited == {NAME}, limited
        return [each.name for each in client.call(MetadataRequest(topics=None), 9).topics]


def metrics_of(broker: SaslBroker) -> set[str]:
    """The users in the metrics of quota limits."""
    assert broker.server.http is not None
    url = f"http://127.0.0.1:{broker.server.http.port}/metrics"
    text = urllib.request.urlopen(url).read().decode()
    return {
        sample.labels["user"]
        for family in text_string_to_metric_families(text) for sample in family.samples
        if sample.name == "ottla_quota_limit"
    }


def test_it_is_one_user_to_logins_rules_quotas_metrics_and_the_log_also_after_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla")
    with SaslBroker(tmp_path, SETTINGS) as broker, WireClient(broker.address) as admin:
        make_user(admin, NAME, "pw", SCRAM)
        create(admin, "t")
        limit(admin)
        allow(admin)
        assert sees(broker) == ["t"]
    with SaslBroker(tmp_path, SETTINGS) as broker, WireClient(broker.address) as admin:
        assert sees(broker) == ["t"]
        found = admin.call(DescribeClientQuotasRequest(components=[], strict=False), 1).entries
        assert [each.entity[0].entity_name for each in found] == [NAME]
        delete_user(admin, NAME, SCRAM)
    with SaslBroker(tmp_path, SETTINGS) as broker, WireClient(broker.inside) as client:
        assert log_in(client, SCRAM, NAME, "pw").error_code
    formatter = TextLines()
    lines = [formatter.format(each) for each in caplog.records if not each.exc_info]
    assert not [line for line in lines if "\n" in line]
    assert [line for line in lines if "CreateTopics refused" in line and "TOPIC_AUTH" in line]
