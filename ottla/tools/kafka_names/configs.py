"""kafka-configs: the lines of Apache Kafka's ConfigCommand."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from ottla.client.command_line import INT32_MOST, is_number
from ottla.tools.admin import configs, groups, topics
from ottla.tools.json_form import java_double
from ottla.tools.kafka_names.common import connect
from ottla.tools.kafka_names.grammar import Options, UsageError, java_integer
from ottla.tools.kafka_names.main import Failed
from ottla.tools.properties import read_properties
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

SHORT = {
    "topic": "topics",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "client": "clients",
    "user": "users",
    "ip": "ips",
    "group": "groups",
    "client-metrics": "client-metrics",
}
DEFAULTS = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}
TYPES = (
    "topics",
    "clients",
    "users",
    "brokers",
    "ips",
    "client-metrics",
    "groups",
    "broker-loggers",
)
QUOTA_KINDS = {"users": "user", "clients": "client-id", "ips": "ip"}
QUOTAS = {
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
}
SHOWN = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
DYNAMIC = {"topics": 1, "brokers": 2, "broker-loggers": 6, "client-metrics": 7, "groups": 8}
DEFAULT_BROKER = 3
Entity = tuple[str, str | None]
"""Type and name. The name None means all entities of the type, "" means their default."""


def run(options: Options) -> int:
    """Check the flags as ConfigCommand does, then alter or describe."""
    given = [name for name in options.command.actions if options.has(name)]
    if len(given) != 1:
        raise UsageError("Command must include exactly one action: --describe, --alter")
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise UsageError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    entities = entities_of(options)
    check(options, entities)
    with connect(options) as cluster:
        if options.has("alter"):
            alter(options, cluster, entities)
        elif entities[0][0] in QUOTA_KINDS:
            describe_quotas(cluster, entities)
        else:
            describe(options, cluster, entities[0])
    return 0


def entities_of(options: Options) -> list[Entity]:
    """The entities that the flags name, users first."""
    entities: list[Entity] = [
        (SHORT[name], options.one(name)) for name in SHORT if options.has(name)
    ]
    entities += [(kind, "") for name, kind in DEFAULTS.items() if options.has(name)]
    names = iter(named(options.arguments))
    for kind in options.all("entity-type"):
        if kind not in TYPES:
            raise UsageError(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(TYPES)} "
                "with a --bootstrap-server or --bootstrap-controller argument"
            )
        entities.append((kind, next(names, None)))
    if not entities:
        raise UsageError("At least one entity type must be specified")
    return sorted(entities, key=lambda entity: entity[0] != "users")


def named(arguments: list[str]) -> list[str]:
    """The values of --entity-name, and "" for each --entity-default, in the given order."""
    names = []
    for place, word in enumerate(arguments):
        if word == "--entity-default":
            names.append("")
        elif word == "--entity-name":
            names.append(arguments[place + 1])
        elif word.startswith("--entity-name="):
            names.append(word.partition("=")[2])
    return names


def check(options: Options, entities: list[Entity]) -> None:
    """Raises the errors that Kafka's ConfigCommand raises before it connects."""
    kinds = [kind for kind, _ in entities]
    if len(kinds) > 1 and set(kinds) != {"users", "clients"}:
        raise UsageError("Only 'users' and 'clients' entity types may be specified together")
    for kind, name in entities:
        if kind in ("brokers", "broker-loggers") and name and not is_number(name, INT32_MOST):
            raise UsageError(
                f"The entity name for {kind} must be a valid integer broker id, but it is: {name}"
            )
        if name == "" and kind not in ("brokers", *QUOTA_KINDS):
            action = "describe" if options.has("describe") else "alter"
            raise UsageError(f"--entity-default must not be specified with --{action} of {kind}")
    if options.has("alter"):
        if not any(options.has(x) for x in ("add-config", "add-config-file", "delete-config")):
            raise UsageError(
                "At least one of --add-config, --add-config-file, or --delete-config "
                "must be specified with --alter"
            )
        if any(name is None for _, name in entities):
            raise UsageError("An entity name must be specified with --alter of " + ", ".join(kinds))


