"""Without an authorizer, requests about ACLs are refused, as in Kafka. With one, ACLs take effect.

The expected answers to unusual rules and filters were recorded from Apache Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.settings.config import BrokerConfig, SettingsError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import RunningBroker, WireClient

ANY, TOPIC, GROUP, CLUSTER = 1, 2, 3, 4
MATCH, LITERAL, PREFIXED = 2, 3, 4
ALL, READ, WRITE = 2, 3, 4
DENY, ALLOW = 2, 3
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {"authorizer.class.name": AUTHORIZER, "super.users": "User:root;User:ANONYMOUS"}
Rule = tuple[int, str, int, str, int, int]


def creation(version: int = 3, **fields: Any) -> CreateAclsRequest.Creation:
    rule = {
        "resource_type": TOPIC, "resource_name": "t", "principal": "User:a", "host": "*",
        "operation": READ, "permission_type": ALLOW, **fields,
    }
    if version < 1:
        rule.pop("resource_pattern_type", None)
    return CreateAclsRequest.Creation(**rule)


def add_rule(client: WireClient, version: int = 3, **fields: Any) -> int:
    request = CreateAclsRequest(creations=[creation(version, **fields)])
    [result] = client.call(request, version).results
    assert bool(result.error_message) == (result.error_code != 0)
    code: int = result.error_code
    return code


def filter_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY,
        "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY,
        **fields,
    }


def described(client: WireClient, version: int = 3, **fields: Any) -> set[Rule] | int:
    """Each ACL's resource, pattern type, principal, operation and permission; or the error code."""
    answer = client.call(DescribeAclsRequest(**filter_fields(fields)), version)
    if answer.error_code:
        return int(answer.error_code)
    return {
        (r.resource_type, r.resource_name, r.pattern_type, a.principal, a.operation,
         a.permission_type)
        for r in answer.resources
        for a in r.acls
    }


def delete(client: WireClient, version: int = 3, **fields: Any) -> list[str] | int:
    """Delete ACLs; returns their resource names, or the error code."""
    wanted = DeleteAclsRequest.Filter(**filter_fields(fields))
    [result] = client.call(DeleteAclsRequest(filters=[wanted]), version).filter_results
    if result.error_code:
        return int(result.error_code)
    return sorted(rule.resource_name for rule in result.matching_acls)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("data"), **SETTINGS) as broker:
        yield broker


@pytest.fixture
def admin(guarded: RunningBroker) -> Iterator[WireClient]:
    """The connection of a super user to a broker without ACLs."""
    with WireClient(guarded.address) as connected:
        delete(connected)
        yield connected


@pytest.mark.parametrize("version", range(4))
def test_without_an_authorizer_access_rules_are_refused(client: WireClient, version: int) -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    exact = {} if version >= 1 else {"pattern_type_filter": LITERAL}
    assert described(client, version, **exact) == disabled
    rules = CreateAclsRequest(creations=[creation(version)] * 2)
    assert [each.error_code for each in client.call(rules, version).results] == [disabled] * 2
    assert delete(client, version, **exact) == disabled


@pytest.mark.parametrize("version", range(4))
def test_rules_come_are_told_and_go(admin: WireClient, version: int) -> None:
    exact = {} if version >= 1 else {"pattern_type_filter": LITERAL}
    assert add_rule(admin, version) == 0
    assert add_rule(admin, version) == 0, "the same again is no error"
    assert add_rule(admin, version, resource_type=GROUP, operation=ALL, permission_type=DENY) == 0
    read = (TOPIC, "t", LITERAL, "User:a", READ, ALLOW)
    denied = (GROUP, "t", LITERAL, "User:a", ALL, DENY)
    assert described(admin, version, **exact) == {read, denied}
    assert described(admin, version, **exact, resource_type_filter=TOPIC) == {read}
    assert described(admin, version, **exact, permission_type=DENY) == {denied}
    assert described(admin, version, **exact, principal_filter="User:b") == set()
    assert delete(admin, version, **exact, operation=READ) == ["t"]
    assert described(admin, version, **exact) == {denied}
    assert delete(admin, version, **exact, operation=READ) == []


