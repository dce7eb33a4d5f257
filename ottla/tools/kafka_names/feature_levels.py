"""The feature levels of each release, which the tools show without a connection to a broker.

The tables are those of Apache Kafka 4.4: the release of each `metadata.version`, and each feature's
default levels.
"""

from __future__ import annotations

from ottla.client.command_line import is_number
from ottla.tools.kafka_names.main import Failed

METADATA_VERSIONS = {
    7: "3.3-IV3",
    8: "3.4-IV0",
    9: "3.5-IV0",
    10: "3.5-IV1",
    11: "3.5-IV2",
    12: "3.6-IV0",
    13: "3.6-IV1",
    14: "3.6-IV2",
    15: "3.7-IV0",
    16: "3.7-IV1",
    17: "3.7-IV2",
    18: "3.7-IV3",
    19: "3.7-IV4",
    20: "3.8-IV0",
    21: "3.9-IV0",
    22: "4.0-IV0",
    23: "4.0-IV1",
    24: "4.0-IV2",
    25: "4.0-IV3",
    26: "4.1-IV0",
    27: "4.1-IV1",
    28: "4.2-IV0",
    29: "4.2-IV1",
    30: "4.3-IV0",
    31: "4.4-IV0",
    32: "4.4-IV1",
    33: "4.4-IV2",
    34: "4.5-IV0",
}
LATEST = 33
# Pairs (M, L): from metadata.version M on, level L is the feature's default.
DEFAULTS = {
    "kraft.version": ((21, 1),),
    "transaction.version": ((24, 2),),
    "group.version": ((22, 1),),
    "eligible.leader.replicas.version": ((26, 1),),
    "share.version": ((29, 1), (31, 2)),
    "streams.version": ((29, 1),),
}
HIGHEST = {
    "kraft.version": 1,
    "transaction.version": 2,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "share.version": 2,
    "streams.version": 1,
    "metadata.version": LATEST,
}


def metadata_level(text: str) -> int:
    """The level for `4.1`, `4.1-IV0` or a number. Raises Failed for anything else."""
    if is_number(text) and int(text) in METADATA_VERSIONS:
        return int(text)
    fits = [
        level
        for level, name in METADATA_VERSIONS.items()
        if name == text or name.startswith(f"{text}-")
    ]
    if not fits:
        raise Failed(
            f"Unknown metadata.version '{text}'. Supported metadata.version are: "
            + ", ".join(METADATA_VERSIONS.values())
        )
    return max(fits)


def levels_of(level: int) -> dict[str, int]:
    """The default level of each feature for this level of metadata.version."""
    return {
        name: max([0, *(value for since, value in steps if level >= since)])
        for name, steps in DEFAULTS.items()
    }


def show_mapping(text: str) -> None:
    """Prints the feature levels of a release; an empty text means the latest release."""
    level = metadata_level(text) if text else LATEST
    print(f"metadata.version={level} ({text or METADATA_VERSIONS[level]})")
    for name, value in levels_of(level).items():
        print(f"{name}={value}")


def show_dependencies(given: list[str]) -> None:
    """Prints the features that these levels depend on. Up to Kafka 4.4, no level has
    dependencies."""
    for text in given:
        name, equals, level = text.partition("=")
        if not equals:
            raise Failed(f"Can't parse feature=level string {text}: equals sign not found.")
        if name not in HIGHEST:
            raise Failed(f"Unknown feature: {name}")
        if not is_number(level, HIGHEST[name]):
            raise Failed(f"Feature version {level} is not defined for {name}")
        shown = f" ({METADATA_VERSIONS[int(level)]})" if name == "metadata.version" else ""
        print(f"{name}={level}{shown} has no dependencies.")
