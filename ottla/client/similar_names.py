"""Names that were perhaps meant where one is unknown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, Refused
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

TOPIC = re.compile(r"topic '([^']+)'")
MOST = 3


def similar(name: str, known: Iterable[str]) -> str:
    """"; similar: a, b" for the known names that are nearest, "" if none is near."""
    from difflib import get_close_matches

    by_lower = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), by_lower, MOST, 0.7)
    return f"; similar: {', '.join(by_lower[one] for one in found)}" if found else ""


def add_similar_topics(cluster: Cluster, error: BaseException | None) -> None:
    """Complete the message of an error about an unknown topic with the names of similar ones."""
    if not isinstance(error, Refused) or error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return
    found = TOPIC.search(str(error))
    if found is None or "; similar:" in str(error):
        return
    try:
        names = [topic.name for topic in cluster.metadata().topics]
    except (ClientError, OSError):
        return                              # the error itself is to be reported
    error.args = (str(error).rstrip(".") + similar(found[1], names), *error.args[1:])
