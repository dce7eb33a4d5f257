"""The access matrix: users with different ACLs send requests of every API to both brokers.

    python -m compat_tests.answers.matrix            # both brokers, side by side; needs Java
    python -m compat_tests.answers.matrix --record   # records Kafka's answers, too

For each operation that Kafka has on a resource type, there are two users: one who may do only this
operation, and one who may do everything else. If the resource type is topic, group or transactional
id, a third user may do everything else, but nothing on the cluster. So a request that needs two
permissions is also sent by users with only one of them. Other users have prefixed ACLs, ACLs for
another host, or no ACLs; one is a super user.

Every user sends requests of every API: in the newest version about resources that exist, in the
oldest version about missing resources (`guarded`), and in both versions about several resources,
generated from the schema (`generated`). The comparison is limited to those fields of the answers
that depend on access: codes, names and operations. `tests/broker` compares Ottla's answers with the
recorded ones.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from compat_tests.answers.conversation import Talk, prepare
from compat_tests.answers.generated import BANNED, PUBLIC, Generator, Named, naming_apis
from compat_tests.answers.normal import KEYS, normal
from compat_tests.answers.running import (
    GUARDED_SETTINGS,
    KAFKA_SETTINGS,
    OTTLA_SETTINGS,
    SETTINGS,
)
from compat_tests.answers.variants import Body, key_of, message
from compat_tests.answers.versions import COMMON_VERSIONS
from compat_tests.brokers import KafkaBroker, OttlaBroker
from ottla.replication.controller.access import CLUSTER_NAME, Operation, Resource
from ottla.tools.zookeeper.local import free_port
from ottla.wire.apis import APIS, ApiKey
from tests.broker.running import WireClient
from tests.broker.security.guarded import GROUP, QUESTIONS, TOPIC, TRANSACTION

RECORDED = Path(__file__).with_name("access-4.4.0.json.xz")
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "secret"
KAFKA_SILENT_AFTER_SECONDS = 0.5
"""The longest wait for an answer of Apache Kafka, which never answers some questions."""
ACCEPTED = {
    "*, alter_configs of a logger, *": "Kafka looks at the broker's id first: 42, here 31.",
    "*, sync_group, *": "Kafka looks at the protocol's name first: 23, here 30.",
    "several, SyncGroup v5, *": "The same.",
    "*, describe_user_scram_credentials, *": "Kafka does not answer the refused.",
    "several, AlterPartitionReassignments *": "Kafka repeats the code for each partition.",
    "several, ListPartitionReassignments *": "The same, with partitions that nobody has looked up.",
    "several, Produce *": "A transactional id with plain batches, which no client sends: Kafka does"
    " not look at the id, here it has to be the client's own.",
}
"""Keys of accepted differences, and why the answers differ; numbers are error codes. Wherever the
codes differ, Ottla is stricter."""
ASKED = {key for key, _ in QUESTIONS.values()} | {ApiKey.ADD_PARTITIONS_TO_TXN}
"""The APIs of the schema that a broker without share groups and streams groups serves."""
LITERAL, PREFIXED, ALLOW, DENY = 3, 4, 3, 2
Op = Operation
OPERATIONS = {
    Resource.TOPIC: (
        Op.ALL, Op.READ, Op.WRITE, Op.CREATE, Op.DELETE, Op.ALTER, Op.DESCRIBE,
        Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        Op.ALL, Op.READ, Op.DELETE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        Op.ALL, Op.CREATE, Op.ALTER, Op.DESCRIBE, Op.CLUSTER_ACTION, Op.DESCRIBE_CONFIGS,
        Op.ALTER_CONFIGS, Op.IDEMPOTENT_WRITE,
    ),
    Resource.TRANSACTIONAL_ID: (Op.ALL, Op.WRITE, Op.DESCRIBE, Op.TWO_PHASE_COMMIT),
    Resource.DELEGATION_TOKEN: (Op.ALL, Op.DESCRIBE),
    Resource.USER: (Op.ALL, Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS),
}  # fmt: skip
"""The operations that Kafka's AclEntry has for each type of resource."""
NAMES = {
    Resource.TOPIC: (TOPIC, "new"), Resource.GROUP: (GROUP,), Resource.CLUSTER: (CLUSTER_NAME,),
    Resource.TRANSACTIONAL_ID: (TRANSACTION,), Resource.DELEGATION_TOKEN: ("*",),
    Resource.USER: ("User:tom",),
}  # fmt: skip
KEPT = {*KEYS, "error_code", "cluster_authorized_operations", "topic_authorized_operations",
        "authorized_operations"} - {"member_id", "log_dir", "producer_id", "host"}  # fmt: skip
