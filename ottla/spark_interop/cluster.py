"""A Kafka cluster as pipelines see it: its address, its login, its topics.

Spark's source takes properties of the Java client; the Python client takes librdkafka's properties.
`Cluster` holds librdkafka's names and derives the Java names from them.
"""

from __future__ import annotations

import difflib
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ottla.client.cluster import ClusterClient
from ottla.client.errors import (
    ClientError,
    LoginFailed,
    TimedOut,
    Unreachable,
    is_running_there,
    login_step,
)
from ottla.client.transport import Security, network_reason
from ottla.spark_interop.errors import NoBroker, PipelineError

ANSWER_SECONDS = 15
CONNECT_SECONDS = 5
ELECTION_SECONDS = 30
PATIENCE_SECONDS = 120  # a broker may restart meanwhile
AGAIN_SECONDS = 0.2
RETRIABLE = {
    "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "KAFKA_STORAGE_ERROR", "NOT_CONTROLLER",
    "REQUEST_TIMED_OUT", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS", "_TRANSPORT", "_DESTROY_BROKER",
}
"""Errors of leaders, controllers, coordinators and connections after which a retry may succeed;
librdkafka marks only some of them as retriable. `_DESTROY_BROKER`: the broker left the metadata
while a request waited for its answer."""
# librdkafka's login properties. The Java client has one property for both: sasl.jaas.config.
LOGIN = {"sasl.username", "sasl.password"}
LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
JAVA_NAMES = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "client.id": "client.id",
}


UNREACHABLE = {"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE"}
PASSING_EVENTS = UNREACHABLE | {"GROUP_AUTHORIZATION_FAILED"}
"""Errors that a consumer reports, and that do not end its reading: connections that it will make
again, and an error of the coordinator, which matters only to members of a group."""
TOPIC_SOURCE = 1  # Kafka's ConfigSource DYNAMIC_TOPIC_CONFIG


@dataclass(frozen=True)
class Setting:
    """A topic's setting: its value, and whether it is the topic's own or the cluster's default."""

    value: str
    own: bool


