"""Kafka's rules that compare the broker's group settings with each other, checked at start."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.settings.broker import BrokerSettings
from ottla.broker.settings.declaration import SettingsError

KAFKAS_ASSIGNORS = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
ASSIGNORS = ("uniform", "range")
"""The names in `groups.assignors`, repeated here so that a start does not import that module."""
NOT_SERVED = ("share", "streams")


def check_group_settings(settings: BrokerSettings) -> list[str]:
    """Warnings about settings that are unwise. Raises SettingsError for forbidden ones."""
    for name in ("session.timeout.ms", "heartbeat.interval.ms"):
        _check_limits(settings, name)
    session, interval = "group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms"
    if settings.value(interval) >= settings.value(session):
        raise SettingsError(interval, f"must be less than {session}={settings.value(session)}")
    return _check_protocols(settings)


def _check_limits(settings: BrokerSettings, name: str) -> None:
    usual, least, most = (f"group.consumer.{word}{name}" for word in ("", "min.", "max."))
    if settings.value(most) < settings.value(least):
        raise SettingsError(most, f"must be at least {least}={settings.value(least)}")
    if settings.value(usual) < settings.value(least):
        raise SettingsError(usual, f"must be at least {least}={settings.value(least)}")
    if settings.value(usual) > settings.value(most):
        raise SettingsError(usual, f"must be at most {most}={settings.value(most)}")


def known_assignors(names: Sequence[str]) -> tuple[str, ...]:
    """Resolve names of assignors; Kafka's own class names are accepted, too.

    Raises SettingsError.
    """
    assignors = tuple(KAFKAS_ASSIGNORS.get(name, name) for name in names)
    unknown = [name for name in assignors if name not in ASSIGNORS]
    if unknown or not assignors or len(set(assignors)) < len(assignors):
        problem = (
            f"{unknown[0]!r} is unknown" if unknown
            else "must name at least one assignor, and each only once"
        )
        raise SettingsError(
            "group.consumer.assignors",
            f"{problem}; the known assignors are {', '.join(ASSIGNORS)}",
        )
    return assignors


def _check_protocols(settings: BrokerSettings) -> list[str]:
    name = "group.coordinator.rebalance.protocols"
    protocols = settings.group_coordinator_rebalance_protocols
    if "classic" not in protocols:
        raise SettingsError(
            name, "must contain `classic`: the classic protocol cannot be switched off"
        )
    if protocols == settings.declared[name].default:
        return []
    absent = [protocol for protocol in protocols if protocol in NOT_SERVED]
    if not absent:
        return []
    return [f"{name}: groups with the protocols {', '.join(absent)} are not served"]