"""Fields that depend on access; `make compare` compares the other fields."""


def rule(user: str, kind: Resource, name: str, operation: Op, **more: Any) -> Body:
    """An ACL of a user."""
    return {
        "resource_type": int(kind), "resource_name": name, "resource_pattern_type": LITERAL,
        "principal": f"User:{user}", "host": "*", "operation": int(operation),
        "permission_type": ALLOW, **more,
    }  # fmt: skip


def rules_of_users() -> dict[str, list[Body]]:
    """Returns the ACLs of each user."""
    found: dict[str, list[Body]] = {"nobody": []}

    def everything(user: str, **more: Any) -> list[Body]:
        return [rule(user, kind, name, Op.ALL, **more) for kind in NAMES for name in NAMES[kind]]

    for kind, operations in OPERATIONS.items():
        for operation in operations:
            user = f"only-{kind.name}-{operation.name}".lower()
            found[user] = [rule(user, kind, name, operation) for name in NAMES[kind]]
            user = f"but-{kind.name}-{operation.name}".lower()
            denied = [rule(user, kind, name, operation, permission_type=DENY)
                      for name in NAMES[kind]]
            found[user] = everything(user) + denied
            if kind in (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID):
                # Permissions on the cluster imply many on topics and groups.
                user = f"local-{user}"
                found[user] = [
                    {**each, "principal": f"User:{user}"} for each in found[user[6:]]
                    if each["resource_type"] != Resource.CLUSTER
                ]
    found["root"] = []              # a super user
    found["anything"] = everything("anything")
    found["elsewhere"] = everything("elsewhere", host="10.0.0.1")
    found["here"] = everything("here", host="127.0.0.1")
    found["not-here"] = everything("not-here") + everything(
        "not-here", host="127.0.0.1", permission_type=DENY
    )
    found["any-name"] = [
        rule("any-name", kind, CLUSTER_NAME if kind == Resource.CLUSTER else "*", Op.ALL)
        for kind in NAMES
    ]
    for user, permission in (("prefixed", ALLOW), ("prefix-denied", DENY)):
        found[user] = [] if permission == ALLOW else everything(user)
        found[user] += [
            rule(user, kind, name[:1], Op.ALL, resource_pattern_type=PREFIXED,
                 permission_type=permission)
            for kind in NAMES for name in NAMES[kind] if kind != Resource.CLUSTER and name != "*"
        ]  # fmt: skip
    return found


def rules_for_everybody() -> list[Body]:
    """Returns the ACLs of `User:*` on the PUBLIC and the BANNED resources."""
    return [
        rule("*", kind, name, Op.ALL, permission_type=permission)
        for kind in (Resource.TOPIC, Resource.GROUP, Resource.TRANSACTIONAL_ID)
        for name, permission in ((PUBLIC, ALLOW), (BANNED, ALLOW), (BANNED, DENY))
    ]


USERS = rules_of_users()
JAAS = f"{MODULE} required " + " ".join(f'user_{user}="{PASSWORD}"' for user in USERS) + ";"
PLAIN_SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "super.users": "User:ANONYMOUS;User:root",
    "delegation.token.secret.key": "the-secret-of-all-tokens",
}
ALTERING = {
    ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS,
    ApiKey.CREATE_DELEGATION_TOKEN,
}  # fmt: skip
TOM = {"principal_type": "User", "principal_name": "tom"}
FOR_TOM = {"owner_principal_type": "User", "owner_principal_name": "tom"}
SEVERAL = [GROUP, PUBLIC, BANNED, "missing"]
LISTINGS: tuple[tuple[str, str, Body], ...] = (
    ("all topics", "Metadata", {
        "topics": None, "include_topic_authorized_operations": True}),
    ("all topics' partitions", "DescribeTopicPartitions", {
        "topics": [], "response_partition_limit": 2000}),
    ("all offsets", "OffsetFetch", {"groups": [
        {"group_id": name, "member_id": None, "topics": None} for name in SEVERAL]}),
    ("all groups", "ListGroups", {}),
    ("all transactions", "ListTransactions", {"state_filters": [], "producer_id_filters": []}),
    ("the cluster", "DescribeCluster", {"include_cluster_authorized_operations": True}),
    ("coordinators of groups", "FindCoordinator", {
        "key_type": 0, "coordinator_keys": SEVERAL}),
    ("coordinators of transactions", "FindCoordinator", {
        "key_type": 1, "coordinator_keys": [TRANSACTION, *SEVERAL[1:]]}),
    ("a token", "CreateDelegationToken", {"renewers": [], "max_lifetime_ms": -1}),
    ("a token for tom", "CreateDelegationToken", {
        **FOR_TOM, "renewers": [], "max_lifetime_ms": -1}),
    ("all tokens", "DescribeDelegationToken", {"owners": None}),
    ("tom's tokens", "DescribeDelegationToken", {"owners": [TOM]}),
    ("a strange token", "RenewDelegationToken", {"hmac": b"none", "renew_period_ms": 1000}),
    ("a strange token", "ExpireDelegationToken", {"hmac": b"none", "expiry_time_period_ms": 1000}),
)  # fmt: skip
"""Requests whose answer lists only what the user may see, and requests about delegation tokens. All
are sent in the newest version."""
Answers = dict[str, Any]
"""The answers. A key such as `newest, sync_group, USER` names the round of questions, the question
and the user."""


