"""Compaction of the coordinators' topics does not change the state that is loaded from them. It may
leave any of the older records, and the newest records may be in any order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.groups.record_codec import decode_record
from ottla.groups.records import Marker
from ottla.groups.shard import Shard
from tests.groups.bench import Workbench
from tests.groups.compacting import Entry, compacted, durable
from tests.groups.story import SCENARIOS, Story, played

TIMES = 25


def loaded(bench: Workbench, log: list[Entry]) -> Shard:
    """The state that a coordinator builds from a log."""
    shard = Shard(0, bench.settings, bench.new_id, bench.cluster)
    for entry, producer in log:
        if isinstance(entry, Marker):
            shard.offsets.end_transaction(*entry)
        elif (record := decode_record(*entry)) is not None:
            shard.replay(record, producer)
    return shard


def test_a_member_keeps_its_epoch_and_partitions_when_its_own_record_is_the_newest() -> None:
    """When a member changes its metadata, its metadata record becomes newer than the record of its
    assignment."""
    story = Story({"offsets_topic_num_partitions": 1})
    story.play("topic t partitions=2")
    story.play("beat m epoch=0 topics=t")
    story.play("beat m epoch=2 full=1 topics=t rebalance=30s owned=t-0,t-1")
    before = story.play("show")
    assert before == "Stable epoch 2 m@2=[t-0,t-1]"
    log = story.bench.logs[0]
    newest = {entry[0]: offset for offset, (entry, _) in enumerate(log)}
    story.bench.logs[0] = [log[offset] for offset in sorted(newest.values())]
    story.play("crash")
    assert story.play("show") == before
    assert story.play("beat m epoch=2") == "epoch 2"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_whatever_compaction_leaves_of_a_scenario_means_the_same(path: Path) -> None:
    bench = played(path)
    for log in bench.logs.values():
        for length in range(len(log) + 1):
            wanted = durable(loaded(bench, log[:length]))
            for seed in range(TIMES):
                left = compacted(log[:length], random.Random(seed))
                assert durable(loaded(bench, left)) == wanted, (length, seed)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_newest_records_mean_the_same_in_every_order(path: Path) -> None:
    """The newest record of each key is loaded, in a random order: no record may rely on another one
    that comes before it."""
    bench = played(path)
    for log in bench.logs.values():
        if any(producer >= 0 for _, producer in log):
            continue
        for length in range(len(log) + 1):
            wanted = durable(loaded(bench, log[:length]))
            newest = {entry[0]: (entry, -1) for entry, _ in log[:length]}
            living = [each for each in newest.values() if each[0][1] is not None]
            for seed in range(5):
                random.Random(seed).shuffle(living)
                assert durable(loaded(bench, living)) == wanted, (length, seed)
