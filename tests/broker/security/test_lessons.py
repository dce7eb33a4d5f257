"""Security faults of other systems, by the names of their advisories: Ottla does not have them.

For advisories about parts that Ottla does not have (Connect's REST interface, a web interface,
class loading), the tests check that Ottla does not have these parts.
"""

from __future__ import annotations

import ast
import asyncio
import hmac
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.security.authorizer import Authorizer
from ottla.broker.security.sasl.exchange import AuthenticationFailed, Identity
from ottla.broker.security.sasl.scram import KnownUser, ScramExchange, derive
from ottla.broker.settings.declaration import SettingsError
from ottla.client.sasl import ScramClient
from ottla.replication.controller.access import Operation, Pattern, Permission, Resource
from ottla.replication.metadata import MetadataImage
from ottla.replication.principals import AccessRule, RuleSet
from ottla.wire.checksum import crc32c_of
from ottla.wire.compression import XERIAL_HEADER
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeConfigsRequest,
    FetchRequest,
    IncrementalAlterConfigsRequest,
    ProduceRequest,
)
from tests.broker.produce_fetch import batch, fetch, produce, produce_request
from tests.broker.resident_memory import resident_bytes
from tests.broker.running import NODE_ID, RunningBroker, WireClient
from tests.broker.security.logging_in import JAAS, SaslBroker, log_in, send_token, shake
from tests.broker.topics import create

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ROOT = Path(__file__).resolve().parents[3]


class GuardedBroker(SaslBroker):
    """The open listener allows everything. Users on the listener `inside` need ACLs."""

    def __init__(self, data: Path) -> None:
        more = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
        super().__init__(data, more)

    def user(self, name: str) -> WireClient:
        """A client that has logged in as this user."""
        client = WireClient(self.inside)
        assert log_in(client, "PLAIN", name, f"{name}-secret").error_code == 0
        return client


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path) as running:
        yield running


def allow(client: WireClient, who: str, operation: Operation, kind: Resource, name: str) -> None:
    made = CreateAclsRequest.Creation(
        resource_type=int(kind), resource_name=name, resource_pattern_type=3, principal=who,
        host="*", operation=int(operation), permission_type=int(Permission.ALLOW),
    )
    assert client.call(CreateAclsRequest(creations=[made]), 3).results[0].error_code == 0


