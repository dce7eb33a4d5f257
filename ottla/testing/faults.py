"""Faults that a test requests between clients and the broker, and how often each occurred."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

ANSWER, DELAY, DROP = "answer", "delay", "drop"


@dataclass
class Rule:
    """One fault, as the proxy applies it."""

    number: int
    kind: str
    """ANSWER, DELAY or DROP."""
    api_key: int | None
    """None for every API."""
    count: int | None
    """The number of requests it applies to; None for all until the fault ends."""
    code: int = 0
    seconds: float = 0.0
    after: bool = False
    """Whether the broker gets the request, and only its answer is lost or replaced."""
    client_id: str | None = None
    """None for every client."""
    hits: int = 0

    def meets(self, api_key: int, client_id: str | None) -> bool:
        """Whether it applies to this request; counts it if so."""
        if self.api_key not in (None, api_key) or self.client_id not in (None, client_id):
            return False
        if self.count is not None and self.hits >= self.count:
            return False
        self.hits += 1
        return True

    def as_command(self) -> dict[str, Any]:
        """As a line for the proxy."""
        return asdict(self)


class Fault:
    """A requested fault. As a context manager it ends with its block."""

    def __init__(self, rule: Rule, ask: Callable[..., Any]) -> None:
        self.rule, self._ask = rule, ask

    @property
    def hits(self) -> int:
        """How many requests it has applied to so far."""
        return int(self._ask("hits", number=self.rule.number))

    def end(self) -> None:
        """Ends the fault for good; requests pass again."""
        self._ask("end_fault", number=self.rule.number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
