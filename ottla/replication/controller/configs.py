"""The controller's decisions about settings of topics, brokers, groups and client metrics.

The caller passes the rules for each type of resource as ConfigRules: this module itself knows no
setting but min.insync.replicas.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice

from ottla.replication.controller.brokers import PARTITIONS_AT_A_TIME, by_topic
from ottla.replication.controller.elections import MIN_ISR, without_eligible
from ottla.replication.metadata import (
    ConfigSet,
    Decision,
    MetadataImage,
    MetadataRecord,
    PartitionsChanged,
)
from ottla.replication.steps import Steps, Stepwise
from ottla.replication.topic_names import require_legal_name
from ottla.wire.errors import (
    InvalidConfig,
    InvalidRequest,
    ProtocolError,
    UnknownTopicOrPartition,
)

VALUE_BYTES_MAX = 32_767


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to a setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """One change of one setting. `operation` is as the client sent it."""

    name: str
    operation: int
    value: str | None


@dataclass(frozen=True, slots=True)
class Alteration:
    """Changes of one resource; `replace` drops every setting that is not in `changes`."""

    resource_type: str
    resource_name: str
    changes: Sequence[ConfigChange]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class ConfigRules:
    """The rules for the settings of one type of resource.

    `default` returns the default of a setting of type list, and None for other settings. `check`
    gets the resource's name, all settings that the resource would have, and the names of the
    settings that change; it raises a ProtocolError if the settings are not allowed.
    """

    default: Callable[[str], str | None]
    check: Callable[[str, Mapping[str, str], frozenset[str]], None]


@Stepwise
def alter_configs(
    image: MetadataImage,
    alterations: Sequence[Alteration],
    rules: Mapping[str, ConfigRules],
    validate_only: bool = False,
) -> Steps[Decision[list[ProtocolError | None]]]:
    """Change settings; the result has an error or None for each of `alterations`.

    A resource changes as a whole or not at all.
    """
    times = Counter((each.resource_type, each.resource_name) for each in alterations)
    records: list[MetadataRecord] = []
    errors: list[ProtocolError | None] = []
    for each in alterations:
        yield
        try:
            if times[each.resource_type, each.resource_name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            changed = _alter(image, each, rules[each.resource_type])
            records += [*changed, *_without_eligible(image, each, changed)]
            errors.append(None)
        except ProtocolError as error:
            errors.append(error.kept())
    return Decision([] if validate_only else records, errors)


def _alter(
    image: MetadataImage, alteration: Alteration, rules: ConfigRules
) -> list[MetadataRecord]:
    kind, name = alteration.resource_type, alteration.resource_name
    if len({change.name for change in alteration.changes}) < len(alteration.changes):
        raise InvalidRequest("Error due to duplicate config keys")
    for change in alteration.changes:
        if change.value is None and change.operation != Operation.DELETE:
            raise InvalidRequest(f"Null value not supported for : {change.name}")
    before = image.config_of(kind, name)
    after = {} if alteration.replace else dict(before)
    for change in alteration.changes:
        _apply(after, change, rules)
    _require_resource(image, kind, name)
    check_sizes({each.name: after[each.name] for each in alteration.changes if each.name in after})
    if kind == "broker" and image.controller_epoch:
        _require_one_min_isr(name, before, after)
    changed = frozenset(change.name for change in alteration.changes)
    rules.check(name, after, changed)
    # A broker setting is recorded even if it is set to its present value. If the value names a
    # file, such as a renewed certificate, the broker then reads the file again (KAFKA-14136).
    again = changed - {MIN_ISR} if kind == "broker" else frozenset()
    return [
        *(ConfigSet(kind, name, key, None) for key in before if key not in after),
        *(ConfigSet(kind, name, k, value) for k, value in after.items()
          if before.get(k) != value or k in again),
    ]


def check_sizes(configs: Mapping[str, str]) -> None:
    """Refuses a value that a reply could not contain: before the flexible versions, the length of a
    string has 16 bits."""
    for name, value in configs.items():
        if len(value.encode()) > VALUE_BYTES_MAX:
            raise InvalidConfig(f"{name}: the value has {len(value.encode()):,} bytes; the most is"
                                f" {VALUE_BYTES_MAX:,}")


def _require_one_min_isr(
    name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    """Require one cluster-wide min.insync.replicas, which the controller and all leaders know:
    eligible leaders depend on it (KIP-966)."""
    if name and before.get(MIN_ISR) != after.get(MIN_ISR):
        raise InvalidConfig(f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
    if not name and MIN_ISR in before and MIN_ISR not in after:
        raise InvalidConfig(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")


def _without_eligible(
    image: MetadataImage, alteration: Alteration, changed: Sequence[MetadataRecord]
) -> Iterator[PartitionsChanged]:
    """When min.insync.replicas changes, replicas outside in-sync sets are no longer eligible
    leaders: with a lower value the high watermark may move without them."""
    if not any(isinstance(each, ConfigSet) and each.name == MIN_ISR for each in changed):
        return
    of_all = alteration.resource_type == "broker"
    for name in image.topics if of_all else (alteration.resource_name,):
        rows = [
            (index, after) for index, state in enumerate(image.topics[name].partitions)
            if (after := without_eligible(state)) is not state
        ]
        if rows:
            yield PartitionsChanged(name, tuple(rows))


def forget_eligible(
    image: MetadataImage, alteration: Alteration, rules: Mapping[str, ConfigRules]
) -> Decision[bool]:
    """Before min.insync.replicas is altered, remove some of the eligible leaders that the
    alteration would remove. In a large cluster, the changes of all partitions do not fit into one
    entry of the log. Returns whether there are more to remove. The removal is safe even if the
    alteration does not follow: it only makes fewer replicas eligible as leaders."""
    try:
        changed = _alter(image, alteration, rules[alteration.resource_type])
    except ProtocolError:
        return Decision((), False)
    changes = list(islice(
        (
            (record.topic, *row)
            for record in _without_eligible(image, alteration, changed) for row in record.rows
        ),
        PARTITIONS_AT_A_TIME + 1,
    ))
    more = len(changes) > PARTITIONS_AT_A_TIME
    return Decision(list(by_topic(changes[:PARTITIONS_AT_A_TIME])), more)


def adopt_min_isr(image: MetadataImage, value: int) -> Decision[None]:
    """Make the first controller's min.insync.replicas the cluster-wide value (KIP-966), unless the
    cluster has such a value."""
    if MIN_ISR in image.config_of("broker", ""):
        return Decision((), None)
    return Decision([ConfigSet("broker", "", MIN_ISR, str(value))], None)


def _require_resource(image: MetadataImage, kind: str, name: str) -> None:
    if kind == "topic":
        if not name:
            raise InvalidRequest("Default topic resources are not allowed.")
        require_legal_name(name)
        if name not in image.topics:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
    elif kind == "group" and not name:
        raise InvalidRequest("Default group resources are not allowed.")
    elif kind == "client-metrics" and not name:
        raise InvalidRequest("Subscription name can't be empty")


def _apply(settings: dict[str, str], change: ConfigChange, rules: ConfigRules) -> None:
    name, value = change.name, change.value or ""
    if change.operation == Operation.SET:
        settings[name] = value
    elif change.operation == Operation.DELETE:
        settings.pop(name, None)
    elif change.operation in (Operation.APPEND, Operation.SUBTRACT):
        default = rules.default(name)
        if default is None:
            verb = Operation(change.operation).name
            raise InvalidConfig(f"Can't {verb} to key {name} because its type is not LIST.")
        items = _items(settings.get(name, default))
        given = _items(value)
        if change.operation == Operation.APPEND:
            if default and not given and settings.get(name) != "":
                raise InvalidConfig(f"{name}: an empty value cannot be appended")
            present = set(items)
            items += [item for item in given if item not in present]
        else:
            removed = set(given)
            items = [item for item in items if item not in removed]
        settings[name] = ",".join(items)
    else:
        raise InvalidRequest(f"Unknown operation {change.operation} on {name}, expected 0 to 3")


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