def exchange() -> ScramExchange:
    async def look(name: str, by_token: bool) -> KnownUser | None:
        credential = derive(b"secret", b"salt", 4096, "SCRAM-SHA-256")
        return KnownUser(credential, Identity(f"User:{name}")) if name == "bob" else None

    return ScramExchange("SCRAM-SHA-256", look)


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [("PLAIN", b"alice\0bob\0bob-secret"), ("SCRAM-SHA-256", b"n,a=alice,n=bob,r=abc"),
     ("SCRAM-SHA-512", b"n,a=alice,n=bob,r=abc")],
)  # fmt: skip
def test_cve_2017_12610_nobody_acts_in_anothers_name(
    broker: GuardedBroker, mechanism: str, token: bytes
) -> None:
    with WireClient(broker.inside) as client:
        shake(client, mechanism)
        answer = send_token(client, token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


@pytest.mark.parametrize("version", [4, 11, 15])
def test_cve_2018_1288_a_client_is_no_replica(broker: GuardedBroker, version: int) -> None:
    """In Kafka, a forged replica fetch made a broker believe that records were replicated, or lose
    them."""
    with WireClient(broker.address) as admin:
        create(admin, "t")
        assert produce(admin, "t", batch(b"kept")).error_code == 0
        allow(admin, "User:bob", Operation.READ, Resource.TOPIC, "t")
    with broker.user("bob") as client:
        made = FetchRequest.Topic
        topic = made(topic="t", topic_id=bytes(16), partitions=[
            made.Partition(partition=0, fetch_offset=1, partition_max_bytes=1000)
        ])  # fmt: skip
        forged = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[topic])
        if version >= 15:
            forged.replica_state = FetchRequest.ReplicaState(replica_id=1, replica_epoch=1)
        else:
            forged.replica_id = 1
        try:
            answer = client.call(forged, version)
            codes = {answer.error_code}
            codes |= {p.error_code for each in answer.responses for p in each.partitions}
            assert codes & {ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                            ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, codes  # fmt: skip
        except ConnectionError:
            pass
    with WireClient(broker.address) as admin:
        found = fetch(admin, "t")
        assert (found.error_code, found.high_watermark, found.log_start_offset) == (0, 1, 0)


def test_cve_2018_17196_batches_decide_what_a_produce_request_is(broker: GuardedBroker) -> None:
    """In Kafka, a transactional batch in a request without a transactional id was not checked."""
    with WireClient(broker.address) as admin:
        create(admin, "t")
        allow(admin, "User:bob", Operation.WRITE, Resource.TOPIC, "t")
    transactional = batch(
        b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    with broker.user("bob") as client:
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert produce(client, "t", transactional).error_code == refused
        request = produce_request("t", transactional, transactional_id="other")
        answer = client.call(request, 9).responses[0].partition_responses[0]
        assert answer.error_code == refused
        control = batch(b"\0\0\0\1", control=True, transactional=True, producer_id=7,
                        producer_epoch=0, base_sequence=0)  # fmt: skip
        assert produce(client, "t", control).error_code != 0
        assert fetch(client, "t").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with WireClient(broker.address) as admin:
        assert fetch(admin, "t").high_watermark == 0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_cve_2021_38153_secrets_are_compared_in_constant_time(
    broker: GuardedBroker, mechanism: str, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = hmac.compare_digest

    def counted(a: Any, b: Any) -> bool:
        seen.append(len(a))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    with WireClient(broker.inside) as client:
        assert log_in(client, mechanism, user, "wrong").error_code
    assert seen, "the comparison is made for a user who does not exist, too"


def test_cve_2022_34917_no_memory_is_taken_without_a_login(broker: GuardedBroker) -> None:
    before = resident_bytes()
    clients = [WireClient(broker.inside) for _ in range(200)]
    for each in clients:
        shake(each, "PLAIN")
        header = struct.pack(">hhihB", 36, 2, 1, -1, 0)
        each.send_bytes(struct.pack(">i", 500_000) + header + b"\xff\xff\xff\x7f" + bytes(100))
    with broker.user("alice") as other:
        assert other
    assert resident_bytes() - before < 200 * (64 << 10)
    for each in clients:
        each.close()


def test_cve_2023_34455_lengths_inside_of_snappy_are_not_believed(broker: GuardedBroker) -> None:
    plain = bytearray(batch(b"v", codec=2))
    before = resident_bytes()
    with WireClient(broker.address) as admin:
        create(admin, "t")
        for length in (2**31 - 1, -1, 2**30):
            for body in (
                XERIAL_HEADER + struct.pack(">i", length) + b"\xff\xff\xff\xff\x07abc",
                b"\xff\xff\xff\xff\x07abc",
            ):
                made = plain[:61] + body
                made[8:12] = struct.pack(">i", len(made) - 12)
                made[17:21] = crc32c_of(bytes(made[21:])).to_bytes(4, "big")
                assert produce(admin, "t", bytes(made)).error_code in (
                    ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD,
                )  # fmt: skip
    assert resident_bytes() - before < 64 << 20


def rule_of(chance: random.Random) -> AccessRule:
    return AccessRule(
        int(Resource.TOPIC), int(chance.choice([Pattern.LITERAL, Pattern.PREFIXED])),
        chance.choice(["a", "ab", "b", "*"]),
        chance.choice(["User:alice", "User:*"]), chance.choice(["h", "*"]),
        int(chance.choice([Operation.READ, Operation.WRITE, Operation.ALL])),
        int(chance.choice([Permission.ALLOW, Permission.DENY])),
    )  # fmt: skip


def modelled(rules: set[AccessRule], who: str, operation: Operation, name: str) -> bool:
    """Whether Kafka's documented rules allow the operation, computed without an index."""
    about = [
        rule for rule in rules
        if (rule.pattern_type == Pattern.PREFIXED and name.startswith(rule.resource_name))
        or (rule.pattern_type == Pattern.LITERAL and rule.resource_name in (name, "*"))
    ]
    mine = [
        rule.permission for rule in about
        if rule.principal in (who, "User:*") and rule.host in ("h", "*")
        and rule.operation in (operation, Operation.ALL)
    ]
    return Permission.ALLOW in mine and Permission.DENY not in mine


@pytest.mark.parametrize("seed", range(4))
def test_cve_2024_27309_a_rule_that_is_removed_takes_no_other_with_it(seed: int) -> None:
    """In Kafka, if one of several ACLs of a resource was removed, others were forgotten."""
    chance, image, rules = random.Random(seed), MetadataImage.empty(), set[AccessRule]()
    authorizer = Authorizer((), False)
    for _ in range(200):
        rule = rule_of(chance)
        old = image
        image = replaced(image, rules, rule)
        authorizer.follow(old, image)
        for who in ("User:alice", "User:bob"):
            for name in ("a", "ab", "abc", "b", "c"):
                for operation in (Operation.READ, Operation.WRITE):
                    found = authorizer.allows(who, "h", operation, Resource.TOPIC, name)
                    assert found == modelled(rules, who, operation, name), (rules, who, name)


def replaced(image: MetadataImage, rules: set[AccessRule], rule: AccessRule) -> MetadataImage:
    """Add the rule to `rules` and to the image, or remove it if it is there; returns the new
    image."""
    present = rule not in rules
    rules ^= {rule}
    return image.apply([RuleSet(rule, present)])


def test_cve_2024_27309_rules_are_the_same_after_a_restart(tmp_path: Path) -> None:
    with GuardedBroker(tmp_path) as broker, WireClient(broker.address) as admin:
        create(admin, "t")
        for operation in (Operation.READ, Operation.WRITE):
            allow(admin, "User:bob", operation, Resource.TOPIC, "t")
        gone = DeleteAclsRequest.Filter(
            resource_type_filter=2, resource_name_filter="t", pattern_type_filter=3,
            principal_filter="User:bob", host_filter=None, operation=int(Operation.WRITE),
            permission_type=int(Permission.ALLOW),
        )
        admin.call(DeleteAclsRequest(filters=[gone]), 3)
    with GuardedBroker(tmp_path) as broker, broker.user("bob") as client:
        assert fetch(client, "t").error_code == 0
        assert produce(client, "t", batch(b"v")).error_code == 29


def test_cve_2024_56128_the_whole_conversation_is_proved() -> None:
    """The server refuses a last message whose nonce is not the one that it sent, and credentials
    with too few iterations."""
    client, server = ScramClient("SCRAM-SHA-256", "bob", "secret", {}), exchange()
    first = asyncio.run(server.answer(client.first()))
    last = (client.answer(first) or b"").decode()
    nonce = server.nonce
    with pytest.raises(AuthenticationFailed):
        asyncio.run(server.answer(last.replace(nonce, nonce[:-1] + "!").encode()))
    assert server.identity is None

    async def weak(name: str, by_token: bool) -> KnownUser:
        return KnownUser(derive(b"secret", b"salt", 4095, "SCRAM-SHA-256"), Identity("User:bob"))

    with pytest.raises(AuthenticationFailed):
        asyncio.run(ScramExchange("SCRAM-SHA-256", weak).answer(client.first()))


def alter_broker(client: WireClient, name: str, value: str) -> Any:
    made = IncrementalAlterConfigsRequest.Resource
    change = made.Config(name=name, config_operation=0, value=value)
    request = IncrementalAlterConfigsRequest(resources=[
        made(resource_type=4, resource_name=str(NODE_ID), configs=[change])
    ])  # fmt: skip
    return client.call(request, 1).responses[0]


LDAP = "com.sun.security.auth.module.JndiLoginModule"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listener.name.inside.plain.sasl.jaas.config", f'{LDAP} required user.provider.url="x";'),
        ("listener.name.inside.scram-sha-256.sasl.jaas.config", f"{LDAP} required a=b;"),
    ],
)
def test_cve_2023_25194_2025_27819_login_modules_are_names_never_code(
    tmp_path: Path, name: str, value: str
) -> None:
    with SaslBroker(tmp_path) as broker, WireClient(broker.address) as admin:
        alter_broker(admin, name, value)
        with WireClient(broker.inside) as client:
            answer = log_in(client, "PLAIN", "bob", "bob-secret")
            assert answer.error_code == 0, "the users that were there before still count"


@pytest.mark.parametrize(
    "name",
    ["sasl.server.callback.handler.class", "sasl.login.callback.handler.class",
     "principal.builder.class", "security.providers"],
)  # fmt: skip
def test_cve_2025_27818_no_setting_loads_what_it_names(tmp_path: Path, name: str) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('loaded')")
    settings = {f"listener.name.inside.plain.{name}": "trap.Trap", name: "trap.Trap"}
    try:
        with SaslBroker(tmp_path / "data", settings) as broker:
            with WireClient(broker.inside) as client:
                assert log_in(client, "PLAIN", "bob", "bob-secret").error_code == 0
    except SettingsError as error:
        assert name in str(error)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listener.name.inside.sasl.oauthbearer.jwks.endpoint.url", "file:/etc/passwd"),
        ("sasl.oauthbearer.jwks.endpoint.url", "http://127.0.0.1:1/"),
    ],
)
def test_cve_2025_27817_clients_choose_no_urls(
    broker: GuardedBroker, name: str, value: str
) -> None:
    with WireClient(broker.address) as admin:
        answer = alter_broker(admin, name, value)
        assert answer.error_code != 0, "keys of tokens are named in server.properties alone"


