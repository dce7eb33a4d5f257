"""The line that each administrative act leaves in the log."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ottla.broker.audit import ITEMS_MAX
from ottla.broker.security.client import Client
from ottla.broker.security.denials import KEPT_MAX, Denials
from ottla.replication.controller.access import Operation, Resource
from ottla.wire.apis import ApiKey
from ottla.wire.messages import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    ExpireDelegationTokenRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    UnregisterBrokerRequest,
)
from tests.broker.running import RunningBroker, WireClient
from tests.broker.security.logging_in import SaslBroker, log_in
from tests.waiting import until


def create(client: WireClient, *names: str, validate_only: bool = False) -> None:
    topics = [
        CreateTopicsRequest.Topic(
            name=name, num_partitions=2, replication_factor=1,
            configs=[CreateTopicsRequest.Topic.Config(name="retention.ms", value="1000")],
        )
        for name in names
    ]
    client.call(CreateTopicsRequest(topics=topics, validate_only=validate_only), 5)


def alter(client: WireClient, topic: str, value: str) -> None:
    resource = IncrementalAlterConfigsRequest.Resource
    client.call(
        IncrementalAlterConfigsRequest(resources=[
            resource(resource_type=2, resource_name=topic, configs=[
                resource.Config(name="retention.ms", config_operation=0, value=value)
            ])
        ]), 1,
    )


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla.audit")
    return caplog


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "ottla.audit"]


WHO = "User:ANONYMOUS from 127.0.0.1, client 'test': "


def test_what_was_made_changed_and_deleted_is_said_with_old_and_new_values(
    client: WireClient, lines: pytest.LogCaptureFixture
) -> None:
    create(client, "audited", "also")
    create(client, "audited")
    create(client, "tried", validate_only=True)
    alter(client, "audited", "2000")
    alter(client, "audited", "soon")
    client.call(DeleteTopicsRequest(topic_names=["audited", "never"], timeout_ms=1000), 5)
    client.call(MetadataRequest(topics=[]), 5)
    made = "num_partitions=2 replication_factor=1 retention.ms=1000"
    printed = said(lines)
    assert printed[:4] == [
        f"{WHO}CreateTopics audited {made}: done",
        f"{WHO}CreateTopics also {made}: done",
        f"{WHO}CreateTopics audited {made}: refused, TOPIC_ALREADY_EXISTS:"
        " Topic 'audited' already exists.",
        f"{WHO}CreateTopics tried {made}: tried",
    ]
    assert printed[4].endswith("audited resource_type=TOPIC retention.ms: 1000 → 2000: done")
    assert "retention.ms: 2000 → soon: refused, INVALID_CONFIG: " in printed[5]
    assert printed[6:] == [
        f"{WHO}DeleteTopics audited: done",
        f"{WHO}DeleteTopics never: refused, UNKNOWN_TOPIC_OR_PARTITION:"
        f" {printed[7].rpartition('PARTITION: ')[2]}",
    ]
    assert lines.records[2].fields["outcome"].startswith("refused")     # type: ignore[attr-defined]


def test_each_partition_has_a_line_with_what_was_asked_of_it(
    client: WireClient, lines: pytest.LogCaptureFixture
) -> None:
    create(client, "trimmed")
    kind = DeleteRecordsRequest.Topic
    parts = [kind.Partition(partition_index=index, offset=5 * index) for index in (0, 1)]
    client.call(DeleteRecordsRequest(topics=[kind(name="trimmed", partitions=parts)]), 2)
    assert said(lines)[1:] == [
        f"{WHO}DeleteRecords trimmed-0 offset=0: done",
        f"{WHO}DeleteRecords trimmed-1 offset=5: refused, OFFSET_OUT_OF_RANGE",
    ]


def test_secrets_are_not_in_the_log(client: WireClient, lines: pytest.LogCaptureFixture) -> None:
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name="ann", mechanism=1, iterations=4096, salt=b"saltsalt", salted_password=b"passwordpass"
    )
    client.call(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
    [line] = said(lines)
    what = "AlterUserScramCredentials ann mechanism=SCRAM-SHA-256 iterations=4096"
    assert line == f"{WHO}{what}: done"


def test_a_refusal_by_access_rules_is_a_line_too(
    tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with RunningBroker(tmp_path, **{"authorizer.class.name": name}) as broker:
        with WireClient(broker.address) as client:
            create(client, "forbidden")
    assert "CreateTopics forbidden" in said(lines)[0]
    assert "refused, TOPIC_AUTHORIZATION_FAILED" in said(lines)[0]


async def noted(denials: Denials, name: str, times: int = 1) -> None:
    for _ in range(times):
        denials.note(
            Client("192.0.2.1", "INSIDE", principal="User:eve"), ApiKey.FETCH, Operation.READ,
            Resource.TOPIC, name,
        )


async def written(denials: Denials) -> None:
    assert denials.writer is not None
    await denials.writer


def test_a_refusal_that_comes_again_is_counted(lines: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        denials = Denials()
        await noted(denials, "orders")
        await written(denials)
        assert said(lines) == [line], "at once"
        await noted(denials, "orders", 41)
        assert denials.end_of_window is not None
        denials.end_of_window.cancel()
        denials.begin_anew()
        await written(denials)
        assert said(lines) == [line, f"{line} (41 more times)"]
        await noted(denials, "orders")
        await written(denials)
        assert said(lines)[2:] == [line], "another window"
        denials.close()
        assert len(said(lines)) == 3 and denials.end_of_window is None

    line = "User:eve from 192.0.2.1, client None: Fetch: refused, READ of topic 'orders'"
    asyncio.run(story())


def test_refusals_take_bounded_memory_and_none_waits_for_ever(
    lines: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        denials = Denials()
        for number in range(KEPT_MAX + 7):
            await noted(denials, f"made up\n{number}" + "x" * 30_000)
        assert len(denials.times) == len(denials.unwritten) == KEPT_MAX
        assert all(len(denial.name) <= 250 for denial in denials.times)
        denials.close()
        assert not denials.unwritten

    asyncio.run(story())
    assert said(lines)[0] == "ACLs refused 7 more requests, which are not logged one by one"
    assert len(said(lines)) == KEPT_MAX + 1
    assert all(len(line) < 400 and "\n" not in line for line in said(lines))


def test_connections_and_requests_are_said_at_debug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ottla")
    with RunningBroker(tmp_path) as broker:
        with WireClient(broker.address) as client:
            client.call(MetadataRequest(topics=[]), 5)
            port = client.socket.getsockname()[1]
    peer = f"connection from 127.0.0.1:{port}"
    assert f"listener PLAINTEXT: {peer} is open" in caplog.text
    assert f"{peer}: Metadata v5, " in caplog.text
    assert f"{peer}, client 'test': Metadata answered after " in caplog.text
    assert f"{peer}, client 'test' has ended after 1 requests, " in caplog.text


def test_lines_of_a_large_request_follow_in_slices_and_none_is_lost_at_a_stop(
    tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    names = [f"t{i}" for i in range(300)]
    with RunningBroker(tmp_path) as broker:
        with WireClient(broker.address) as client:
            create(client, *names)
    written = [line.split()[6] for line in said(lines)]
    assert written == names


def test_at_level_warning_refusals_are_lines_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ottla.audit")
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    with SaslBroker(tmp_path, rules) as broker:
        for user in ("alice", "bob"):
            with WireClient(broker.inside) as client:
                log_in(client, "PLAIN", user, f"{user}-secret")
                create(client, f"of-{user}")
                alter(client, f"of-{user}", "2000")
    printed = said(caplog)
    who = "User:bob from 127.0.0.1, client 'test'"
    assert [line.split(": ")[0] for line in printed] == [who] * 2
    assert "CreateTopics of-bob" in printed[0] and "TOPIC_AUTHORIZATION_FAILED" in printed[0]
    assert "IncrementalAlterConfigs of-bob" in printed[1] and ": refused, " in printed[1]


def test_among_more_items_than_are_listed_the_refused_ones_come_first(
    client: WireClient, lines: pytest.LogCaptureFixture
) -> None:
    names = [f"n{number}" for number in range(ITEMS_MAX + 5)]
    topics = [CreateTopicsRequest.Topic(name=name, num_partitions=1, replication_factor=1)
              for name in [*names, "not a name"]]
    client.call(CreateTopicsRequest(topics=topics, validate_only=True), 5)
    until(lambda: len(said(lines)) > ITEMS_MAX, "all lines")
    printed = said(lines)
    assert "CreateTopics not a name: refused, INVALID_TOPIC_EXCEPTION" in printed[0]
    assert printed[-1] == f"{WHO}CreateTopics 6 more: not listed"
    assert len(printed) == ITEMS_MAX + 1


def test_the_line_says_what_was_changed_where_the_answer_has_no_names(
    tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    rule = CreateAclsRequest.Creation(
        resource_type=2, resource_name="r", principal="User:eve", host="*", operation=3,
        permission_type=3,
    )
    with SaslBroker(tmp_path, {
        "delegation.token.secret.key": "key",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }) as broker, WireClient(broker.inside) as client:  # fmt: skip
        log_in(client, "PLAIN", "alice", "alice-secret")
        client.call(CreateAclsRequest(creations=[rule]), 3)
        client.call(UnregisterBrokerRequest(broker_id=77), 0)
        token = client.call(CreateDelegationTokenRequest(
            renewers=[], max_lifetime_ms=-1, owner_principal_type="User",
            owner_principal_name="app",
        ), 3)  # fmt: skip
        secret = bytes(token.hmac)
        client.call(ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1), 2)
    made, gone, issued, ended = said(lines)
    assert made.endswith("CreateAcls TOPIC r READ ALLOW User:eve from *: done")
    assert "UnregisterBroker broker_id=77: refused, BROKER_ID_NOT_REGISTERED" in gone
    assert f"CreateDelegationToken {token.token_id} " in issued and "name=app" in issued
    assert f"ExpireDelegationToken {token.token_id} " in ended
    assert secret.hex() not in "".join(said(lines))


def test_a_line_has_names_instead_of_numbers(
    tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    """An earlier version logged `CreateAcls x resource_type=3 operation=3`, which does not say what
    the ACL allows."""
    with RunningBroker(tmp_path, **{
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }) as broker, WireClient(broker.address) as client:  # fmt: skip
        rule = {"resource_type": 3, "resource_name": "x", "principal": "User:alice", "host": "*"}
        made = CreateAclsRequest.Creation
        client.call(CreateAclsRequest(creations=[
            made(**rule, operation=4, permission_type=3),
            made(**rule | {"host": "10.0.0.0/8"}, operation=2, permission_type=2,
                 resource_pattern_type=4),
            made(**rule, operation=99, permission_type=3),
        ]), 3)  # fmt: skip
        wanted = DeleteAclsRequest.Filter
        filters = [
            wanted(resource_type_filter=3, resource_name_filter="x", pattern_type_filter=2,
                   principal_filter=None, host_filter=None, operation=1, permission_type=1),
            wanted(resource_type_filter=1, resource_name_filter=None, pattern_type_filter=3,
                   principal_filter="User:alice", host_filter="*", operation=4, permission_type=3),
        ]  # fmt: skip
        client.call(DeleteAclsRequest(filters=filters), 3)
        upsert = AlterUserScramCredentialsRequest.Upsertion
        client.call(AlterUserScramCredentialsRequest(deletions=[], upsertions=[
            upsert(name="bob", mechanism=2, iterations=4096, salt=b"s", salted_password=b"p" * 64)
        ]), 0)  # fmt: skip
    *acls, scram = [line.removeprefix(WHO) for line in said(lines)]
    assert acls == [
        "CreateAcls GROUP x WRITE ALLOW User:alice from *: done",
        "CreateAcls GROUP PREFIXED x ALL DENY User:alice from 10.0.0.0/8: done",
        "CreateAcls GROUP x 99 ALLOW User:alice from *: refused, INVALID_REQUEST:"
        " Invalid operation UNKNOWN",
        "DeleteAcls GROUP MATCH x ANY ANY (any) from (any): done",
        "DeleteAcls ANY (any) WRITE ALLOW User:alice from *: done",
    ]
    assert scram == "AlterUserScramCredentials bob mechanism=SCRAM-SHA-512 iterations=4096: done"


def test_an_act_whose_client_has_gone_is_a_line_too(
    tmp_path: Path, lines: pytest.LogCaptureFixture
) -> None:
    """In an earlier version, a request was not logged if its client disconnected at once, although
    the broker carried it out."""
    topic = CreateTopicsRequest.Topic(name="quietly", num_partitions=1, replication_factor=1)
    with RunningBroker(tmp_path) as broker:
        with WireClient(broker.address) as client:
            client.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        until(lambda: any("quietly" in line for line in said(lines)), "its line")
        with WireClient(broker.address) as client:
            assert client.call(MetadataRequest(topics=None), 5).topics[0].name == "quietly"
    assert said(lines)[0].endswith(": done")