@dataclass
class MatrixTalk(Talk):
    """A conversation in which a connection with a user's name is logged in as that user."""

    protected: tuple[str, int] = ("", 0)
    answers: Answers = field(default_factory=dict)
    silent_after: float = 30.0
    """Seconds after which a question is recorded as not answered."""

    def _client(self, connection: str) -> WireClient:
        if connection in USERS and connection not in self.connections:
            login = f'{MODULE} required username="{connection}" password="{PASSWORD}";'
            self.connections[connection] = WireClient(
                self.protected, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN",
                sasl_jaas_config=login,
            )
        return super()._client(connection)

    def connection_of(self, user: str) -> WireClient:
        """The connection of a user."""
        return self._client(user)

    def make_topics(self, *names: str) -> dict[str, bytes]:
        """Create those topics that are missing; returns their ids."""
        body = {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1,
                            "assignments": [], "configs": []} for name in names],
                "timeout_ms": 10_000}
        self.ask("CreateTopics", 7, body)
        for name in names:
            self.until_led(name, 1)
        asked = [{"name": name, "topic_id": bytes(16)} for name in names]
        found = self.ask("Metadata", 12, {"topics": asked})
        return {each.name: each.topic_id for each in found.topics}

    def question(self, key: ApiKey, place: str, user: str, version: int, request: Any) -> None:
        """Ask one question as one user."""
        client = self._client(user)
        client.socket.settimeout(self.silent_after)
        place = f"{place}, {user}"
        try:
            answer = normal(client.call(request, version), version, self.names)
        except (ConnectionError, TimeoutError) as error:
            self.answers[place] = type(error).__name__
            self.forget(user)
            return
        self.answers[place] = reduced(answer)
        if key in ALTERING:
            self.settle()


