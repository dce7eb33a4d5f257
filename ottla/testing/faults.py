"""Faults that a test injects between clients and the broker, and how often each occurred."""

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
    """The number of requests to which the rule applies; None for all until the fault ends."""
    code: int = 0
    seconds: float = 0.0
    after: bool = False
    """Whether the broker gets the request, and the fault concerns only the answer."""
    client_id: str | None = None
    """None for every client."""
    hits: int = 0

    def meets(self, api_key: int, client_id: str | None) -> bool:
        """Whether the rule applies to this request; if so, counts the request."""
        if self.api_key not in (None, api_key) or self.client_id not in (None, client_id):
            return False
        if self.count is not None and self.hits >= self.count:
            return False
        self.hits += 1
        return True

    def as_command(self) -> dict[str, Any]:
        """The rule as fields of a command to the proxy."""
        return asdict(self)


class Fault:
    """A requested fault. If used as a context manager, the fault ends with the block."""

    def __init__(self, rule: Rule, ask: Callable[..., Any]) -> None:
        self.rule, self._ask = rule, ask

    @property
    def hits(self) -> int:
        """The number of requests to which the fault has been applied so far."""
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
