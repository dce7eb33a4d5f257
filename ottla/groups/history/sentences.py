"""A sentence for each event of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.groups.history.group_history import (
    EMPTIED,
    NOT_RECORDED,
    OFFSETS_SET,
    REBALANCED,
    Rebalance,
)
from ottla.groups.history.rings import Event
from ottla.groups.history.words import listed, member
from ottla.wire.wording import counted, duration

Fields = Mapping[str, Any]


def sentence(of: Event) -> str:
    """An event in plain English, without its time."""
    text = SENTENCES[of.kind](of.fields)
    in_all = " in all" if of.kind == OFFSETS_SET and of.fields["back"] else ""
    return text if of.times == 1 else f"{text}{in_all} ({of.times} times)"


def cause(rebalance: Rebalance) -> str:
    """What started a rebalance; empty if nothing is known of it."""
    return "" if rebalance.reason is None else SENTENCES[rebalance.reason.kind](
        rebalance.reason.fields)


def _saying(fields: Fields) -> str:
    """The reason that a client gave."""
    reason = fields.get("reason")
    return f'; it gave the reason "{reason}"' if reason else ""


def _joined(fields: Fields) -> str:
    topics, pattern = fields.get("topics"), fields.get("pattern")
    reads = f" with a subscription to {listed(topics)}" if topics else ""
    if pattern:
        reads += f"{' and' if reads else ' with a subscription'} to topics that match {pattern}"
    return f"{member(fields)} joined{reads}{_saying(fields)}"


def _replaced(fields: Fields) -> str:
    return (
        f"{member(fields)} took the place of {fields['former']}: the static member"
        f" {fields['instance']} has restarted{_saying(fields)}"
    )


def _left(fields: Fields) -> str:
    if fields.get("by_administrator"):
        return f"an administrator removed {member(fields)}{_saying(fields)}"
    return f"{member(fields)} left at its own request{_saying(fields)}"


def _offsets_set(fields: Fields) -> str:
    client = f", client {fields['client']}," if fields["client"] else ""
    back = f" back by {counted(fields['back'], 'record')}" if fields["back"] else ""
    return (
        f"{fields['user']}{client} of {fields['host'].lstrip('/')}, not a member, set the offsets"
        f" of {listed(fields['topics'])}{back}"
    )


def _left_for_now(fields: Fields) -> str:
    return (
        f"{member(fields)} left for now: its partitions stay with the static member"
        f" {fields['instance']} until its session ends"
    )


def _silent(fields: Fields) -> str:
    timeout = duration(fields["timeout_ms"])
    return f"{member(fields)} was removed: it sent no heartbeat for {timeout}"


def _did_not_join(fields: Fields) -> str:
    return (
        f"{member(fields)} was removed: it did not join again within its rebalance timeout of"
        f" {duration(fields['timeout_ms'])}"
    )


def _did_not_sync(fields: Fields) -> str:
    return (
        f"{member(fields)} was removed: it did not ask for its assignment within the rebalance"
        f" timeout of {duration(fields['timeout_ms'])}"
    )


def _did_not_revoke(fields: Fields) -> str:
    partitions = counted(fields["partitions"], "partition")
    return (
        f"{member(fields)} was removed: it did not give up {partitions} within its rebalance"
        f" timeout of {duration(fields['timeout_ms'])}"
    )


def _no_room(fields: Fields) -> str:
    return (
        f"{member(fields)} was removed: group.max.size allows only {fields['group_max_size']}"
        " members"
    )


def _subscription_changed(fields: Fields) -> str:
    changes = [
        f"{word} {listed(topics)}" for word, topics in (
            ("added", fields["added"]), ("removed", fields["removed"])) if topics
    ]
    if fields.get("pattern"):
        changes.append(f"now reads topics that match {fields['pattern']}")
    changed = ", ".join(changes) or "its pattern was removed"
    return f"{member(fields)} changed its subscription: {changed}"


def _joined_again(fields: Fields) -> str:
    leads = ""
    if fields["leads"]:
        leads = " as the group's leader, to assign anew (for example after a change of topics)"
    return f"{member(fields)} joined again{leads}{_saying(fields)}"


def _rebalanced(fields: Fields) -> str:
    took = fields.get("took_ms")
    if not took:
        return (
            f"generation {fields['generation']} has {counted(fields['members'], 'member')}"
        )
    text = (
        f"the rebalance to generation {fields['generation']} with"
        f" {counted(fields['members'], 'member')} took {duration(took)}"
    )
    last, joined = fields.get("last"), fields.get("joined_ms")
    if fields.get("initial_delay") and took >= 1000:
        text += (", mostly because the group waited for more members"
                 " (group.initial.rebalance.delay.ms)")
    elif last and fields["members"] > 1:
        after = f" after {duration(joined)}" if joined is not None else ""
        text += f"; member {last} came last{after}"
    if joined is not None and took - joined >= 1000:
        text += (f"; the group's leader {fields['leader']} took {duration(took - joined)} to"
                 " assign")
    return text


SENTENCES: dict[str, Callable[[Fields], str]] = {
    "joined": _joined,
    "replaced": _replaced,
    "left": _left,
    "left_for_now": _left_for_now,
    "silent": _silent,
    "did_not_join": _did_not_join,
    "did_not_sync": _did_not_sync,
    "did_not_revoke": _did_not_revoke,
    "no_room": _no_room,
    "subscription_changed": _subscription_changed,
    "joined_again": _joined_again,
    "topics_changed": lambda fields: (
        "a topic that the group reads was created or deleted, or its number of partitions changed"
    ),
    "upgraded": lambda fields: (
        "the group changed to the consumer protocol (KIP-848), because"
        f" member {fields['member']} uses it"
    ),
    "downgraded": lambda fields: (
        "the group changed to the classic protocol: its last KIP-848 member is gone"
    ),
    REBALANCED: _rebalanced,
    EMPTIED: lambda fields: "the last member is gone: the group is empty",
    OFFSETS_SET: _offsets_set,
    NOT_RECORDED: lambda fields: f"the log refused a change of the group: {fields['reason']}",
}
