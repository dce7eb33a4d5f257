"""Kafka's client properties as settings of librdkafka, and the clients created with them."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ottla.client.addresses import show_address
from ottla.client.command_line import INT32_MOST, is_at_most
from ottla.client.errors import ClientError
from ottla.client.similar_names import similar
from ottla.client.transport import Security
from ottla.tools.usage import WrongUsage
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

NO_NAME = "-"
PROVIDERS = "config.providers."
TOGETHER = "Failed to create "
"""How librdkafka's error begins if settings contradict each other, or need other settings."""
UNSUPPORTED = "Unsupported SASL mechanism"
UNKNOWN = "No such configuration property"
SILENT = logging.getLogger("ottla.librdkafka")
SILENT.disabled = True
ALWAYS: dict[str, Any] = {"log_level": 0, "logger": SILENT}
"""librdkafka logs nothing, since commands report failures themselves, in one line. Without a
logger, librdkafka would write fatal errors to stderr even at level 0."""
FORMER_NAMES = {"request.required.acks": "acks", "compression.codec": "compression.type"}
"""librdkafka's former names, which users of kcat still write."""
NO_SETTING = "is not a setting of Kafka's clients and has no effect"
NAMED_MOST = 5
"""How many unknown settings of a file are named in one line."""
STREAMS_PREFIXES = (
    "consumer.", "producer.", "admin.", "main.consumer.", "restore.consumer.", "global.consumer.",
)
"""Kafka Streams passes settings with these prefixes to its clients."""
LOGIN = ("sasl.username", "sasl.password")
"""Settings of librdkafka that Java's clients have within sasl.jaas.config."""
ELSEWHERE = ("bootstrap.", "metadata.broker.list", "security.", "sasl.", "ssl.")
"""How the names of connection settings begin. `Security` checks these settings."""
WHOLE = re.compile("[+-]?[0-9]+")
COMPRESSION_LEVEL = "compression.{}.level"


@cache
def _lines(name: str = "client_settings.txt") -> list[list[str]]:
    text = files("ottla.tools.stream").joinpath(name).read_text(encoding="ascii")
    return [line.split() for line in text.splitlines() if line[0] != "#"]


@cache
def java_names() -> dict[str, str]:
    """Every client property of Java's clients, with librdkafka's name, or NO_NAME if librdkafka has
    none."""
    return {words[0]: words[1] if len(words) > 1 else words[0] for words in _lines()}


@cache
def java_types() -> dict[str, str]:
    """The types of the number and boolean settings that only Java's clients have."""
    return {words[0]: words[2] for words in _lines() if len(words) > 2}


