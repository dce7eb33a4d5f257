"""What log compaction may leave of a coordinator's log, and the meaning of the remaining records.

A pass has an end, which is never beyond the beginning of the first open transaction. Up to there,
the pass learns the newest record of each key. Then it rewrites segments from the log's beginning;
if it crashes, only the first segments are rewritten. It drops records whose key has a newer record,
records of aborted transactions, tombstones that are old enough, and markers without remaining
records.
"""

from __future__ import annotations

import random
from typing import Any

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.record_codec import Encoded
from ottla.groups.records import Marker
from ottla.groups.shard import Shard

Entry = tuple[Encoded | Marker, int]
"""Bytes or a marker, with the producer id of its transaction, -1 outside of one."""


def compacted(log: list[Entry], chance: random.Random) -> list[Entry]:
    """The log after some passes, each up to a random offset."""
    for _ in range(chance.randint(1, 3)):
        end = chance.randint(0, first_open(log))
        rewritten = chance.choice([end, chance.randint(0, end)])
        log = _after_pass(log, end, rewritten, chance)
    return log


def first_open(log: list[Entry]) -> int:
    """Where the first transaction without a marker begins; the log's end if there is none."""
    opened: dict[int, int] = {}
    for offset, (entry, producer_id) in enumerate(log):
        if isinstance(entry, Marker):
            opened.pop(entry.producer_id, None)
        elif producer_id >= 0:
            opened.setdefault(producer_id, offset)
    return min(opened.values(), default=len(log))


def _after_pass(
    log: list[Entry], end: int, rewritten: int, chance: random.Random
) -> list[Entry]:
    aborted, ends = _transactions(log)
    newest = {
        entry[0]: offset
        for offset, (entry, _) in enumerate(log[:end])
        if not isinstance(entry, Marker) and offset not in aborted
    }
    kept: list[Entry] = []
    for offset, (entry, producer_id) in enumerate(log):
        old_enough = chance.random() < 0.5
        if offset >= rewritten:
            keeps = True
        elif isinstance(entry, Marker):
            keeps = bool(ends[offset]) or not old_enough
        else:
            is_newest = offset not in aborted and newest[entry[0]] == offset
            keeps = is_newest and not (entry[1] is None and old_enough)
        if keeps:
            kept.append((entry, producer_id))
    return kept


def _transactions(log: list[Entry]) -> tuple[set[int], dict[int, list[int]]]:
    """The offsets of aborted records; and for each marker's offset, the offsets of the records in
    its transaction."""
    opened: dict[int, list[int]] = {}
    aborted: set[int] = set()
    ends: dict[int, list[int]] = {}
    for offset, (entry, producer_id) in enumerate(log):
        if isinstance(entry, Marker):
            ends[offset] = opened.pop(entry.producer_id, [])
            if not entry.committed:
                aborted.update(ends[offset])
        elif producer_id >= 0:
            opened.setdefault(producer_id, []).append(offset)
    return aborted, ends


def durable(shard: Shard) -> dict[str, Any]:
    """The state of groups and offsets, as far as records hold it."""
    offsets = shard.offsets
    pending = {where: value for where, value in offsets.pending().items() if value is not None}
    committed = {
        (group_id, *index): value
        for group_id in offsets.groups()
        for index, value in offsets.of_group(group_id).items()
    }
    told = {group_id: _durable_group(group) for group_id, group in shard.groups.items()}
    # An empty group that exists only because of its offsets may be deleted with them.
    named = {key[0] for key in committed} | {key.group_id for _, key in pending}
    groups = {
        group_id: known
        for group_id, known in told.items()
        if group_id in named or known[:2] != ("classic", None)
    }
    return {"groups": groups, "offsets": committed, "pending": pending}


def _durable_group(group: ClassicGroup | ConsumerGroup) -> tuple[Any, ...]:
    if isinstance(group, ConsumerGroup):
        members = {m.member_id: (m.value, m.current) for m in group.members.values()}
        return (
            "consumer", group.epoch, group.metadata_hash, group.target_epoch, group.target_ms,
            members, group.targets, group.owners, group.static_members, group.patterns,
        )
    members = {
        m.member_id: m.value(group.protocol, m.assignment)
        for m in group.members.values()
    }
    return (
        "classic", group.protocol_type, group.generation, group.protocol, group.leader,
        group.state, group.state_ms, members, group.static_members, group.must_rejoin,
    )