def test_cve_2024_31141_values_that_look_like_references_stay_texts(
    broker: GuardedBroker,
) -> None:
    with WireClient(broker.address) as admin:
        create(admin, "t")
        made = IncrementalAlterConfigsRequest.Resource
        change = made.Config(
            name="leader.replication.throttled.replicas", config_operation=0,
            value="${file:/etc/passwd:root}",
        )
        admin.call(IncrementalAlterConfigsRequest(resources=[
            made(resource_type=2, resource_name="t", configs=[change])
        ]), 1)  # fmt: skip
        kind = DescribeConfigsRequest.Resource
        shown = repr(admin.call(DescribeConfigsRequest(
            resources=[kind(resource_type=2, resource_name="t")]), 4))  # fmt: skip
        assert "root:" not in shown


def test_cve_2019_12399_no_answer_has_a_secret(broker: GuardedBroker) -> None:
    with WireClient(broker.address) as admin:
        name = "listener.name.inside.plain.sasl.jaas.config"
        assert alter_broker(admin, name, JAAS + " ").error_code == 0
        kind = DescribeConfigsRequest.Resource
        request = DescribeConfigsRequest(
            resources=[kind(resource_type=4, resource_name=node) for node in (str(NODE_ID), "")],
            include_synonyms=True, include_documentation=True,
        )
        shown = repr(admin.call(request, 4))
        assert "jaas" in shown and "-secret" not in shown


