"""Marks on rare branches: the simulator counts how often its seeds reach each branch.

`reached("a follower was cut with an open transaction")` counts nothing in a broker: it only
compares one pointer. Marks belong on rare branches, never on the path of every record or request.
`tests/simulation/marks.py` collects their texts from the sources; each text occurs once.
"""

cdef dict counts = None


cpdef object reached(str mark):
    """Count that this branch was reached, if marks are counted."""
    if counts is not None:
        counts[mark] = counts.get(mark, 0) + 1


def count_in(dict counter):
    """Count in this dictionary from now on; if it is None, stop counting."""
    global counts
    counts = counter