def added(options: Options) -> dict[str, str]:
    """The settings of --add-config and --add-config-file."""
    settings: dict[str, str] = {}
    if options.has("add-config-file"):
        settings.update(read_properties(options.one("add-config-file")))
    for text in options.all("add-config"):
        for part in re.split(r",(?=[^\]]*(?:\[|$))", text):
            key, equals, value = part.partition("=")
            if not equals:
                raise UsageError(
                    "requirement failed: Invalid entity config: all configs to be added must be in "
                    'the format "key=val" or  "key=[val1,val2]" to group values which contain '
                    "commas."
                )
            settings[key.strip()] = value.strip().removeprefix("[").removesuffix("]")
    return settings


def removed(options: Options) -> list[str]:
    """The names of --delete-config."""
    return [name.strip() for text in options.all("delete-config") for name in text.split(",")]


def alter(options: Options, cluster: ClusterClient, entities: list[Entity]) -> None:
    kind, name = entities[0]
    set_to, reset = added(options), removed(options)
    if kind in QUOTA_KINDS:
        alter_quotas(cluster, entities, set_to, reset)
    else:
        if kind == "broker-loggers":
            known = {
                item.name for item in configs.describe(cluster, configs.BROKER_LOGGER, name or "")
            }
            unknown = [one for one in [*set_to, *reset] if one not in known]
            if unknown:
                raise Failed(
                    f"Invalid broker logger(s): {','.join(unknown)}",
                    mistyped=unknown[0], known=known)
        note = configs.alter(cluster, configs.KINDS[kind], name or "", set_to, reset)
        if note:
            print(note, file=sys.stderr)
    one = kind.removesuffix("s")
    if name:
        print(f"Completed updating config for {one} {name}.")
    else:
        print(f"Completed updating default config for {kind} in the cluster.")


def alter_quotas(
    cluster: ClusterClient, entities: list[Entity], set_to: dict[str, str], reset: list[str]
) -> None:
    kinds = [kind for kind, _ in entities]
    scram = [name for name in [*set_to, *reset] if name in configs.MECHANISMS]
    if scram and kinds == ["users"] and entities[0][1]:
        if len(scram) < len([*set_to, *reset]):
            raise Failed("Only one of quota configs and SCRAM credentials can be altered at a time")
        alter_scram(cluster, entities[0][1], set_to, reset)
        return
    allowed = {"connection_creation_rate"} if kinds == ["ips"] else QUOTAS
    unexpected = [name for name in set_to if name not in allowed]
    if unexpected:
        what = "connection quota" if kinds == ["ips"] else "quota"
        raise Failed(
            f"Only {what} configs can be added for '{kinds[0]}' using --bootstrap-server. "
            f"Unexpected config names: Set({', '.join(unexpected)})",
            mistyped=unexpected[0], known=allowed,
        )
    entity = {QUOTA_KINDS[kind]: name or None for kind, name in entities}
    current = {}
    for found, values in configs.quotas(cluster, components(entities), strict=True):
        if found == entity:
            current = values
    if missing := [name for name in reset if name not in current]:
        raise Failed(
            f"Invalid config(s): {','.join(missing)}", mistyped=missing[0], known=current)
    numbers = {}
    for key, value in set_to.items():
        try:
            numbers[key] = float(value)
        except ValueError:
            raise Failed(f"Cannot parse quota configuration value for {key}: {value}") from None
    configs.alter_quotas(cluster, entity, numbers, reset)


def alter_scram(
    cluster: ClusterClient, user: str, set_to: dict[str, str], reset: list[str]
) -> None:
    for mechanism, given in set_to.items():
        parts = dict(part.partition("=")[::2] for part in given.split(","))
        if "password" not in parts:
            raise Failed(f"SCRAM credentials need a password: {mechanism}=[password=…]")
        text = parts.get("iterations", "-1")
        try:
            iterations = java_integer(text, INT32_MOST)
        except ValueError:
            raise Failed(f"{mechanism}: iterations={text}: expected a number") from None
        configs.set_scram(
            cluster,
            user,
            mechanism,
            parts["password"],
            configs.SCRAM_ITERATIONS if iterations < 0 else iterations,
        )
    for mechanism in reset:
        configs.delete_scram(cluster, user, mechanism)