def test_a_filter_that_matches_finds_prefixes_and_the_rule_for_all(admin: WireClient) -> None:
    for name, pattern in (("pre", PREFIXED), ("prefix", LITERAL), ("*", LITERAL), ("o", LITERAL)):
        assert add_rule(admin, resource_name=name, resource_pattern_type=pattern) == 0

    def found(pattern: int, name: str | None) -> list[str]:
        rules = described(
            admin, pattern_type_filter=pattern, resource_name_filter=name,
            resource_type_filter=TOPIC,
        )
        assert isinstance(rules, set)
        return sorted(rule[1] for rule in rules)

    assert found(MATCH, "prefix") == ["*", "pre", "prefix"]
    assert found(LITERAL, "prefix") == ["prefix"]
    assert found(PREFIXED, "prefix") == []
    assert found(PREFIXED, "pre") == ["pre"]
    assert found(ANY, "pre") == ["pre"]
    assert found(PREFIXED, None) == ["pre"]
    gone = delete(admin, pattern_type_filter=MATCH, resource_name_filter="prefix")
    assert gone == ["*", "pre", "prefix"]
    assert found(ANY, None) == ["o"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": CLUSTER, "resource_name": "other"},
        {"resource_type": ANY}, {"resource_type": 0}, {"resource_type": 99},
        {"resource_pattern_type": ANY}, {"resource_pattern_type": MATCH},
        {"resource_pattern_type": 0}, {"resource_pattern_type": 9},
        {"operation": ANY}, {"operation": 0}, {"operation": 99},
        {"permission_type": ANY}, {"permission_type": 0}, {"permission_type": 9},
        {"resource_name": ""}, {"principal": ""}, {"principal": "alice"}, {"host": ""},
        {"host": "10.0.0.0/99"}, {"host": "10.0.0.0/255.0.0.0"}, {"host": "::/129"},
    ],
    ids=str,
)
def test_a_rule_that_says_nothing_clear_is_refused_alone(
    admin: WireClient, wrong: dict[str, Any]
) -> None:
    rules = [creation(**wrong), creation(resource_name="good")]
    results = admin.call(CreateAclsRequest(creations=rules), 3).results
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST, 0]
    found = described(admin)
    assert isinstance(found, set) and {rule[1] for rule in found} == {"good"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type_filter": 0}, {"pattern_type_filter": 0}, {"operation": 0},
        {"permission_type": 0},
    ],
    ids=str,
)
def test_what_is_no_filter_is_refused(admin: WireClient, wrong: dict[str, Any]) -> None:
    assert add_rule(admin) == 0
    assert described(admin, **wrong) == ErrorCode.INVALID_REQUEST
    assert delete(admin, **wrong) == ErrorCode.INVALID_REQUEST
    assert described(admin) != set()


def test_a_denial_of_a_network_refuses_its_clients(data: Path) -> None:
    """The network must not be compared as text, because no client's address equals it."""
    settings = {**SETTINGS, "super.users": "", "allow.everyone.if.no.acl.found": "true"}
    with RunningBroker(data, **settings) as broker, WireClient(broker.address) as client:
        assert add_rule(client, operation=WRITE, principal="User:*") == 0
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert produce(client, "t", batch(b"v")).error_code != refused
        for host in ("10.0.0.0/8", "::/0", "127.1.2.3/8"):
            denial = {"principal": "User:*", "host": host, "permission_type": DENY}
            assert add_rule(client, operation=WRITE, **denial) == 0
            code = produce(client, "t", batch(b"v")).error_code
            assert (code == refused) == host.startswith("127."), host


def test_rules_outlive_the_broker(data: Path) -> None:
    with RunningBroker(data, **SETTINGS) as broker, WireClient(broker.address) as client:
        assert add_rule(client, principal="User:z") == 0
    with RunningBroker(data, **SETTINGS) as broker, WireClient(broker.address) as client:
        assert described(client) == {(TOPIC, "t", LITERAL, "User:z", READ, ALLOW)}


def test_what_no_rule_is_about_may_be_open_to_everybody(data: Path) -> None:
    settings = {**SETTINGS, "super.users": "", "allow.everyone.if.no.acl.found": "true"}
    with RunningBroker(data, **settings) as broker, WireClient(broker.address) as client:
        assert produce(client, "t", batch(b"v")).error_code == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert add_rule(client, resource_name="t", operation=WRITE, principal="User:a") == 0
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert produce(client, "t", batch(b"v")).error_code == refused
        assert produce(client, "u", batch(b"v")).error_code != refused


def test_super_users_without_an_authorizer_are_warned_about() -> None:
    [warning] = BrokerConfig.load(None, ["super.users=User:a"]).warnings
    assert "super.users" in warning
    both = ["super.users=User:a", f"authorizer.class.name={AUTHORIZER}"]
    assert BrokerConfig.load(None, both).warnings == []


def test_an_authorizer_that_is_not_here_stops_the_start() -> None:
    with pytest.raises(SettingsError, match="StandardAuthorizer"):
        BrokerConfig.load(None, ["authorizer.class.name=com.example.Mine"])
