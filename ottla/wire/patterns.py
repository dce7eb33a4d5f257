"""Regular expressions of clients and administrators, evaluated by RE2.

Python's own `re` backtracks: forty letters can keep it busy for a minute. RE2's time grows with the
size of the compiled pattern times the length of the text, and this module limits that size. RE2 has
no look-ahead and no back-references.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

MEMORY_MAX = 256 << 10
"""RE2's memory for one pattern, in bytes."""
PROGRAM_SIZE_MAX = 5000
"""RE2's instructions for one pattern. An alternation of 300 topic names has about this many. The
worst pattern of this size takes 25 µs for each character of a text; alternations of names take
0.01 µs."""


class InvalidPattern(ValueError):
    """RE2 does not accept the pattern, or it is too large; the message gives the reason."""


class Pattern(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: str) -> Any:
        """The match of the whole text, or None."""
        ...


@lru_cache(maxsize=128)
def compiled(pattern: str, captures: bool = False) -> Pattern:
    """A pattern ready for use. With `captures`, a match has groups, but takes longer.

    Raises InvalidPattern.
    """
    # Imported at the first use: most brokers never see a pattern.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX
    options.never_capture = not captures
    try:
        program = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace") if error.args else "not understood"
        raise InvalidPattern(f"{pattern!r} is not valid for RE2: {reason}") from error
    except UnicodeEncodeError as error:
        raise InvalidPattern(f"{pattern!r} is not valid Unicode text") from error
    if program.programsize > PROGRAM_SIZE_MAX:
        raise InvalidPattern(
            f"{pattern!r} is too large for RE2: it compiles to {program.programsize} instructions,"
            f" but at most {PROGRAM_SIZE_MAX} are allowed"
        )
    result: Pattern = program
    return result