def reduced(answer: Any) -> Any:
    """Returns the parts of an answer that depend on access."""
    if isinstance(answer, list):
        return [reduced(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {
        name: reduced(value) for name, value in answer.items()
        if name in KEPT or (isinstance(value, list | dict) and name != "configs")
    }


def matrix(
    address: tuple[str, int], protected: tuple[str, int], silent_after: float = 30.0
) -> Answers:
    """Ask one broker everything; returns its answers. `address` is its listener without login, and
    users log in at `protected`."""
    prepare(address)
    talk = MatrixTalk(
        address, "matrix", 1, protected=protected, silent_after=silent_after
    )
    try:
        for rules in (*USERS.values(), rules_for_everybody()):
            if rules:
                talk.ask("CreateAcls", 3, {"creations": rules})
        make_groups(talk)
        ask_about_several(talk)
        ask_for_listings(talk)
        ask_about_one(talk)
    finally:
        talk.close()
    return talk.answers


def make_groups(talk: MatrixTalk) -> None:
    """Create groups with offsets, and transactional ids with producers, for the listings."""
    talk.make_topics(TOPIC, PUBLIC, BANNED)
    offset = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    for group in (GROUP, PUBLIC, BANNED):
        talk.ask("OffsetCommit", 8, {
            "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": [{"name": name, "partitions": offset} for name in (TOPIC, PUBLIC, BANNED)],
        })  # fmt: skip
    for transactional_id in (TRANSACTION, PUBLIC, BANNED):
        talk.ask("InitProducerId", 4, {
            "transactional_id": transactional_id, "transaction_timeout_ms": 60_000,
        })  # fmt: skip


def ask_about_several(talk: MatrixTalk) -> None:
    """Send the requests generated from the schema, in the oldest and the newest version."""
    exist = (TOPIC, PUBLIC, BANNED)
    ids = talk.make_topics(*exist)
    own = {Named.TOPIC: TOPIC, Named.GROUP: GROUP, Named.TRANSACTION: TRANSACTION}
    for key in naming_apis():
        name, versions = APIS[key].name, COMMON_VERSIONS[key]
        if key not in ASKED:
            continue
        for version in sorted({versions[0], versions[-1]}):
            for user in USERS:
                if key == ApiKey.DELETE_TOPICS:
                    ids = talk.make_topics(*exist)
                request = message(name, version, Generator(own, ids).body(key, version))
                talk.question(key, f"several, {name} v{version}", user, version, request)
    talk.make_topics(*exist)


def ask_for_listings(talk: MatrixTalk) -> None:
    """Send the requests of LISTINGS."""
    for what, name, body in LISTINGS:
        key = key_of(name)
        version = COMMON_VERSIONS[key][-1]
        for user in USERS:
            talk.question(key, f"{what}, {name}", user, version, message(name, version, body))


def ask_about_one(talk: MatrixTalk) -> None:
    """Ask about existing resources in the newest version, about missing ones in the oldest."""
    topic_id = talk.make_topics(TOPIC)[TOPIC]
    for name, (key, question) in QUESTIONS.items():
        version = COMMON_VERSIONS[key][-1]
        for user in USERS:
            if key == ApiKey.DELETE_TOPICS:
                topic_id = talk.make_topics(TOPIC)[TOPIC]
            request = question.make(version, topic_id)
            talk.question(key, f"newest, {name}", user, version, request)
    talk.ask("DeleteTopics", 5, {"topic_names": [TOPIC, "new"], "timeout_ms": 10_000})
    for name, (key, question) in QUESTIONS.items():
        version = max(question.first, COMMON_VERSIONS[key][0])
        for user in USERS:
            request = question.make(version, topic_id)
            talk.question(key, f"oldest, missing, {name}", user, version, request)


def of_broker(broker: KafkaBroker | OttlaBroker) -> Answers:
    """Start a broker, ask it everything, and kill it; returns its answers."""
    port = free_port()
    broker.listen_also({"SASL_PLAINTEXT": port})
    broker.start()
    try:
        host, _, number = broker.bootstrap.rpartition(":")
        silent_after = KAFKA_SILENT_AFTER_SECONDS if isinstance(broker, KafkaBroker) else 30.0
        return matrix((host, int(number)), ("localhost", port), silent_after)
    finally:
        broker.kill()


def recorded() -> Answers:
    """Apache Kafka's answers, as `--record` has kept them."""
    found: Answers = json.loads(lzma.decompress(RECORDED.read_bytes()))
    return found


def unequal(kafka: Answers, ottla: Answers) -> list[str]:
    """Returns a line for each difference that no entry of ACCEPTED covers, and for each entry
    that covers none."""
    found, used = [], set()
    for place in sorted({*kafka, *ottla}):
        theirs, ours = reduced(kafka.get(place)), reduced(ottla.get(place))
        if theirs != ours:
            accepted = next((each for each in ACCEPTED if fnmatchcase(place, each)), None)
            used.add(accepted)
            if accepted is None:
                found.append(f"{place}: Kafka {json.dumps(theirs)}, Ottla {json.dumps(ours)}")
    return found + [f"does not occur any more: {each}" for each in ACCEPTED if each not in used]


def main() -> int:
    """Compare both brokers. The exit status is 0 if every difference is accepted, and every
    entry of ACCEPTED covers one."""
    with tempfile.TemporaryDirectory(prefix="ottla-matrix-") as directory:
        def lines(*settings: dict[str, str]) -> list[str]:
            return [f"{name}={value}" for each in settings for name, value in each.items()]

        shared = (SETTINGS, GUARDED_SETTINGS, PLAIN_SETTINGS)
        kafka = of_broker(
            KafkaBroker(Path(directory) / "kafka", lines(*shared, KAFKA_SETTINGS)))
        if "--record" in sys.argv:
            RECORDED.write_bytes(lzma.compress(json.dumps(kafka).encode(), preset=9))
        ottla = of_broker(
            OttlaBroker(Path(directory) / "ottla", lines(*shared, OTTLA_SETTINGS)))
    left = unequal(kafka, ottla)
    print("\n".join(left))
    print(f"{len(kafka)} answers to {len(USERS)} users, {len(left)} differ")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
