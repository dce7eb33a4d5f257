"""Suggestions for unknown names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, Refused, no_partition
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

MOST = 3
PARTITION = re.compile(r"([\w.-]+)[-:](\d+)$")
"""Finds the partition in `Refused.what`, such as orders-0."""


def similar(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Returns "; similar: a, b" with the most similar known names, each with `prefix` before it; ""
    if none is similar."""
    from difflib import get_close_matches

    by_lower = {one.lower(): one for one in known}
    # Short names need less in common, so that t1 is still similar to t2.
    share = min(0.7, max(0.5, 1 - 1 / max(len(name), 1)))
    found = get_close_matches(name.lower(), by_lower, MOST, share)
    return similar_are([prefix + by_lower[one] for one in found])


def similar_are(names: Sequence[str]) -> str:
    """The end of a message that suggests these names; "" without names."""
    return f"; similar: {', '.join(names[:MOST])}" if names else ""


def beside(path: str) -> list[os.DirEntry[str]]:
    """The entries of the directory that a missing path would be in; none if it cannot be read."""
    try:
        return list(os.scandir(os.path.dirname(path) or "."))
    except OSError:
        return []


def directories_beside(path: str) -> str:
    """The end of the message about a missing directory: similar ones beside it."""
    parent, name = os.path.split(path)
    known = [one.name for one in beside(path) if one.is_dir()]
    return similar(name, known, f"{parent}/" if parent else "")


def add_similar_names(cluster: ClusterClient, error: BaseException | None) -> None:
    """Adds suggestions to the message of an error about an unknown topic, partition, group or
    transactional id. They are similar names, or the partitions that the topic has."""
    if not isinstance(error, Refused) or error.code not in KINDS or "; similar:" in str(error):
        return
    if found := KINDS[error.code][0].search(str(error)):
        error.args = (str(error).rstrip(".") + near(cluster, error.code, found[1]), *error.args[1:])
        return
    found = PARTITION.search(error.what)
    if found and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        text = near_partition(cluster, found[1], int(found[2])).removeprefix("; ")
        if " has no partition " in text:
            error.args = (text, *error.args[1:])
        elif text:
            error.args = (f"topic {found[1]!r} not found; {text}", *error.args[1:])


def near(cluster: ClusterClient, code: ErrorCode | None, name: str) -> str:
    """Returns "; similar: a, b" with the names that are similar to a name that a broker did not
    find; "" if there are none. A name that exists needs no suggestion: a group may be of another
    type than the request asks for."""
    try:
        known = list(KINDS[code][1](cluster))
    except (ClientError, OSError):
        return ""                           # the original error is the one to report
    return "" if name in known else similar(name, known)


def near_partition(cluster: ClusterClient, topic: str, index: int) -> str:
    """The end of a message about a partition that does not exist: the topic's partitions or, if the
    topic does not exist, similar names; "" if there are none."""
    try:
        counts = {one.name: len(one.partitions) for one in cluster.metadata().topics}
    except (ClientError, OSError):
        return ""
    if topic not in counts:
        return similar(topic, counts)
    return f"; {no_partition(topic, index, counts[topic])}" if index >= counts[topic] else ""


def _topics(cluster: ClusterClient) -> Iterator[str]:
    return (topic.name for topic in cluster.metadata().topics)


def _groups(cluster: ClusterClient) -> Iterator[str]:
    from ottla.wire.messages import ListGroupsRequest  # late, so that --help starts quickly

    for node_id in cluster.brokers:
        answer = cluster.node(node_id).call(ListGroupsRequest(states_filter=[], types_filter=[]))
        yield from (group.group_id for group in answer.groups)


def _transactional_ids(cluster: ClusterClient) -> Iterator[str]:
    from ottla.wire.messages import ListTransactionsRequest

    for node_id in cluster.brokers:
        answer = cluster.node(node_id).call(
            ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
        yield from (state.transactional_id for state in answer.transaction_states)


KINDS: dict[ErrorCode | None, tuple[re.Pattern[str], Callable[[ClusterClient], Iterator[str]]]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (re.compile(r"topic '([^']+)'"), _topics),
    ErrorCode.GROUP_ID_NOT_FOUND: (re.compile(r"group '([^']+)'"), _groups),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (
        re.compile(r"transactional id '([^']+)'"), _transactional_ids),
}
