"""Times and sizes with units on command lines, in flags and in settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ottla.client.errors import Refused
from ottla.tools.usage import WrongUsage
from ottla.wire import units

TYPES = {"boolean", "short", "int", "long", "double"}
"""Values of settings with these types are checked here. Some of them, such as a number that is not
written in digits, are wrong whatever the broker's version is."""


def duration_ms(text: str, plain: str = "ms") -> float:
    """Parses a time to milliseconds. A number without a unit has the unit `plain`. Raises
    WrongUsage."""
    with _wrong_usage():
        return units.duration_ms(text, plain)


def size_bytes(text: str) -> int:
    """Parses a size to bytes. Raises WrongUsage."""
    with _wrong_usage():
        return units.size_bytes(text)


def number_of(name: str, value: str) -> str:
    """The value of one setting as the number that brokers expect. Raises WrongUsage."""
    with _wrong_usage():
        return units.number_of(name, value)


@contextmanager
def _wrong_usage() -> Iterator[None]:
    try:
        yield
    except units.InvalidUnit as wrong:
        raise WrongUsage(str(wrong)) from None


def without_units(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with the numbers that brokers expect: retention.ms=7d becomes 604800000."""
    return {name: number_of(name, value) for name, value in settings.items()}


def checked(scope: str, typed: Mapping[str, str]) -> dict[str, str]:
    """Settings of topics, brokers, groups or client metrics. Values with units are replaced by the
    numbers that brokers expect. Raises WrongUsage for a value that is not of its setting's type.
    The smallest and largest allowed numbers are checked by the broker, since they depend on its
    version."""
    from ottla.broker.settings.broker import BrokerSettings
    from ottla.broker.settings.declaration import Setting, SettingsError
    from ottla.broker.settings.kafka_settings import kafka_settings

    known = {name: each.setting for name, each in kafka_settings(scope).items()}
    if scope == "broker":
        known |= BrokerSettings.declared
    values = without_units(typed)
    for name, value in values.items():
        if name not in known or known[name].kind not in TYPES:
            continue
        setting, given = known[name], typed[name]
        try:
            Setting(name, None, setting.kind).parse(value)
        except SettingsError:
            raise WrongUsage(
                f"{name}={given}: expected {setting.allowed()}{units.unit_of(name)}"
                f"{units.as_typed(name, given)}") from None
    return values


@contextmanager
def as_typed(settings: Mapping[str, str]) -> Iterator[None]:
    """If the broker refuses a setting, adds the value as it was typed to the error's text, because
    the broker got only the number."""
    try:
        yield
    except Refused as refused:
        text = str(refused)
        for name, value in settings.items():
            if f"{name}:" in text and repr(number_of(name, value)) in text:
                text += units.as_typed(name, value)
        refused.args = (text, *refused.args[1:])
        raise


def overrides_without_units(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """In the overrides of an `ottla server` command line, replaces values that have units by plain
    numbers. Returns the new command line, and the overrides as they were typed. Raises WrongUsage.
    """
    done: list[str] = []
    typed: dict[str, str] = {}
    for word in words:
        flag, equals, setting = word.partition("=")
        if flag == "--override" and equals:
            flag += equals
        elif done and done[-1] == "--override":
            flag, setting = "", word
        else:
            done.append(word)
            continue
        name, _, value = setting.partition("=")
        typed[name.strip()] = value.strip()
        done.append(flag + setting_without_unit(setting))
    return done, typed


def setting_without_unit(setting: str) -> str:
    """Replaces the value in `name=value` by the number that brokers expect. A value without a unit
    stays unchanged. Raises WrongUsage."""
    name, equals, value = setting.partition("=")
    return name + equals + number_of(name.strip(), value)
