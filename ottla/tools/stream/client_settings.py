"""Kafka's client properties as settings of librdkafka, and the clients created with them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ottla.client.addresses import show_address
from ottla.client.errors import ClientError
from ottla.client.similar_names import similar
from ottla.client.transport import Security
from ottla.tools.usage import WrongUsage
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

NO_NAME = "-"
WRONG_VALUES = ("Invalid value", "Configuration property")
"""How librdkafka's errors about a single value begin."""
UNKNOWN = "No such configuration property"
SILENT = logging.getLogger("ottla.librdkafka")
SILENT.disabled = True
ALWAYS: dict[str, Any] = {"log_level": 0, "logger": SILENT}
"""librdkafka logs nothing, as commands report failures themselves, in one line. Without a logger
it would write fatal errors to stderr at any level."""
FORMER_NAMES = {"request.required.acks": "acks", "compression.codec": "compression.type"}
"""librdkafka's former names, which users of kcat still write."""
LOGIN = ("sasl.username", "sasl.password")
"""Settings of librdkafka that Java's clients have within sasl.jaas.config."""
COMPRESSION_LEVEL = "compression.{}.level"


@cache
def java_names() -> dict[str, str]:
    """Every client property of Java's clients, with librdkafka's name, or NO_NAME if librdkafka has
    none."""
    text = files("ottla.tools.stream").joinpath("client_settings.txt").read_text(encoding="ascii")
    names = {}
    for line in text.splitlines():
        name, _, other = line.partition(" ")
        names[name] = other or name
    return names


def librdkafka_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """The properties under librdkafka's names; properties that only Java's clients know are
    omitted.

    Raises ClientError for security settings that are not supported.
    """
    names = java_names()
    renamed: dict[str, Any] = {
        names.get(name, name): value
        for name, value in properties.items()
        if names.get(name) != NO_NAME
    }
    if "ssl.keystore.location" in properties:
        renamed.setdefault("ssl.key.location", properties["ssl.keystore.location"])
    if properties.get("ssl.endpoint.identification.algorithm") == "":
        renamed["ssl.endpoint.identification.algorithm"] = "none"
    codec = properties.get("compression.type", "")
    if (level := properties.get(COMPRESSION_LEVEL.format(codec))) is not None:
        renamed["compression.level"] = level
    if (memory := properties.get("buffer.memory")) is not None:
        renamed["queue.buffering.max.kbytes"] = str(whole_number("buffer.memory", memory) // 1024)
    if "sasl.jaas.config" in properties:
        security = Security.from_properties(properties)
        if security.extensions:
            raise ClientError("librdkafka does not support delegation tokens")
        renamed["sasl.username"], renamed["sasl.password"] = security.user, security.password
    return renamed


def open_client(kind: str, settings: Mapping[str, Any]) -> Any:
    """A Consumer or a Producer of confluent-kafka with these settings.

    Unknown names are reported and ignored, as in Java's clients, since a file may serve several
    programs. Raises ClientError for a wrong value.
    """
    import confluent_kafka

    remaining = {**ALWAYS, **settings}
    while True:
        try:
            return getattr(confluent_kafka, kind)(remaining)
        except (confluent_kafka.KafkaException, ValueError, TypeError) as wrong:
            name = unknown_name(wrong)
            if name not in remaining:
                raise ClientError(refusal(kind, settings, wrong)) from wrong
            print(f"{name} is not a setting of Kafka's clients and has no effect", file=sys.stderr)
            del remaining[name]


def is_known(name: str) -> bool:
    """Whether Java's clients or librdkafka have a setting of this name."""
    if name in java_names() or name in FORMER_NAMES or name.startswith("config.providers."):
        return True
    import confluent_kafka

    try:
        confluent_kafka.Producer({**ALWAYS, name: ""})
    except (confluent_kafka.KafkaException, ValueError, TypeError) as wrong:
        return unknown_name(wrong) != name
    return True


def check_names(given: Iterable[str]) -> None:
    """Raises WrongUsage for a name that neither Java's clients nor librdkafka know."""
    for name in given:
        if not is_known(name):
            near = similar(name, [*java_names(), *LOGIN])
            raise WrongUsage(f"{name} is not a setting of Kafka's clients{near}")


def check_values(given: Mapping[str, str]) -> None:
    """Raises WrongUsage for a value that librdkafka does not take. Settings that need others, such
    as a login, are not checked here."""
    for name, value in given.items():
        if name == "sasl.jaas.config":
            continue
        import confluent_kafka

        try:
            confluent_kafka.Producer({**ALWAYS, **librdkafka_settings({name: value})})
        except (confluent_kafka.KafkaException, ValueError, TypeError) as wrong:
            if said(wrong).startswith(WRONG_VALUES):
                raise WrongUsage(f"{name}={value}: {said(wrong)}") from None


def why_misspelled(name: str, value: str) -> str:
    """The error about an unknown entry of a file, "" if the entry may be for another program."""
    from ottla.broker.settings.config import shown
    from ottla.broker.settings.declaration import did_you_mean

    hint = did_you_mean(name, [*java_names(), *LOGIN])
    if not hint and not value:
        hint = "; each line has the form name=value"
    return hint and f"{shown(name)} is not a setting of Kafka's clients and has no effect{hint}"


def unknown_name(wrong: Exception) -> str:
    """The property that librdkafka calls unknown, "" for other errors."""
    text = said(wrong)
    return text.partition('"')[2].rpartition('"')[0] if text.startswith(UNKNOWN) else ""


def refusal(kind: str, settings: Mapping[str, Any], wrong: Exception) -> str:
    """The text of librdkafka's error with the setting's given name, since librdkafka may use
    another name."""
    import confluent_kafka

    for name, value in settings.items():
        if name == "group.id" or not isinstance(value, str) or "passw" in name or "secret" in name:
            continue
        try:
            getattr(confluent_kafka, kind)({**ALWAYS, "group.id": "-", name: value})
        except (confluent_kafka.KafkaException, ValueError, TypeError) as refused:
            if said(refused) == said(wrong):
                return f"{name}={value}: {said(wrong)}"
    return f"cannot make a {kind.lower()}: {said(wrong)}"


def said(wrong: Exception) -> str:
    """The text of a KafkaException, without its number."""
    first: Any = wrong.args[0] if wrong.args else wrong
    return str(first.str() if hasattr(first, "str") else first)


def reason_with_code(error: Any) -> str:
    """A KafkaError as NAME: text, with the protocol's name of a broker's error."""
    code = error.code()
    known = code > 0 and code in ErrorCode._value2member_map_
    name = ErrorCode(code).name if known else error.name()
    text = error.str().rpartition(" response error:")[2].strip().removeprefix("Broker: ")
    return f"{name}: {text}" if text else name


def bootstrap_servers(cluster: ClusterClient) -> str:
    """The addresses for librdkafka to begin with."""
    return ",".join(show_address(address) for address in cluster.bootstrap)


def whole_number(name: str, value: str) -> int:
    """A property that is a number; raises ClientError for another value."""
    try:
        return int(value)
    except ValueError:
        raise ClientError(f"{name}={value}: expected a whole number") from None


def acks_of(text: str) -> int | str:
    """Parses acks: `all`, -1, 0 or 1. Raises ClientError."""
    if text in ("all", "-1"):
        return "all"
    if text not in ("0", "1"):
        raise ClientError(f"acks={text}: expected 0, 1 or all")
    return int(text)
