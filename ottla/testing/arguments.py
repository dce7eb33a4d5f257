"""Checks of the values that a test gives to `Broker`: without these checks, a wrong value would
have no effect, or fail in another process."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.wire.errors import ErrorCode

OWN_SETTINGS = {
    "listeners": "its address is broker.bootstrap_servers",
    "advertised.listeners": "its address is broker.bootstrap_servers",
    "log.dirs": "Broker(directory=…) names the directory",
    "log.dir": "Broker(directory=…) names the directory",
}
"""Settings that the test broker chooses itself, and what a test uses instead."""


MS_PER = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000, "ms": 1}


def check_broker(settings: Mapping[str, str], log_level: object) -> None:
    """Raises ValueError if the test broker chooses one of the settings itself, or if `log_level` is
    not the name of a level of Python's logging."""
    for name, instead in OWN_SETTINGS.items():
        if name in settings:
            raise ValueError(f"Broker settings: the test broker chooses {name} itself; {instead}")
    known = [name.lower() for name in logging.getLevelNamesMapping()]
    if not isinstance(log_level, str) or log_level.lower() not in known:
        raise ValueError(f"log_level={log_level!r}: expected one of {', '.join(known)}")


def whole(name: str, number: object, least: int = 0, most: int | None = None) -> int:
    """The number; raises TypeError unless it is whole, ValueError if it is below `least` or above
    `most`."""
    if isinstance(number, bool) or not isinstance(number, Integral):
        raise TypeError(f"{name}={number!r}: expected a whole number, such as {name}=3")
    if int(number) < least:
        raise ValueError(f"{name}={number}: the lowest value is {least}")
    if most is not None and int(number) > most:
        raise ValueError(f"{name}={number}: the highest value is {most}")
    return int(number)


def topic_name(name: object) -> str:
    """The name; raises TypeError unless it is text."""
    if not isinstance(name, str):
        raise TypeError(f"name={name!r}: expected a topic's name, such as name='orders'")
    return name


def finite(name: str, amount: object) -> float:
    """The number; raises TypeError or ValueError unless it is a finite number such as 0.5."""
    if isinstance(amount, bool) or not isinstance(amount, Real):
        raise TypeError(f"{name}={amount!r}: expected a number, such as {name}=0.5")
    if not math.isfinite(amount):
        raise ValueError(f"{name}={amount}: expected a finite number")
    return float(amount)


def check_error(error: ErrorCode) -> ErrorCode:
    """The error; raises ValueError for NONE, which is no error."""
    if not error:
        raise ValueError(
            "NONE is not an error. To let the broker serve the request but lose its answer, use"
            " drop(api, after=True)")
    return error


def check_request(message: object) -> None:
    """Raises TypeError unless this is a request that a client can send."""
    kind = message if isinstance(message, type) else type(message)
    if kind.__name__.endswith("Request") and hasattr(kind, "API_KEY"):
        if kind is not message:
            return
        name = kind.__name__
        raise TypeError(f"request({name}): expected a message, not its class: write {name}(…)")
    wanted = "MetadataRequest"
    if isinstance(message, str):
        from ottla.testing.names import api_key_of
        from ottla.wire.apis import APIS

        given = message.removesuffix("Request")
        wanted = f"{APIS[api_key_of(given) or 0].name}Request"
    raise TypeError(
        f"request({message!r}): expected a request of ottla.wire.messages, such as {wanted}(…)")


def configs_of(configs: object) -> dict[str, str]:
    """A topic's settings, as texts; raises TypeError unless they are a mapping, or None."""
    if configs is None:
        return {}
    if not isinstance(configs, Mapping):
        raise TypeError(
            f'configs={configs!r}: expected a mapping, such as configs={{"retention.ms": 1000}}')
    return {str(name): str(value) for name, value in configs.items()}


def delay_of(seconds: object) -> float:
    """The length of a delay; raises TypeError or ValueError if it is invalid."""
    length = finite("seconds", seconds)
    if length < 0:
        raise ValueError(f"seconds={seconds}: a delay cannot be negative")
    return length


def milliseconds(**amounts: float) -> float:
    """The sum of a duration's `days`, `hours`, `minutes`, `seconds` and `ms`."""
    passed = sum(finite(unit, amount) * MS_PER[unit] for unit, amount in amounts.items())
    if passed < 0:
        raise ValueError("the broker's clock cannot go back")
    return passed


def requests_of(count: object, after: object, client_id: object) -> dict[str, Any]:
    """To which requests a fault applies, as fields of a rule; raises TypeError or ValueError."""
    if not isinstance(after, bool):
        raise TypeError(f"after={after!r}: expected True or False")
    if client_id is not None and not isinstance(client_id, str):
        raise TypeError(f"client_id={client_id!r}: expected text, or None for all clients")
    number = None if count is None else whole("count", count, 1)
    return {"count": number, "after": after, "client_id": client_id}
