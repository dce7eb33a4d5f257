"""Kafka's own table of settings: all public settings of 4.4.0, and the settings of 3.9.2 that 4.x
removed.

compat_tests/settings/KafkaSettings.java made `kafka_settings.tsv` from Kafka's ConfigDefs. The
table is read only when it is needed: for properties that Ottla does not declare, for
DescribeConfigs, for changes of settings, and for the documentation.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ottla.broker.settings.declaration import Setting

TABLE = Path(__file__).with_name("kafka_settings.tsv")
RANGE = re.compile(r"\[(-?\d+),\.\.\.(?:,(-?\d+))?\](?: or (-?\d+))?")
CHOICE = re.compile(r"(\(case insensitive\) )?\[([\w, ]+)\]")

OUTSIDE_THE_TABLE = (
    "standard.authorizer.default.acl",
)
"""Properties that only Kafka's plugins read."""


class KafkaSetting(NamedTuple):
    """A setting of Kafka. `update` is read-only, per-broker or cluster-wide."""

    setting: Setting
    importance: str
    update: str
    required: bool


@cache
def kafka_settings(scope: str) -> dict[str, KafkaSetting]:
    """The table of a scope (broker, topic, group, client-metrics, removed) by name."""
    rows = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines()[1:]]
    return {
        name: KafkaSetting(_setting(name, kind, default, valid, synonyms), importance, update,
                           default == "required")
        for row_scope, name, kind, default, importance, valid, update, synonyms in rows
        if row_scope == scope
    }


def _setting(name: str, kind: str, default: str, valid: str, synonyms: str) -> Setting:
    limits: dict[str, Any] = {}
    if match := RANGE.fullmatch(valid):
        low, high, also = match.groups()
        limits["at_least"] = int(low)
        limits["at_most"] = int(high) if high else None
        limits["also"] = (int(also),) if also else ()
    elif match := CHOICE.fullmatch(valid):
        limits["any_case"] = bool(match.group(1))
        limits["one_of"] = tuple(match.group(2).split(", "))
    made = Setting(name, None, kind, synonyms=tuple(filter(None, synonyms.split(","))), **limits)
    if default.startswith("="):
        made.default = made.parse(default[1:])
        made.nullable = False
    return made