LOADING = {"pickle", "marshal", "shelve", "dill", "yaml"}
CODE = {"eval", "exec", "compile", "__import__"}
ITS_OWN = {"ottla/wire/compression.py"}
"""Files that may call `__import__`, because they pass it only names from their own code."""


def test_cve_2024_32030_nothing_that_is_received_becomes_code() -> None:
    """No Python module of the broker, its client or the packages below them uses pickle, eval or
    exec."""
    for folder in ("wire", "log", "replication", "groups", "broker", "client"):
        for path in sorted((ROOT / "ottla" / folder).rglob("*.py")):
            if str(path.relative_to(ROOT)) in ITS_OWN:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    names = {alias.name.partition(".")[0] for alias in node.names}
                    names |= {(getattr(node, "module", "") or "").partition(".")[0]}
                    assert not names & LOADING, path
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    assert node.func.id not in CODE, (path, node.lineno)


def test_cve_2024_51504_an_identity_comes_from_the_connection_alone(tmp_path: Path) -> None:
    """Neither headers, client ids nor host names decide who a client is."""
    with RunningBroker(
        tmp_path, **{"authorizer.class.name": AUTHORIZER, "super.users": "User:root"}
    ) as broker, WireClient(broker.address) as client:
        client.client_id = "root"
        refused = client.call(
            ProduceRequest(acks=1, timeout_ms=1000, topic_data=[
                ProduceRequest.TopicData(name="t", partition_data=[
                    ProduceRequest.TopicData.PartitionData(index=0, records=batch(b"v"))
                ])
            ]), 9,
        ).responses[0].partition_responses[0]  # fmt: skip
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        hosts = {c.client.host for c in broker.server.listeners[0].connections}
        assert hosts == {"127.0.0.1"}
