"""Kafka's client properties as the keyword arguments of kafka-python, and as librdkafka's names."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.client.addresses import show_address
from ottla.client.errors import ClientError
from ottla.client.transport import Security

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

NUMBERS = {
    "linger.ms",
    "batch.size",
    "retries",
    "request.timeout.ms",
    "max.block.ms",
    "buffer.memory",
    "metadata.max.age.ms",
    "send.buffer.bytes",
    "receive.buffer.bytes",
    "retry.backoff.ms",
    "max.request.size",
    "fetch.min.bytes",
    "fetch.max.wait.ms",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "max.poll.records",
    "max.poll.interval.ms",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "auto.commit.interval.ms",
    "connections.max.idle.ms",
    "transaction.timeout.ms",
    "max.in.flight.requests.per.connection",
    "delivery.timeout.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
}
SWITCHES = {"enable.auto.commit", "check.crcs", "enable.idempotence"}
TEXTS = {
    "client.id",
    "group.id",
    "group.instance.id",
    "auto.offset.reset",
    "isolation.level",
    "compression.type",
    "transactional.id",
    "client.rack",
}
RENAMED = {"connections.max.idle.ms": "connections_max_idle_ms", "check.crcs": "check_crcs"}
PEM_NAMES = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.location": "ssl.certificate.location",
}
"""Java's names of PEM files, and librdkafka's, which wants the key's file once more."""
JAVA_ONLY = {"sasl.jaas.config", "ssl.truststore.type", "ssl.keystore.type"}


def keyword_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """Properties that kafka-python has a name for; serializers and the like are left out.

    Raises ClientError for a value that should be a number and is not, and for security that cannot
    be set up.
    """
    quiet()
    found = security_arguments(properties)
    for name, value in properties.items():
        key = RENAMED.get(name, name.replace(".", "_"))
        if name in NUMBERS:
            try:
                found[key] = int(value)
            except ValueError:
                raise ClientError(f"{name}={value}: expected a whole number") from None
        elif name in SWITCHES:
            found[key] = value.strip().lower() == "true"
        elif name in TEXTS:
            found[key] = value
        elif name == "acks":
            found[key] = acks_of(value)
    if found.get("compression_type") == "none":
        found["compression_type"] = None
    return found


def bootstrap_servers(cluster: Cluster, client: str = "kafka-python") -> list[str]:
    """The addresses for a library to begin with.

    kafka-python asks one of its choice, and gives up if that host is silent for 30 s: it gets the
    one that answers, and learns of the others there.
    """
    if client == "kafka-python":
        return [show_address(cluster.any().address)]
    return [show_address(address) for address in cluster.bootstrap]


def known_to(client: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings that this class of kafka-python has: a property file may be for both kinds of
    clients, and Java's leave what they do not know."""
    return {name: value for name, value in settings.items() if name in client.DEFAULT_CONFIG}


def security_arguments(properties: Mapping[str, str]) -> dict[str, Any]:
    """How kafka-python encrypts and logs in: as the package's own client does."""
    security = Security.from_properties(properties)
    found: dict[str, Any] = {}
    if security.protocol != "PLAINTEXT":
        found["security_protocol"] = security.protocol
    if security.tls is not None:
        found["ssl_context"] = security.tls
        found["ssl_check_hostname"] = security.tls.check_hostname
    if security.mechanism:
        refuse_tokens(security)
        found["sasl_mechanism"] = security.mechanism
        found["sasl_plain_username"] = security.user
        found["sasl_plain_password"] = security.password
    return found


def refuse_tokens(security: Security) -> None:
    """ClientError for a login with a delegation token."""
    if security.extensions:
        raise ClientError("kafka-python and librdkafka cannot log in with a delegation token")


def librdkafka_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties by librdkafka's names: Java's names of certificates and logins are
    translated."""
    found: dict[str, str] = {}
    for name, value in properties.items():
        if name not in JAVA_ONLY:
            found[PEM_NAMES.get(name, name)] = value
    if "ssl.keystore.location" in properties:
        found["ssl.key.location"] = properties["ssl.keystore.location"]
    if properties.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    if "sasl.jaas.config" in properties:
        security = Security.from_properties(properties)
        refuse_tokens(security)
        found["sasl.username"], found["sasl.password"] = security.user, security.password
    return found


def acks_of(text: str) -> int | str:
    """`all`, -1, 0 or 1."""
    if text in ("all", "-1"):
        return "all"
    if text not in ("0", "1"):
        raise ClientError(f"acks={text}: expected 0, 1 or all")
    return int(text)


def quiet() -> None:
    """Keeps kafka-python's log off the terminal: a command reports failures itself."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