@dataclass(frozen=True)
class Cluster:
    """A bootstrap address `host:port,…` and the security properties, under librdkafka's names:
    `security.protocol`, `sasl.mechanism`, `sasl.username`, `sasl.password`, `ssl.ca.location`.

    If no broker answers, a request is repeated for `patience_seconds` (by default 0); then NoBroker
    is raised.
    """

    bootstrap: str
    security: Mapping[str, str] = field(default_factory=dict)
    patience_seconds: float = field(default=0, compare=False)

    @classmethod
    def of(cls, where: str | Cluster) -> Cluster:
        """A Cluster from an address, or the Cluster itself."""
        return where if isinstance(where, Cluster) else cls(where)

    @classmethod
    def reached(cls, where: str | Cluster) -> Cluster:
        """The Cluster, after a check that a broker answers. Public functions call this first,
        because librdkafka and Spark would wait for a missing broker."""
        cluster = cls.of(where)
        _try_until(time.monotonic() + cluster.patience_seconds, cluster.meet)
        return cluster

    @classmethod
    def begun(cls, where: str | Cluster) -> Cluster:
        """The Cluster for a pipeline: `reached` checks it, and `patient` gives it patience."""
        return cls.reached(where).patient()

    def patient(self) -> Cluster:
        """The Cluster with the patience of a running pipeline: an outage must not end the run."""
        return replace(self, patience_seconds=PATIENCE_SECONDS)

    @classmethod
    def from_file(cls, bootstrap: str, path: str | Path) -> Cluster:
        """A Cluster with the properties of a file: `key=value` lines, # for comments."""
        try:
            lines = [line.strip() for line in Path(path).read_text().splitlines()]
        except OSError as error:
            raise PipelineError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise PipelineError(f"{path} cannot be read: it is not UTF-8") from error
        pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
        return cls(bootstrap, {key.strip(): value.strip() for key, _, value in pairs})

    def client(self, **settings: Any) -> dict[str, Any]:
        """Settings of a confluent-kafka client."""
        return {
            "bootstrap.servers": self.bootstrap,
            "allow.auto.create.topics": False,
            "log_level": 0,  # errors are raised; librdkafka would also print them
            **self.security,
            **settings,
        }

    def spark_options(self) -> dict[str, str]:
        """Options of Spark's kafka source and sink."""
        options = {"kafka.bootstrap.servers": self.bootstrap}
        for name, value in self.security.items():
            if name in JAVA_NAMES:
                options[f"kafka.{JAVA_NAMES[name]}"] = value
            elif name not in LOGIN:
                raise PipelineError(
                    f"the property {name} is unknown to pipelines; "
                    f"known: {', '.join(sorted(JAVA_NAMES.keys() | LOGIN))}"
                )
        if "ssl.ca.location" in self.security:
            options["kafka.ssl.truststore.type"] = "PEM"
        if "sasl.username" in self.security:
            mechanism = self.security.get("sasl.mechanism", "PLAIN")
            if mechanism not in LOGIN_MODULES:
                raise PipelineError(
                    f"sasl.mechanism={mechanism} is unknown to pipelines; "
                    f"known: {', '.join(LOGIN_MODULES)}"
                )
            user, password = (
                self.security.get(name, "").replace("\\", "\\\\").replace('"', '\\"')
                for name in ("sasl.username", "sasl.password")
            )
            options["kafka.sasl.jaas.config"] = (
                f'{LOGIN_MODULES[mechanism]} required username="{user}" password="{password}";'
            )
        return options

    def admin(self) -> Any:
        """A confluent-kafka AdminClient. Raises PipelineError for invalid security properties."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return AdminClient(self.client())
        except KafkaException as error:
            raise self._sentence(error.args[0], "the client of the cluster") from error

    def asked(self, ask: Callable[[Any], Any], what: str = "") -> Any:
        """The result of `ask` with an admin client; errors become a PipelineError of one sentence.

        Retries while a leader or a controller is being elected, and if the broker that was asked
        has stopped, but another one accepts connections. If no broker accepts connections, waits
        for one up to `patience_seconds`.
        """
        from confluent_kafka import KafkaException

        begun = time.monotonic()
        deadline = begun + max(ELECTION_SECONDS, self.patience_seconds)
        while True:
            admin = self.admin()
            try:
                return ask(admin)
            except KafkaException as error:
                code = error.args[0]
                passes = _may_pass(code) if self.patience_seconds else _passes(code)
                if not passes or time.monotonic() > deadline:
                    raise self._sentence(code, what) from error
            _try_until(begun + self.patience_seconds, self.reach)
            time.sleep(AGAIN_SECONDS)

    def _sentence(self, code: Any, what: str) -> PipelineError:
        if code.name() in UNREACHABLE:
            return self._silent(code.str())
        about = f"{what} at {self.bootstrap}" if what else self.bootstrap
        return PipelineError(f"{about}: {code.name()}: {code.str()}")

    def _silent(self, why: str) -> NoBroker:
        seconds = max(ANSWER_SECONDS, self.patience_seconds)
        return NoBroker(
            f"no broker answers at {self.bootstrap} within {seconds} s ({why}): check the "
            "address, and that the broker runs"
        )

    def id(self) -> str:
        """The cluster's id, which identifies it whatever its addresses are."""
        def ask(admin: Any) -> Any:
            return admin.describe_cluster(request_timeout=ANSWER_SECONDS).result().cluster_id

        return str(self.asked(ask))

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises PipelineError if it does not exist or no broker
        answers."""
        return sorted(self._described(topic))

    def in_sync(self, topic: str) -> dict[int, list[int]]:
        """The in-sync replicas of each partition of a topic. Raises PipelineError as for
        `partitions`."""
        return {number: at.isrs for number, at in self._described(topic).items()}

    def topic_id(self, topic: str) -> str:
        """The topic's id in Kafka's form (KIP-516), which changes if the topic is deleted and
        created again."""
        found = self.topic_ids([topic])[topic]
        if found is None:
            raise PipelineError(f"topic {topic} not found at {self.bootstrap}")
        return found

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        """The ids of topics, None for a topic that does not exist."""
        from confluent_kafka import TopicCollection

        def id_of(name: str, answer: Any) -> str | None:
            if (error := answer.exception()) is not None:
                code = error.args[0]
                if code.name() == "UNKNOWN_TOPIC_OR_PART":
                    return None
                raise error if _may_pass(code) else self._sentence(code, f"topic {name}")
            # Kafka writes ids in URL-safe base64, librdkafka in standard base64.
            text = str(answer.result().topic_id)
            return text.translate(str.maketrans("+/", "-_")).rstrip("=")

        def ask(admin: Any) -> dict[str, str | None]:
            answers = admin.describe_topics(names, request_timeout=ANSWER_SECONDS)
            return {name: id_of(name, answer) for name, answer in answers.items()}

        names = TopicCollection(list(topics))
        return dict(self.asked(ask))

    def settings(self, topic: str) -> dict[str, Setting]:
        """The settings of a topic, by name. Raises PipelineError if they cannot be read."""
        from confluent_kafka.admin import ConfigResource

        of = ConfigResource(ConfigResource.Type.TOPIC, topic)

        def ask(admin: Any) -> Any:
            return admin.describe_configs([of], request_timeout=ANSWER_SECONDS)[of].result()

        found = self.asked(ask, f"the settings of topic {topic}")
        return {name: Setting(entry.value, entry.source == TOPIC_SOURCE)
                for name, entry in found.items()}  # fmt: skip

    def identity(self, topic: str) -> dict[str, str]:
        """The topic's name, its id and the cluster's id. A checkpoint records them, because a topic
        that was created again under the same name has another id."""
        return {"topic": topic, "cluster": self.id(), "topic_id": self.topic_id(topic)}

    def exists(self, topic: str) -> bool:
        """Whether the topic exists. Raises PipelineError if no broker answers."""
        return topic in self._topics()

    def _topics(self) -> Any:
        return self.asked(lambda admin: admin.list_topics(timeout=ANSWER_SECONDS)).topics

    def _described(self, topic: str) -> dict[int, Any]:
        topics = self._topics()
        if topic not in topics:
            # Raises if the topic exists and this user may not describe it
            self.topic_ids([topic])
            near = difflib.get_close_matches(topic, topics, n=3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise PipelineError(f"topic {topic} not found at {self.bootstrap}{hint}")
        # A topic with an error looks like a topic without partitions.
        if (refused := topics[topic].error) is not None:
            raise PipelineError(f"topic {topic} at {self.bootstrap}: {refused.str()}")
        return dict(topics[topic].partitions)

    def addresses(self) -> list[tuple[str, str, int]]:
        """Each address of `bootstrap`, with its host and port. Raises PipelineError for a text that
        is not an address."""
        found = []
        for address in self.bootstrap.split(","):
            host, _, port = address.strip().rpartition("://")[2].rpartition(":")
            if not host or not port.isdecimal() or int(port) > 65535:
                raise PipelineError(f"{address!r} is not an address: write host:port")
            found.append((address.strip(), host.strip("[]"), int(port)))
        return found

    def reach(self) -> None:
        """Tries the addresses in turn until one accepts a connection. Raises NoBroker if none does,
        PipelineError for a text that is not an address. It only connects, and does not log in as
        `meet` does, so it may be called every few seconds."""
        reasons, refused = [], True
        for address, host, port in self.addresses():
            try:
                socket.create_connection((host, port), CONNECT_SECONDS).close()
                return
            except OSError as error:
                reasons.append(f"{address}: {network_reason(error)}")
                refused &= isinstance(error, ConnectionRefusedError)
        raise NoBroker(
            f"no broker answers at {self.bootstrap} ({'; '.join(reasons)}): check the address"
            + (f"; {is_running_there()}" if refused else ", and that the broker runs")
        )

    def meet(self) -> None:
        """Raises PipelineError in a few seconds if the broker cannot be used. The error's text
        gives the reason: for example, another server has the port, or the password is wrong.
        librdkafka would wait, and give no reason."""
        self.reach()
        if not self.security.keys() <= JAVA_NAMES.keys() | LOGIN:
            return      # only librdkafka knows the other properties
        try:
            security = Security.from_properties(self.security)
        except ClientError:
            return      # librdkafka knows this mechanism, or reports the error
        try:
            with ClusterClient(
                self.bootstrap, connect_seconds=CONNECT_SECONDS, request_seconds=ANSWER_SECONDS,
                retry_refused=False, security=security,
            ) as client:
                client.refresh()
        except (Unreachable, TimedOut) as failed:
            told = str(failed).replace("ssl.truststore.location", "ssl.ca.location")
            raise NoBroker(told) from failed
        except ClientError as failed:
            step = f"; {login_step(failed)}" if isinstance(failed, LoginFailed) else ""
            raise PipelineError(f"{failed}{step}") from failed

    def rights(self, topic: str) -> set[str]:
        """The operations that this client may perform on a topic; empty if the broker does not
        report them."""
        from confluent_kafka import TopicCollection

        def ask(admin: Any) -> Any:
            answers = admin.describe_topics(
                TopicCollection([topic]), include_authorized_operations=True,
                request_timeout=ANSWER_SECONDS,
            )  # fmt: skip
            return answers[topic].result()

        found = self.asked(ask, f"topic {topic}").authorized_operations
        return {operation.name for operation in found or ()}

    def create(
        self,
        topic: str,
        partitions: int,
        config: Mapping[str, str] | None = None,
        *,
        check_only: bool = False,
    ) -> bool:
        """Creates a topic with the cluster's default replication; False if it exists already.

        Waits until one broker reports the new partitions, at most ANSWER_SECONDS; other brokers may
        report them later. With `check_only` the broker only validates the request.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        new = NewTopic(topic, partitions, -1, config=dict(config or {}))

        def ask(admin: Any) -> bool:
            try:
                admin.create_topics(
                    [new], operation_timeout=ANSWER_SECONDS, validate_only=check_only
                )[topic].result()
            except KafkaException as error:
                code = error.args[0]
                if code.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    return False
                if _may_pass(code):
                    raise
                raise PipelineError(f"topic {topic} was not created: {code.str()}") from None
            return True

        made = bool(self.asked(ask, f"topic {topic}"))
        if check_only or not made:
            return made
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self._knows(topic, partitions) and time.monotonic() < deadline:
            time.sleep(AGAIN_SECONDS)
        return True

    def _knows(self, topic: str, partitions: int) -> bool:
        try:
            return len(self.partitions(topic)) >= partitions
        except PipelineError:
            return False

    def offsets(
        self,
        topic: str,
        spec: Any,
        committed: bool = False,
        partitions: Iterable[int] | None = None,
    ) -> dict[int, int]:
        """The result of ListOffsets by partition, for an OffsetSpec of confluent-kafka; -1 if no
        offset fits. With `committed`, the isolation level is read_committed. By default, all
        partitions are queried.

        Raises PipelineError if the election of a leader takes too long.
        """
        from confluent_kafka import IsolationLevel, TopicPartition

        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        chosen = self.partitions(topic) if partitions is None else partitions
        wanted = {TopicPartition(topic, p): spec for p in chosen}

        def ask(admin: Any) -> dict[int, int]:
            answers = admin.list_offsets(
                wanted, isolation_level=level, request_timeout=ANSWER_SECONDS
            )
            return {at.partition: answer.result().offset for at, answer in answers.items()}

        return dict(self.asked(ask, f"topic {topic}"))

    def starts(self, topic: str) -> dict[int, int]:
        """The first available offset of each partition."""
        from confluent_kafka.admin import OffsetSpec

        return self.offsets(topic, OffsetSpec.earliest())

    def ends(
        self, topic: str, committed: bool = True, partitions: Iterable[int] | None = None
    ) -> dict[int, int]:
        """By partition, the last stable offset if `committed`, else the high watermark."""
        from confluent_kafka.admin import OffsetSpec

        return self.offsets(topic, OffsetSpec.latest(), committed, partitions)

    def at_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """By partition, the offset of the first record with this time or later; the high watermark
        if there is no such record."""
        from confluent_kafka.admin import OffsetSpec

        found = self.offsets(topic, OffsetSpec.for_timestamp(timestamp_ms))
        ends = self.ends(topic, committed=False)
        return {p: ends[p] if offset < 0 else offset for p, offset in found.items()}


def _try_until(deadline: float, reach: Callable[[], None]) -> None:
    """Calls `reach`; tries again until the deadline if no broker answers."""
    while True:
        try:
            return reach()
        except NoBroker:
            if time.monotonic() >= deadline:
                raise
        time.sleep(AGAIN_SECONDS)


def _may_pass(code: Any) -> bool:
    """Whether a Cluster with `patience_seconds` may repeat a request after this error: the error is
    retriable, or no broker was reachable."""
    return _passes(code) or code.name() in UNREACHABLE


def _passes(code: Any) -> bool:
    """Whether an error of a broker or a connection is retriable."""
    return bool(code.retriable()) or code.name() in RETRIABLE


def consumer_goes_on(error: Any) -> bool:
    """Whether a consumer without group management goes on by itself after this error."""
    return bool(error.retriable()) or error.name() in PASSING_EVENTS


def offsets_json(topic: str, offsets: Mapping[int, int]) -> str:
    """Offsets as Spark's `startingOffsets` takes them."""
    import json

    return json.dumps({topic: {str(p): o for p, o in sorted(offsets.items())}})


def total(offsets: Iterable[int]) -> int:
    """The sum of offsets or counts, 0 for none."""
    return sum(offsets)
