"""Seeds that break a promise for a reason that is known to be open.

`make simulate` prints them and does not fail for them: a seed leaves this list with the repair. The
list is for one broker; it goes by the seed and the kind of violation, so that another violation of
the same seed still fails.
"""

from __future__ import annotations

OPEN = {
    529: ("cannot be read: CORRUPT_MESSAGE",
          "after two power cuts offsets are missing inside a log: recovery, or the model's faults"),
    576: ("of an aborted transaction is shown",
          "after a power cut an aborted record is shown to a reader of committed ones"),
    741: ("no end after",
          "a directory of a deleted topic cannot be opened: something retries for ever"),
}
"""By seed: a part of the violation, and what is known of it."""


def is_open(line: str) -> bool:
    """Whether a worker's line, `seed N: violation`, is one of these."""
    number, _, violation = line.removeprefix("seed ").partition(": ")
    known = OPEN.get(int(number)) if number.isdigit() else None
    return known is not None and known[0] in violation
