"""kafka-features: the lines of Apache Kafka's FeatureCommand."""

from __future__ import annotations

from ottla.client.command_line import INT16_MOST
from ottla.tools.admin import cluster as admin
from ottla.tools.kafka_names.common import connect
from ottla.tools.kafka_names.feature_levels import (
    METADATA_VERSIONS,
    levels_of,
    metadata_level,
    show_dependencies,
    show_mapping,
)
from ottla.tools.kafka_names.grammar import Options, UsageError, java_integer, sub_command
from ottla.tools.kafka_names.java import message_of
from ottla.tools.kafka_names.main import Failed

COMMANDS = (
    "describe",
    "upgrade",
    "downgrade",
    "disable",
    "version-mapping",
    "feature-dependencies",
)


def run(options: Options) -> int:
    """Runs the sub-command that was given."""
    name = sub_command(options, COMMANDS)
    if name == "version-mapping":
        show_mapping(options.one("release-version"))
        return 0
    if name == "feature-dependencies":
        options.needs("feature")
        show_dependencies(options.all("feature"))
        return 0
    if not options.has("bootstrap-server") and not options.has("bootstrap-controller"):
        raise UsageError("one of --bootstrap-server and --bootstrap-controller is needed")
    if name == "describe":
        describe(options)
    else:
        change(options, name)
    return 0


def level_name(name: str, level: int) -> str:
    """A level's name: its release for metadata.version, its number for other features."""
    return METADATA_VERSIONS.get(level, str(level)) if name == "metadata.version" else str(level)


def describe(options: Options) -> None:
    with connect(options) as cluster:
        epoch, found = admin.features(cluster)
    for item in found:
        finalized = level_name(item.name, item.finalized or 0)
        lowest, highest = (level_name(item.name, one) for one in (item.lowest, item.highest))
        print(
            f"Feature: {item.name:<41} SupportedMinVersion: {lowest:<16} "
            f"SupportedMaxVersion: {highest:<16} FinalizedVersionLevel: {finalized:<16} "
            f"Epoch: {epoch if epoch >= 0 else '-'}"
        )


def wanted(options: Options, action: str) -> dict[str, int]:
    """The features to change, and their new levels."""
    if options.has("release-version"):
        if options.has("metadata") or options.has("feature"):
            raise Failed("Can not specify `release-version` with other feature flags.")
        return of_release(metadata_level(options.one("release-version")), action)
    levels: dict[str, int] = {}
    if options.has("metadata"):
        print(" `metadata` flag is deprecated and may be removed in a future release.")
        levels["metadata.version"] = metadata_level(options.one("metadata"))
    for text in options.all("feature"):
        name, level = (text, 0) if action == "disable" else name_and_level(text)
        if action == "upgrade" and level < 1:
            raise Failed(
                "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE when the"
                f" provided maxVersionLevel:{level} is < 1."
            )
        if name in levels:
            raise Failed(f"Feature {name} was specified more than once.")
        levels[name] = level
    if not levels:
        raise Failed(f"You must specify at least one feature to {action}")
    return levels


def of_release(version: int, action: str) -> dict[str, int]:
    """The levels of a release. An upgrade omits features whose level is 0."""
    levels = {"metadata.version": version} | levels_of(version)
    return {name: level for name, level in levels.items() if level > 0 or action != "upgrade"}


def name_and_level(text: str) -> tuple[str, int]:
    """The parts of NAME=LEVEL. Raises Failed for anything else."""
    name, equals, level = text.partition("=")
    if not equals:
        raise Failed(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        return name, java_integer(level, INT16_MOST)
    except ValueError:
        raise Failed(
            f"Can't parse feature=level string {text}: unable to parse {level} as a short."
        ) from None


def change(options: Options, action: str) -> None:
    levels = wanted(options, action)
    kind = (
        admin.UPGRADE
        if action == "upgrade"
        else (admin.UNSAFE_DOWNGRADE if options.has("unsafe") else admin.SAFE_DOWNGRADE)
    )
    dry = options.has("dry-run")
    with connect(options) as cluster:
        results = admin.update_feature(cluster, levels, kind, dry_run=dry)
    failed = 0
    for name, (code, message) in sorted(results.items()):
        to = "" if action == "disable" else f" to {levels[name]}"
        if code:
            failed += 1
            print(
                f"{'Can not' if dry else 'Could not'} {action} {name}{to}. "
                f"{message_of(code, message)}"
            )
        else:
            done = f"{action}d"
            print(f"{name} can be {done}{to}." if dry else f"{name} was {done}{to}.")
    if failed:
        raise Failed(f"{failed} out of {len(results)} operation(s) failed.")
