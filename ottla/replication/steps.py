"""Long computations in steps: the caller may do other work between two steps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, ParamSpec, TypeVar

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")
Steps = Generator[None, None, Result]


def at_once(steps: Steps[Result]) -> Result:
    """Run all steps here and now."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result


class Stepwise(Generic[Arguments, Result]):
    """A function written as a generator: a call runs it to the end, `steps` runs it step by
    step."""

    def __init__(self, steps: Callable[Arguments, Steps[Result]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return at_once(self.steps(*args, **kwargs))
