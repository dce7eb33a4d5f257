"""A parsed kcat command line, and the error for an invalid one."""

from __future__ import annotations

from dataclasses import dataclass, field


class Misused(Exception):
    """A command line that kcat would not accept."""


@dataclass
class Chosen:
    """A parsed command line."""

    mode: str = ""
    brokers: str = ""
    topics: list[str] = field(default_factory=list)
    partition: int = -1
    offsets: list[str] = field(default_factory=list)
    exit: bool = False
    count: int | None = None
    format: str | None = None
    json: bool = False
    key_delimiter: bytes | None = None
    delimiter: bytes = b"\n"
    null: bool = False
    serdes: list[str] = field(default_factory=list)
    unbuffered: bool = False
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    codec: str = ""
    lines: bool = False
    tee: bool = False
    quiet: bool = False
    group: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    seconds: float = 5.0
    rest: list[str] = field(default_factory=list)

    def topic(self) -> str:
        """The topic of the last -t. Raises Misused if there is no -t."""
        if not self.topics:
            raise Misused("-t <topic> missing")
        return self.topics[-1]
