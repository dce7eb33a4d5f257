"""A sentence for each event of a partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.history.reasons import Reason
from ottla.groups.history.rings import Event
from ottla.groups.history.words import listed
from ottla.replication.metadata import NO_LEADER
from ottla.wire.wording import counted, duration

Fields = Mapping[str, Any]


def sentence(of: Event) -> str:
    """An event in plain English, without its time."""
    text = SENTENCES[of.kind](of.fields)
    return text if of.times == 1 else f"{text} ({of.times} times)"


def nodes(of: Any) -> str:
    """Node ids in words, such as `1, 2 and 3`."""
    return listed([str(node) for node in of]) or "nobody"


def lag_in_words(fields: Fields) -> str:
    """Say how far a replica was behind when it left the in-sync set. Only the leader knows this, so
    the text is empty on other brokers."""
    behind, behind_ms = fields.get("behind"), fields.get("behind_ms")
    if behind is None or behind_ms is None:
        return ""
    if behind < 0:
        return ": it had sent no fetch to this leader"
    when = "" if behind_ms < 0 else f" for {duration(behind_ms)}"
    return f": it had not caught up{when}, and was {counted(behind, 'record')} behind"


ENDINGS = {
    "gone": "broker {} is back and has caught up",
    "shutting_down": "broker {} has restarted and has caught up",
    "directory_failed": "that log directory works and the replica has caught up",
}
"""For each reason that keeps a replica out of sync: what ends this state."""


def out_of_sync(node: int, left: Fields | None, elapsed_ms: int, reason: Reason) -> str:
    """Say why a replica is out of sync. `left` describes how it left the in-sync set; None if that
    is unknown. If the reason for which it left is not the present reason, give both."""
    lasting = reason.kind in ENDINGS
    if left is None:
        why = f", because {reason.now}" if lasting else ""
        return f"broker {node} is out of sync{why}"
    text = f"broker {node} has been out of sync for {duration(elapsed_ms)}, because "
    if lasting and left["reason_kind"] == reason.kind:
        return text + reason.now
    now = f"; now {reason.now}" if lasting else ""
    return f"{text}{left['reason']}{lag_in_words(left)}{now}"


def _left(fields: Fields) -> str:
    return (
        f"broker {fields['broker']} left the in-sync set: {fields['reason']}{lag_in_words(fields)};"
        f" in sync: {nodes(fields['isr'])}"
    )


def _joined(fields: Fields) -> str:
    out_ms = fields.get("out_ms")
    after = "" if out_ms is None else f" after {duration(out_ms)}"
    return (
        f"broker {fields['broker']} has caught up{after} and joined the in-sync set; in sync:"
        f" {nodes(fields['isr'])}"
    )


def _leader(fields: Fields) -> str:
    if fields["leader"] == NO_LEADER:
        return f"there is no leader any more: {fields['reason']}"
    former = "" if fields["former"] == NO_LEADER else f" instead of broker {fields['former']}"
    return f"broker {fields['leader']} leads{former}: {fields['reason']}"


def _aborted(fields: Fields) -> str:
    client = f", client {fields['client']}," if fields["client"] else ""
    return (
        f"the transaction of {fields['transactional_id']} (producer id {fields['producer_id']}),"
        f" open for {duration(fields['open_ms'])}, was aborted: {fields['user']}{client} of"
        f" {fields['host'].lstrip('/')} has initialized the same transactional id, as a producer"
        " does at its start, and a tool does to end a transaction"
    )


SENTENCES: dict[str, Callable[[Fields], str]] = {
    "left_isr": _left,
    "joined_isr": _joined,
    "leader_changed": _leader,
    "transaction_aborted": _aborted,
    "directory_failed": lambda fields: (
        f"the log directory of broker {fields['broker']} failed, or the log in it was damaged"
    ),
    "directory_works": lambda fields: f"the log directory of broker {fields['broker']} works again",
    "replicas_changed": lambda fields: (
        f"a reassignment changed the replicas from {nodes(fields['former'])} to"
        f" {nodes(fields['replicas'])}"
    ),
}