def librdkafka_settings(properties: Mapping[str, str]) -> dict[str, Any]:
    """The properties under librdkafka's names; properties that only Java's clients know are
    omitted.

    Raises ClientError for security settings that are not supported.
    """
    names = java_names()
    renamed: dict[str, Any] = {
        names.get(name, name): value
        for name, value in properties.items()
        if names.get(name) != NO_NAME and not name.startswith(PROVIDERS)
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
            print(f"{name} {NO_SETTING}", file=sys.stderr)
            del remaining[name]


def is_known(name: str) -> bool:
    """Whether Java's clients or librdkafka have a setting of this name."""
    if name in java_names() or name in FORMER_NAMES or name.startswith(PROVIDERS):
        return True
    wrong = refused("Producer", {name: ""})
    return wrong is None or unknown_name(wrong) != name


def refused(kind: str, settings: Mapping[str, Any]) -> Exception | None:
    """librdkafka's error about a client with these settings; None if there is no error. The client
    connects to no broker."""
    import confluent_kafka

    try:
        getattr(confluent_kafka, kind)({**ALWAYS, **settings})
    except (confluent_kafka.KafkaException, ValueError, TypeError) as wrong:
        return wrong
    return None


def check_names(given: Iterable[str]) -> None:
    """Raises WrongUsage for a name that neither Java's clients nor librdkafka know."""
    for name in given:
        if not is_known(name):
            near = similar(name, [*java_names(), *LOGIN])
            raise WrongUsage(f"{name} is not a setting of Kafka's clients{near}")


def check_values(given: Mapping[str, str]) -> None:
    """Raises WrongUsage for a value that no client takes, whatever its other settings are."""
    for name, value in given.items():
        if name in java_types():
            check_type(name, value)
        elif name == "acks":
            acks_of(value)
        elif name != "sasl.jaas.config" and (wrong := why_wrong(name, value)):
            raise WrongUsage(f"{name}={value}: {wrong}")


def check_type(name: str, value: str) -> None:
    """Raises WrongUsage for a value that Java's clients do not take."""
    from ottla.broker.settings.declaration import Setting, SettingsError

    try:
        Setting(name, 0, java_types()[name]).parse(value)
    except SettingsError as wrong:
        raise WrongUsage(str(wrong)) from None


def why_wrong(name: str, value: str) -> str:
    """The text of librdkafka's error about one value; "" without an error. A setting that needs
    other settings, such as a certificate, is not checked."""
    settings = librdkafka_settings({name: value})
    if "sasl.mechanism" in settings or "sasl.mechanisms" in settings:
        # librdkafka checks the mechanism only if the protocol has a login, and then needs a user.
        settings |= {"security.protocol": "sasl_plaintext"} | dict.fromkeys(LOGIN, "-")
    text = said(refused("Producer", settings) or "")
    if UNSUPPORTED in text:
        return text[text.index(UNSUPPORTED):]
    if WHOLE.fullmatch(value) and not is_at_most(value, INT32_MOST) and (
        text or refused("Producer", dict.fromkeys(settings, "?"))       # the setting is a number
    ):
        return f"expected a number up to {INT32_MOST}"  # librdkafka would cut off the high bits
    return "" if text.startswith(TOGETHER) else text


def check_together(kind: str, settings: Mapping[str, Any]) -> None:
    """Raises WrongUsage for librdkafka's settings that contradict each other in a Producer or a
    Consumer. Connects to no broker. Reads no certificate: a missing one is no usage error."""
    chosen = {name: value for name, value in settings.items() if not name.startswith(ELSEWHERE)}
    wrong = refused(kind, {"group.id": "-"} | chosen)
    if wrong and not unknown_name(wrong):       # unknown settings: see `open_client`
        raise WrongUsage(refusal(kind, chosen, wrong))


def is_of_streams(name: str) -> bool:
    """Whether only Kafka Streams has this setting: its own, or a prefixed one for its clients."""
    prefix = next(filter(name.startswith, STREAMS_PREFIXES), "")
    if prefix and is_known(name.removeprefix(prefix)):
        return True
    return [name] in _lines("streams_settings.txt")


def why_unknown(entries: Mapping[str, str]) -> list[str]:
    """The warnings about entries of a file that no client of Kafka knows. First come the
    warnings that say what may be meant, then one warning about all other entries."""
    from ottla.broker.settings.config import shown
    from ottla.broker.settings.declaration import did_you_mean

    said, others = [], []
    for name, value in entries.items():
        hint = did_you_mean(name, [*java_names(), *LOGIN])
        if not hint and not value:
            hint = "; each line has the form name=value"
        if hint:
            said.append(f"{shown(name)} {NO_SETTING}{hint}")
        else:
            others.append(shown(name))
    if len(others) == 1:
        said.append(f"{others[0]} {NO_SETTING}")
    elif others:
        rest = len(others) - NAMED_MOST
        more = f", … ({rest} more)" * (rest > 0)
        said.append(f"{', '.join(others[:NAMED_MOST])}{more} are not settings of Kafka's clients"
                    " and have no effect")
    return said


def unknown_name(wrong: Exception) -> str:
    """The property that librdkafka calls unknown; "" for other errors."""
    text = said(wrong)
    return text.partition('"')[2].rpartition('"')[0] if text.startswith(UNKNOWN) else ""


def refusal(kind: str, settings: Mapping[str, Any], wrong: Exception) -> str:
    """The text of librdkafka's error, after the setting as NAME=VALUE: librdkafka's text may have
    another name for the setting."""
    text = said(wrong).removeprefix(f"{TOGETHER}{kind.lower()}: ")
    for name, value in settings.items():
        if name == "group.id" or not isinstance(value, str) or "passw" in name or "secret" in name:
            continue
        if said(refused(kind, {"group.id": "-", name: value}) or "") == said(wrong):
            return f"{name}={value}: {text}"
    return text


def said(wrong: Exception | str) -> str:
    """The text of a KafkaException, without its number."""
    first: Any = wrong.args[0] if isinstance(wrong, Exception) and wrong.args else wrong
    return str(first.str() if hasattr(first, "str") else first).strip()


def reason_with_code(error: Any) -> str:
    """A KafkaError as `NAME: text`. NAME is the protocol's name if a broker sent the error."""
    code = error.code()
    known = code > 0 and code in ErrorCode._value2member_map_
    name = ErrorCode(code).name if known else error.name()
    text = error.str().rpartition(" response error:")[2].strip().removeprefix("Broker: ")
    return f"{name}: {text}" if text else name


def bootstrap_servers(cluster: ClusterClient) -> str:
    """The addresses to which librdkafka connects first."""
    return ",".join(show_address(address) for address in cluster.bootstrap)


def whole_number(name: str, value: str) -> int:
    """A property that is a number; raises ClientError for another value."""
    try:
        return int(value)
    except ValueError:
        raise ClientError(f"{name}={value}: expected a whole number") from None


def acks_of(text: str) -> int | str:
    """Parses acks: `all`, -1, 0 or 1. Raises WrongUsage."""
    if text in ("all", "-1"):
        return "all"
    if text not in ("0", "1"):
        raise WrongUsage(f"acks={text}: expected 0, 1 or all")
    return int(text)