def components(entities: list[Entity]) -> list[tuple[str, int, str | None]]:
    """The components of a DescribeClientQuotas request for these entities."""
    return [
        (QUOTA_KINDS[kind], configs.ANY, None)
        if name is None
        else (QUOTA_KINDS[kind], configs.EXACT if name else configs.DEFAULT, name or None)
        for kind, name in entities
    ]


def describe_quotas(cluster: ClusterClient, entities: list[Entity]) -> None:
    quotas = configs.quotas(cluster, components(entities), strict=True)
    for entity, values in sorted(
        quotas, key=lambda pair: sorted((kind, name or "") for kind, name in pair[0].items())
    ):
        who = ", ".join(
            f"{SHOWN[kind]} '{name}'" if name is not None else f"the default {SHOWN[kind]}"
            for kind, name in sorted(entity.items(), key=lambda part: part[0] != "user")
        )
        settings = ", ".join(f"{key}={java_double(value)}" for key, value in sorted(values.items()))
        print(f"Quota configs for {who} are {settings}")
    if [kind for kind, _ in entities] == ["users"] and entities[0][1] != "":
        describe_scram(cluster, entities[0][1])


def describe_scram(cluster: ClusterClient, user: str | None) -> None:
    numbers = {number: name for name, (number, _) in configs.MECHANISMS.items()}
    for result in configs.scram_users(cluster, [user] if user else None):
        if result.error_code == ErrorCode.NONE:
            shown = ", ".join(
                f"{numbers.get(one.mechanism, 'UNKNOWN')}=iterations={one.iterations}"
                for one in result.credential_infos
            )
            print(f"SCRAM credential configs for user-principal '{result.user}' are {shown}")


def describe(options: Options, cluster: ClusterClient, entity: Entity) -> None:
    kind, name = entity
    one = kind.removesuffix("s")
    if name is None:
        names = everything(cluster, kind)
    elif name == "" or exists(cluster, kind, name):
        names = [name]
    else:
        what = {"client-metric": "client-metric", "broker-logger": "broker"}.get(one, one)
        raise Failed(
            f"{what} '{name}' not found", status=0, mistyped=name, known=everything(cluster, kind),
            shown=f"The {what} '{name}' doesn't exist and doesn't have dynamic config.")
    for each in names:
        if each == "":
            print(f"Default configs for {kind} in the cluster are:")
        elif options.has("all"):
            print(f"All configs for {one} {each} are:")
        else:
            print(f"Dynamic configs for {one} {each} are:")
        for item in configs.describe(cluster, configs.KINDS[kind], each):
            wanted = DEFAULT_BROKER if each == "" else DYNAMIC[kind]
            if options.has("all") or item.config_source == wanted:
                print(config_line(item))


def everything(cluster: ClusterClient, kind: str) -> list[str]:
    """All entities of a type. For brokers, the last one is "", the default of all brokers."""
    if kind == "topics":
        return topics.names(cluster)
    if kind in ("brokers", "broker-loggers"):
        return [*map(str, cluster.live()), *([""] if kind == "brokers" else [])]
    names = set(configs.resources(cluster, configs.KINDS[kind]))
    if kind == "groups":
        names |= {group.id for group in groups.list_groups(cluster)}
    return sorted(names)


def exists(cluster: ClusterClient, kind: str, name: str) -> bool:
    """Whether an entity of this name exists, or has settings."""
    return name in everything(cluster, kind)


def config_line(item: Any) -> str:
    """One setting with its synonyms."""
    synonyms = ", ".join(
        f"{configs.SOURCES[one.source]}:{one.name}={shown(one.value)}" for one in item.synonyms
    )
    sensitive = "true" if item.is_sensitive else "false"
    return f"  {item.name}={shown(item.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def shown(value: str | None) -> str:
    """A value as Java prints it."""
    return "null" if value is None else value
