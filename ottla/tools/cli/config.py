"""`ottla config …`: settings of topics, brokers, loggers, groups and client metrics."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.broker.settings.level_names import kafka_level
from ottla.broker.settings.loggers import LEVELS
from ottla.client.command_line import INT32_MOST, is_number
from ottla.client.errors import ClientError, Refused
from ottla.client.similar_names import similar
from ottla.tools.admin import configs
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.output import done, show
from ottla.tools.cli.units import as_typed, checked
from ottla.tools.properties import once
from ottla.tools.usage import WrongUsage, check_topic_name

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

KINDS = {
    "topic": configs.TOPIC,
    "broker": configs.BROKER,
    "loggers": configs.BROKER_LOGGER,
    "group": configs.GROUP,
    "metrics": configs.CLIENT_METRICS,
}
SCOPES = {
    configs.TOPIC: "topic", configs.BROKER: "broker", configs.GROUP: "group",
    configs.CLIENT_METRICS: "client-metrics",
}
"""The scopes of `kafka_settings`, by the kind of entity."""
DEFAULTS = {"DEFAULT_CONFIG"}
NOT_DYNAMIC = "Cannot update these configs dynamically"
IN_THE_FILE = (
    "change it in the broker's settings file, and restart the broker (Ottla's brokers read the file"
    " again at SIGHUP, too, and log whether a change needs a restart)"
)


def entity_of(text: str) -> tuple[int, str]:
    """Parses the type and name in a text such as `topic/orders`. Raises WrongUsage."""
    kind, slash, name = text.partition("/")
    if not slash or kind not in KINDS or not name:
        known = ", ".join(f"{one}/NAME" for one in KINDS)
        raise WrongUsage(
            f"{text!r}: expected one of {known}; broker/default stands for all brokers"
            f"{similar(kind, KINDS) if kind not in KINDS else ''}"
        )
    if KINDS[kind] == configs.BROKER and name == "default":
        return configs.BROKER, ""
    if kind in ("broker", "loggers") and not is_number(name, INT32_MOST):
        raise WrongUsage(f"{text!r}: expected a broker's number after {kind}/")
    if kind == "topic":
        check_topic_name(name)
    return KINDS[kind], name


def show_settings(options: Namespace, entity: str, *, everything: bool) -> None:
    """Print the settings of one entity."""
    kind, name = entity_of(entity)
    with connect(options) as cluster:
        settings = configs.describe(cluster, kind, name, documentation=options.output == "json")
    if not everything:
        settings = [s for s in settings if configs.SOURCES[s.config_source] not in DEFAULTS]
        if not settings:
            print(f"{entity} has no settings of its own; --all shows the defaults", file=sys.stderr)
    show(
        options,
        ("name", "value", "source"),
        (
            {
                "name": item.name,
                "value": item.value,
                "source": configs.SOURCES[item.config_source],
                "read_only": item.read_only,
                "sensitive": item.is_sensitive,
                **({"documentation": item.documentation} if options.output == "json" else {}),
            }
            for item in settings
        ),
        ("read_only", "sensitive"),
    )


def show_one(options: Namespace) -> None:
    show_settings(options, options.entity, everything=options.all)


def set_values(options: Namespace) -> None:
    kind, name = entity_of(options.entity)
    typed = once(options.setting, "setting")
    values = checked(SCOPES[kind], typed) if kind in SCOPES else dict(typed)
    if kind == configs.BROKER_LOGGER:
        values = {logger: level_of(level) for logger, level in values.items()}
    if kind == configs.BROKER:
        check_spelling(values)
    with connect(options) as cluster, as_typed(typed), advised():
        note = configs.alter(cluster, kind, name, values, dry_run=options.dry_run)
    shown = ", ".join(f"{key}={value}" for key, value in values.items())
    done(options, f"set {shown} of {options.entity}")
    if note:
        print(note, file=sys.stderr)


@contextmanager
def advised() -> Iterator[None]:
    """If the broker refuses to change a setting at run time, adds what to do to the error's text.
    """
    try:
        yield
    except Refused as refused:
        if NOT_DYNAMIC in str(refused):
            refused.args = (f"{refused}; {IN_THE_FILE}", *refused.args[1:])
        raise


def level_of(word: str) -> str:
    """Parses a log level. Raises WrongUsage."""
    level = kafka_level(word)
    if level not in LEVELS:
        raise WrongUsage(f"{word!r} is not a log level{similar(word, LEVELS)};"
                         f" known levels: {', '.join(LEVELS)}")
    return level


def check_spelling(names: Iterable[str]) -> None:
    """Raises ClientError for an unknown setting of a broker that resembles a known one. Brokers
    accept any name, as Apache Kafka does, since it may be a setting of a plug-in."""
    from ottla.broker.settings.config import why_unknown

    if wrong := [why for why in why_unknown(names) if "; did you mean " in why]:
        raise ClientError(
            f"{'; '.join(wrong)} (for settings of plug-ins, kafka-configs accepts any name)")


def names_of(cluster: ClusterClient, kind: int, name: str) -> set[str]:
    """The names of an entity's settings. For `broker/default`, which stands for all brokers, the
    cluster lists only settings that have been set for all brokers. In this case, the names of one
    broker's settings are added."""
    names = {name} if name else {name, str(min(cluster.live()))}
    return {
        item.name for each in names
        for item in configs.describe(cluster, kind, each, synonyms=False)
    }


def reset(options: Namespace) -> None:
    kind, name = entity_of(options.entity)
    with connect(options) as cluster:
        if kind != configs.BROKER_LOGGER:       # a broker rejects unknown loggers itself
            known = names_of(cluster, kind, name)
            for strange in [one for one in options.setting if one not in known]:
                hint = similar(strange, known)
                if hint or kind == configs.TOPIC:   # other kinds may have settings of plug-ins
                    raise ClientError(f"{options.entity} has no setting {strange!r}{hint}")
        with advised():
            configs.alter(cluster, kind, name, {}, options.setting, dry_run=options.dry_run)
    done(options, f"reset {', '.join(options.setting)} of {options.entity}")
