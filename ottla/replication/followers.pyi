"""A leader's followers: how far each one is, and which of them count."""

from collections.abc import Callable, Collection, Sequence

class Followers:
    lag_ms: int
    def __init__(
        self, nodes: Sequence[int], isr: Collection[int], lag_ms: int, now_ms: int
    ) -> None: ...
    def follow(
        self, isr: Collection[int], epoch_of: Callable[[int], int], offline: Collection[int] = ()
    ) -> None: ...
    def propose(
        self, high_watermark: int, epoch_start: int, now_ms: int
    ) -> tuple[list[tuple[int, int]], list[int]]: ...
    def decided(self) -> None: ...
    def states(self) -> list[tuple[int, int, int, int, bool]]: ...
