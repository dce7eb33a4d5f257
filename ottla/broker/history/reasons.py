"""Why a replica is out of sync, and why another replica leads, according to the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.replication.metadata import NO_LEADER, PartitionExtra

if TYPE_CHECKING:
    from ottla.replication.metadata import MetadataImage, PartitionState

NONE = PartitionExtra()


class Reason(NamedTuple):
    """Why a replica is out of sync: a code for programs, and words."""

    kind: str
    then: str
    """The words for the event in the past, such as "it was shutting down"."""
    now: str
    """The words for the present state, such as "it is shutting down"."""


REASONS = {each[0]: Reason(*each) for each in (
    ("reassigned", "a reassignment took its replica away", "a reassignment takes its replica away"),
    ("directory_failed", "its log directory failed, or its log was damaged",
     "its log directory has failed, or its log is damaged"),
    ("gone", "it stopped, or lost its session with ZooKeeper",
     "it is stopped, or has lost its session with ZooKeeper"),
    ("shutting_down", "it was shutting down", "it is shutting down"),
    ("log_missing", "its log was missing when it came back",
     "its log was missing when it came back"),
    ("unclean_stop", "its machine stopped without warning, and its log might lack records",
     "its machine stopped without warning, and its log may lack records"),
    ("unclean_election", "an unclean election made another replica lead",
     "an unclean election made another replica lead"),
    ("lagging", "its leader found that it lagged", "its leader finds that it lags"),
)}


def out_of_sync_reason(
    image: MetadataImage, was: PartitionState, now: PartitionState, node: int
) -> Reason:
    """Why a replica left the in-sync set."""
    return REASONS[_kind(image, was, now, node)]


def _kind(image: MetadataImage, was: PartitionState, now: PartitionState, node: int) -> str:
    extra, before = now.extra or NONE, was.extra or NONE
    if node not in now.replicas:
        return "reassigned"
    if node in extra.offline:
        return "directory_failed"
    if node not in image.brokers:
        return "gone"
    if node in image.leaving:
        return "shutting_down"
    if node in before.lost:
        return "log_missing"
    if node in before.doubtful:
        return "unclean_stop"
    if was.leader != now.leader and now.isr == (now.leader,) and now.leader not in was.isr:
        return "unclean_election"
    return "lagging"


def new_leader_reason(
    old: MetadataImage, new: MetadataImage, was: PartitionState, now: PartitionState
) -> tuple[str, str]:
    """Why the leader changed: a code for programs, and words."""
    kind, text = _former_leader(new, was, now)
    if now.leader == NO_LEADER:
        return kind, f"{text}, and no other replica could lead" if text else "no replica could lead"
    extra = was.extra or NONE
    if now.isr == (now.leader,) and now.leader not in {*was.isr, *extra.elr, *extra.awaited}:
        return "unclean", (
            "an unclean election, so the new leader was not in sync and may lack records")
    if was.leader == NO_LEADER:
        back = now.leader in new.brokers and now.leader not in old.brokers
        return "back", "it came back" if back else "it could lead again"
    if text:
        return kind, text
    if now.leader == now.replicas[0]:
        return "preferred", "it is the preferred leader"
    return "elected", "it was elected"


def _former_leader(
    image: MetadataImage, was: PartitionState, now: PartitionState
) -> tuple[str, str]:
    """Why the former leader no longer leads; empty if there was none, or if it could still lead."""
    node = was.leader
    if node == NO_LEADER:
        return "", ""
    if node not in now.replicas:
        return "reassigned", f"a reassignment took the replica of broker {node} away"
    if node in (now.extra or NONE).offline:
        return "directory_failed", (
            f"the log directory of broker {node} failed, or the log in it was damaged"
        )
    if node not in image.brokers:
        return "gone", f"broker {node} stopped, or lost its session with ZooKeeper"
    if node in image.leaving:
        return "shutting_down", f"broker {node} was shutting down"
    return "", ""
