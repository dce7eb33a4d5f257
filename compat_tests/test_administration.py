"""Java's admin client gets the same answers from a single broker as from Apache Kafka."""

from __future__ import annotations

import os

import pytest

from compat_tests import readers
from compat_tests.brokers import Broker
from compat_tests.requirements import JAVA_CLIENTS, java_client

GROUP_SETTING = "consumer.session.timeout.ms"
"""The 3.9.2 client does not know the type of resource that has this setting."""
FACTS = {
    "preferred leader": "ElectionNotNeededException",
    "all leaders": "done",
    "same replicas": "done",
    "unknown replica": "InvalidReplicaAssignmentException",
    "no replica": "InvalidReplicaAssignmentException",
    "cancelled": "NoReassignmentInProgressException",
    "reassignments": "{}",
    "voters": "1",
    "leader is a voter": "true",
    "the leader has it all": "true",
    "level": "2",
    "downgraded as an upgrade": "InvalidUpdateVersionException",
    "too high": "InvalidUpdateVersionException",
    "unknown feature": "InvalidUpdateVersionException",
    "downgraded": "done",
    "level after it": "1",
    "upgraded": "done",
    "level again": "2",
    "unknown broker": "BrokerIdNotRegisteredException",
    "credential": "done",
    "credential is": "[ScramCredentialInfo{mechanism=SCRAM_SHA_256, iterations=8192}]",
    "weak credential": "UnacceptableCredentialException",
    "credential deleted": "done",
    "deleted again": "ResourceNotFoundException",
    "nobody": "ResourceNotFoundException",
    "quota": "done",
    "quotas are": "[{producer_byte_rate=1024.0}]",
    "quotas of the user alone": "[]",
    "unknown quota": "InvalidRequestException",
    "quota of nothing": "InvalidRequestException",
    "quota removed": "done",
    "quotas left": "[]",
    "root logger": "INFO",
    "logger": "done",
    "logger is": "DEBUG",
    "logger refused": "InvalidConfigurationException",
    "logger deleted": "done",
    "unknown logger": "InvalidConfigurationException",
    "consumer.session.timeout.ms": "done",
    "consumer.session.timeout.ms is": "50000",
    "consumer.session.timeout.ms refused": "InvalidConfigurationException",
    "consumer.session.timeout.ms deleted": "done",
    "max.connections.per.ip": "done",
    "max.connections.per.ip is": "100000",
    "max.connections.per.ip refused": "InvalidRequestException",
    "max.connections.per.ip deleted": "done",
    "sasl.kerberos.min.time.before.relogin": "done",
    "sasl.kerberos.min.time.before.relogin is": "58000",
    "sasl.kerberos.min.time.before.relogin refused": "InvalidRequestException",
    "sasl.kerberos.min.time.before.relogin deleted": "done",
    "read-only setting": "InvalidRequestException",
    "access rules": "SecurityDisabledException",
    "delegation token": "UnsupportedByAuthenticationException",
}


@pytest.mark.parametrize("version", JAVA_CLIENTS)
def test_elections_quorum_features_credentials_quotas_loggers_and_settings(
    broker: Broker, version: str
) -> None:
    topic = f"administrator-{version}-{os.getpid()}"
    command = java_client(version, broker.bootstrap, topic, program="Administrator")
    printed = readers.output_of(command).decode()
    expected = {
        fact: told
        for fact, told in FACTS.items()
        if not (version.startswith("3.") and fact.startswith(GROUP_SETTING))
    }
    assert dict(line.split("\t") for line in printed.splitlines()) == expected
