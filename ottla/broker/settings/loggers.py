"""The levels of this process's loggers, under Kafka's names (KIP-412).

Changes last until the process ends, as in Kafka. Python has no TRACE: here TRACE is a separate
level below DEBUG. FATAL is Python's CRITICAL.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from ottla.broker.settings.declaration import did_you_mean
from ottla.replication.controller.configs import ConfigChange, Operation
from ottla.wire.errors import InvalidConfig, InvalidRequest

ROOT = "root"
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARN": 30, "ERROR": 40, "FATAL": 50}
LATE = ("ottla.offsets", "ottla.telemetry", "ottla.tls", "ottla.topics")
"""The loggers of modules that a broker imports only when it needs them. They are made here, so that
their levels can be set before that."""

for _name in LATE:
    logging.getLogger(_name)


def levels() -> Iterator[tuple[str, str]]:
    """Every logger with its effective level."""
    yield ROOT, _name_of(logging.getLogger().level)
    for name, logger in sorted(logging.Logger.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            yield name, _name_of(logger.getEffectiveLevel())


def _name_of(level: int) -> str:
    """Kafka's name of the lowest level that is logged; OFF for a level above FATAL."""
    return next((name for name, number in LEVELS.items() if level <= number), "OFF")


def alter_levels(changes: Sequence[ConfigChange], validate_only: bool) -> None:
    """Change the levels of loggers, either all or none. DELETE restores the level of the parent.

    Raises InvalidRequest or InvalidConfig.
    """
    if len({change.name for change in changes}) < len(changes):
        raise InvalidRequest("Error due to duplicate config keys")
    for change in changes:
        _check(change)
    if validate_only:
        return
    for change in changes:
        logger = logging.getLogger(None if change.name == ROOT else change.name)
        deleted = change.operation == Operation.DELETE
        logger.setLevel(logging.NOTSET if deleted else LEVELS[change.value or ""])


def _check(change: ConfigChange) -> None:
    name = change.name
    if change.operation not in tuple(Operation):
        raise InvalidRequest(f"Unknown operation {change.operation} on {name}, expected 0 to 3")
    if change.operation in (Operation.APPEND, Operation.SUBTRACT):
        verb = Operation(change.operation).name
        raise InvalidRequest(f"{verb} operation is not allowed for the BROKER_LOGGER resource")
    # `getLogger` would create a logger: clients must not fill the process with loggers.
    if name != ROOT and not isinstance(
        logging.Logger.manager.loggerDict.get(name), logging.Logger
    ):
        hint = did_you_mean(name, [known for known, _ in levels()])
        raise InvalidConfig(f"Logger {name} does not exist{hint or '!'}")
    if change.operation == Operation.DELETE:
        if name == ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
    elif change.value is None:
        raise InvalidRequest(f"Null value not supported for : {name}")
    elif change.value not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name} to {change.value} as it is not a supported log"
            f" level. Valid log levels are {', '.join(sorted(LEVELS))}"
        )
