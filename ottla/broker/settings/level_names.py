"""The words for log levels, in upper or lower case: Kafka's and Python's."""

from __future__ import annotations

LEVELS = ["debug", "info", "warning", "error"]
"""The levels of --log-level."""
NEAREST = {
    "trace": "debug", "warn": "warning", "fatal": "error", "critical": "error", "off": "error",
}
"""Other words, each with the nearest level of --log-level."""


def level_of(word: str) -> str:
    """The level of --log-level for a word; an unknown word is returned in lower case."""
    return NEAREST.get(word.lower(), word.lower())


def kafka_level(word: str) -> str:
    """Kafka's name of a logger's level (KIP-412), such as WARN for the word `warning`."""
    return {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(word.upper(), word.upper())
