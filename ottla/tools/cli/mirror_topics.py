"""The topics that `ottla mirror` writes.

Records keep their timestamps. If the target kept records for a shorter time than the source, it
would delete old records as soon as they are copied. So a new copy is kept as long as its source,
and the mirror warns of an existing topic that is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.client.addresses import show_address
from ottla.client.copied_settings import NOT_COPIED
from ottla.client.errors import Refused
from ottla.tools.admin import configs, topics

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

POLICY, LIMITS = "cleanup.policy", ("retention.ms", "retention.bytes")
KEEPING = (POLICY, *LIMITS)
"""The settings that decide which records are deleted. A copy gets them even if the source has them
from its brokers: the target's brokers may have other defaults."""


def make(
    source: ClusterClient, target: ClusterClient, name: str, copy: str, count: int
) -> list[str]:
    """Creates the topic `copy` in the target, or gives it the partitions that it lacks. Returns
    warnings about records of an existing topic that the target may delete."""
    [found] = topics.describe(target, [copy])
    if found.error:
        settings = settings_of(source, target, name, copy, count)
        topics.create(target, copy, partitions=count, configs=settings)
        return []
    if len(found.partitions) < count:
        topics.grow(target, copy, count)
    return [*kept_shorter(source, target, name, copy)]


def settings_of(
    source: ClusterClient, target: ClusterClient, name: str, copy: str, count: int
) -> dict[str, str]:
    """The settings of a new copy: the source topic's own, and those of KEEPING in which the target
    would differ from the source."""
    described = [
        one for one in configs.describe(source, configs.TOPIC, name)
        if one.value is not None and one.name not in NOT_COPIED
    ]
    own = {one.name: str(one.value) for one in described if one.config_source == 1}
    planned = topics.create(target, copy, partitions=count, configs=own, dry_run=True)
    there = {one.name: one.value for one in planned.configs or ()}
    return own | {
        one.name: str(one.value) for one in described
        if one.name in KEEPING and there.get(one.name) != one.value
    }


def kept_shorter(
    source: ClusterClient, target: ClusterClient, name: str, copy: str
) -> Iterator[str]:
    """A line for each setting by which the target may delete records that the source keeps. None if
    the settings are hidden from the user."""
    try:
        here, there = _keeping(source, name), _keeping(target, copy)
    except Refused:
        return
    wanted: dict[str, Any] = {}
    if "compact" in there[POLICY] and "compact" not in here[POLICY]:
        wanted[POLICY] = here[POLICY]
    for limit in LIMITS if "delete" in wanted.get(POLICY, there[POLICY]) else ():
        most, least = int(there[limit]), int(here[limit]) if "delete" in here[POLICY] else -1
        if most >= 0 and not 0 <= least <= most:
            wanted[limit] = least
    address = ",".join(map(show_address, target.bootstrap))
    for setting, value in wanted.items():
        yield (
            f"the target may delete records of {copy} that the source keeps: there, {setting} is"
            f" {there[setting]}. To keep them, run: ottla config set topic/{copy}"
            f" {setting}={value} -b {address}"
        )


def _keeping(cluster: ClusterClient, topic: str) -> Mapping[str, str]:
    found = configs.describe_many(cluster, configs.TOPIC, [topic], keys=[*KEEPING])
    return {one.name: one.value for one in found[topic]}
