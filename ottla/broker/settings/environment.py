"""Properties from `KAFKA_…` environment variables, as the container images of Apache, Confluent and
Bitnami map them.

The part after the prefix is lower-cased; `_` is a dot, `__` an underscore, `___` a dash:
`KAFKA_LOG_DIRS` is log.dirs. Bitnami's `KAFKA_CFG_LOG_DIRS` is the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.settings.level_names import LEVELS, level_of

PREFIXES = ("KAFKA_CFG_", "KAFKA_")
NO_PROPERTIES = frozenset({
    "KAFKA_VERSION", "KAFKA_HOME", "KAFKA_CLUSTER_ID", "KAFKA_ENABLE_KRAFT", "KAFKA_DEBUG",
    "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CLIENT_USERS", "KAFKA_CLIENT_PASSWORDS", "KAFKA_OPTS",
})
"""Variables of the container images and of Kafka's scripts that are not properties."""
NO_PROPERTY_PARTS = ("HEAP_OPTS", "LOG4J", "JMX_", "JVM_PERFORMANCE", "GC_LOG_OPTS")


def from_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The value of each property with its variable, in the order of the variables' names."""
    values: dict[str, tuple[str, str]] = {}
    for variable, value in sorted(environment.items()):
        prefix = next((p for p in PREFIXES if variable.startswith(p)), None)
        if prefix is None or variable in NO_PROPERTIES or variable == prefix:
            continue
        if any(part in variable for part in NO_PROPERTY_PARTS):
            continue
        values[property_name(variable.removeprefix(prefix))] = value, variable
    return values


def property_name(rest: str) -> str:
    """Turn `LOG_DIRS` into log.dirs; three underscores are a dash, two are an underscore."""
    dashes = rest.lower().split("___")
    return "-".join("_".join(p.replace("_", ".") for p in d.split("__")) for d in dashes)


def log_level(environment: Mapping[str, str]) -> str | None:
    """The log level in the container images' variable, by Python's name; None if the variable has
    no valid level."""
    asked = environment.get("KAFKA_LOG4J_ROOT_LOGLEVEL", "")
    level = level_of(asked)
    return level if level in LEVELS else None
