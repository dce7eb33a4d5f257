"""Makes some limits of the broker small, so that rare branches are taken. They limit the sizes of
batches, turns of the loop, reads and requests. Some time-outs between brokers sometimes expire at
once.

Limits and time-outs are constants of modules; no promise depends on their values. Half of the short
lives make some limits small, and two thirds have time-outs that expire at once. Separate random
generators choose them, so that seeds without these features run as before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.broker.api import partitions as partitions_api
from ottla.broker.api import transaction_admin
from ottla.broker.cluster import (
    cluster_session,
    controller,
    directory_reports,
    elections,
    hand_over,
    isr_changes,
    producer_id_blocks,
)
from ottla.broker.coordination import log_coordinator, marker_sender, transaction_verifier
from ottla.broker.peers import envelopes, peers
from ottla.broker.upkeep import directory_moves
from ottla.groups import shard_runtime, sweeps
from ottla.groups.transactions import markers, shard
from ottla.log.partition import damage, derived_state, trust
from ottla.log.storage import move_transfer
from ottla.replication import cluster_store
from ottla.replication.controller import adoption, brokers, configs, producer_ids

SHARE = 0.5
"""The share of short lives that make some limits small."""


class Bound(NamedTuple):
    """One limit: its name, the modules that have it, and its small values."""

    name: str
    owners: tuple[Any, ...]
    values: tuple[float, ...]


class TimeOut(NamedTuple):
    """A time-out of a broker that waits for another one: its name, and the modules that have it."""

    name: str
    owners: tuple[Any, ...]


class Hurried(float):
    """A duration that is sometimes almost 0 when it is added to a time."""

    chance: random.Random
    share: float

    def __radd__(self, moment: float) -> float:
        if self.chance.random() < self.share:
            return moment + self.chance.choice((0.0, 0.001, 0.01))
        return moment + float(self)


TIME_OUTS = (
    TimeOut("CONNECT_SECONDS", (peers,)),
    TimeOut("ATTEMPT_SECONDS", (envelopes, isr_changes, directory_reports)),
    TimeOut("REQUEST_SECONDS", (envelopes, transaction_verifier, marker_sender)),
    TimeOut("REFILL_SECONDS", (producer_id_blocks,)),
    TimeOut("HAND_OVER_ASK_SECONDS", (hand_over,)),
    TimeOut("ASK_SECONDS", (elections,)),
    TimeOut("CATCH_UP_SECONDS", (cluster_session,)),
    TimeOut("COMMIT_SECONDS", (transaction_admin,)),
)

BOUNDS = (
    Bound("PARTITIONS_AT_A_TIME", (brokers, adoption, configs, controller, partitions_api), (1, 2)),
    Bound("PARTITIONS_MAX", (isr_changes,), (1,)),
    Bound("PARTITIONS_MAX", (directory_reports,), (1,)),
    Bound("PARTITIONS_MAX", (marker_sender,), (1,)),
    Bound("DELETED_AT_A_TIME", (cluster_store,), (1, 3)),
    Bound("READ_AHEAD", (cluster_store,), (1, 2)),
    Bound("SNAPSHOT_AFTER_ENTRIES", (cluster_store,), (3, 10, 30)),
    Bound("SNAPSHOT_LOOK_SECONDS", (controller,), (0.3, 1.0)),
    Bound("AT_ONCE_MAX", (markers,), (1, 2)),
    Bound("LOOKS_MAX", (shard,), (1,)),
    Bound("LOOKS_MAX", (sweeps,), (1, 3)),
    Bound("LOOKS_MAX", (trust,), (1, 2)),
    Bound("GATHERED_RECORDS_MAX", (shard_runtime,), (1, 2)),
    Bound("FIRE_SECONDS_MAX", (shard_runtime,), (0.0,)),
    Bound("CHANGE_SECONDS_MAX", (shard_runtime,), (0.0,)),
    Bound("LOAD_BYTES", (log_coordinator,), (100, 1000)),
    Bound("REREAD_MAX", (derived_state,), (0, 300)),
    Bound("COPY_BYTES", (damage,), (100, 1000)),
    Bound("STEP_BYTES", (directory_moves,), (300, 2000)),
    Bound("CHUNK_BYTES", (move_transfer,), (100, 1000)),
    Bound("PRODUCER_IDS_PER_BLOCK", (producer_ids,), (1, 3)),
)


def drawn(seed: int) -> Iterator[tuple[Bound, float]]:
    """The limits that a seed makes small, with their values: about half of all limits, or none."""
    chance = random.Random(f"small bounds {seed}")
    if chance.random() >= SHARE:
        return
    for bound in BOUNDS:
        if chance.random() < 0.5:
            yield bound, chance.choice(bound.values)


def make_small(seed: int, put: Callable[[Any, str, Any], None]) -> None:
    """Make the limits that the seed chooses small, and shorten time-outs, by `put(module, name,
    value)`."""
    for bound, value in drawn(seed):
        for owner in bound.owners:
            put(owner, bound.name, value)
    hurry(seed, put)


def hurry(seed: int, put: Callable[[Any, str, Any], None]) -> None:
    """Have some time-outs between brokers sometimes expire at once."""
    chance = random.Random(f"time-outs {seed}")
    share = chance.choice((0.0, 0.02, 0.2))
    for each in TIME_OUTS if share else ():
        if chance.random() < 0.5:
            for owner in each.owners:
                hurried = Hurried(getattr(owner, each.name))
                hurried.chance, hurried.share = chance, share
                put(owner, each.name, hurried)
