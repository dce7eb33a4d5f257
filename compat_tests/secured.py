"""Starts a broker with a listener for each security protocol; has each client's settings for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from compat_tests.brokers import Broker, KafkaBroker, OttlaBroker
from ottla.tools.zookeeper.local import free_port
from tests.broker.security.authority import Authority

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = f'{PLAIN_MODULE} required user_paula="p-secret";'
PROTOCOLS = ("SASL_PLAINTEXT", "SSL", "SASL_SSL")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
CASES = [
    *(("SASL_PLAINTEXT", mechanism) for mechanism in ("PLAIN", *SCRAM)),
    ("SSL", ""),
    *(("SASL_SSL", mechanism) for mechanism in ("PLAIN", *SCRAM)),
]


@dataclass
class Secured:
    """The broker, its listeners' addresses, the issuer of all certificates, and a client's key."""

    broker: Broker
    addresses: dict[str, str]
    authority: Authority
    key: Path

    def bootstrap(self, protocol: str) -> str:
        """The address of the listener of a protocol."""
        return self.addresses[protocol]

    def user(self, mechanism: str) -> tuple[str, str]:
        """Name and password of the user that logs in with this mechanism."""
        return ("paula", "p-secret") if mechanism == "PLAIN" else ("sam", "s-secret")

    def librdkafka(self, protocol: str, mechanism: str) -> dict[str, str]:
        """Settings of librdkafka, and of all clients based on it."""
        user, password = self.user(mechanism)
        found = {"bootstrap.servers": self.bootstrap(protocol), "security.protocol": protocol}
        if mechanism:
            found |= {
                "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password,
            }
        if protocol.endswith("SSL"):
            found["ssl.ca.location"] = str(self.authority.file)
        if protocol == "SSL":
            found |= {
                "ssl.certificate.location": str(self.key), "ssl.key.location": str(self.key),
            }
        return found

    def java(self, protocol: str, mechanism: str, password: str = "") -> dict[str, str]:
        """Properties of Java's clients; `password` replaces the right password."""
        user, right = self.user(mechanism)
        found = {"security.protocol": protocol}
        if mechanism:
            module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
            found |= {
                "sasl.mechanism": mechanism,
                "sasl.jaas.config":
                    f'{module} required username="{user}" password="{password or right}";',
            }
        if protocol.endswith("SSL"):
            found |= {
                "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.file),
            }
        if protocol == "SSL":
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.key)}
        return found


def start_secured(
    new_broker: Callable[..., Broker], directory: Path, *more: str
) -> Secured:
    """Start a broker with all listeners and users; `more` are additional broker properties."""
    authority = Authority(directory)
    server, client = authority.issue("server"), authority.issue("client")
    ports = {name: free_port() for name in PROTOCOLS}
    overrides = [
        "ssl.keystore.type=PEM", f"ssl.keystore.location={server}",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={authority.file}",
        "listener.name.ssl.ssl.client.auth=required",
        f"sasl.enabled.mechanisms=PLAIN,{','.join(SCRAM)}",
    ]
    for name in ("sasl_plaintext", "sasl_ssl"):
        overrides.append(f"listener.name.{name}.plain.sasl.jaas.config={USERS}")
        for mechanism in SCRAM:
            key = f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"
            overrides.append(f"{key}={SCRAM_MODULE} required;")
    broker = new_broker(*overrides, *more)
    assert isinstance(broker, OttlaBroker | KafkaBroker)
    broker.listen_also(ports)
    broker.start()
    addresses = {name: f"localhost:{port}" for name, port in ports.items()}
    found = Secured(broker, {"PLAINTEXT": broker.bootstrap, **addresses}, authority, client)
    for mechanism in MECHANISMS:
        make_user(found, "sam", "s-secret", mechanism)
    return found


def admin(secured: Secured) -> AdminClient:
    """An admin client on the PLAINTEXT listener."""
    return AdminClient({"bootstrap.servers": secured.bootstrap("PLAINTEXT")})


def make_user(secured: Secured, name: str, password: str, mechanism: str) -> None:
    """Create a SCRAM credential."""
    info = ScramCredentialInfo(MECHANISMS[mechanism], 4096)
    wanted = UserScramCredentialUpsertion(name, info, password.encode())
    asked = admin(secured)
    asked.alter_user_scram_credentials([wanted])[name].result(60)
