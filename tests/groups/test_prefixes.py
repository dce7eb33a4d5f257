"""After a crash behind any record, a coordinator can continue from the records in its log.

Histories of transfers are cut after each record and each marker; the scenarios of groups are cut
after each record.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.records import Producer
from ottla.groups.shard_runtime import Committed
from ottla.groups.transactions.markers import MarkerWritten, TransactionMarker
from ottla.groups.transactions.records import TopicIndex, TransactionRecord
from ottla.wire.errors import ErrorCode
from tests.groups.bench import Workbench
from tests.groups.story import SCENARIOS, played
from tests.groups.transactions.money import OK, PARTITIONS, TIMEOUT_MS, MoneyBench, Transfer

TRANSFERS = 12
VERSIONS = {"before KIP-890": 0, "KIP-890": 2}


class PowerOff(BaseException):
    """Raised when the machine stops; no handler may catch it."""


class DyingBench(MoneyBench):
    """Stops after record or marker number `dies_at`, before this write is reported as done."""

    def __init__(self, dies_at: int) -> None:
        self.dies_at, self.steps = dies_at, 0
        super().__init__()

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.dies_at:
            raise PowerOff

    def append(
        self, partition: int, records: list[TransactionRecord], producer: Producer, done: Committed
    ) -> None:
        def step_first(error: BaseException | None) -> None:
            self.step()
            done(error)

        super().append(partition, records, producer, step_first)

    def write_marker(
        self, partition: TopicIndex, marker: TransactionMarker, done: MarkerWritten
    ) -> None:
        def step_first(error: BaseException | None) -> None:
            self.step()
            done(error)

        super().write_marker(partition, marker, step_first)


def transfer_money(bench: MoneyBench, version: int, chance: random.Random) -> list[Transfer]:
    """Transfer money with two transactional ids until the bench dies; returns the transfers. Each
    is committed or aborted."""
    transfers: list[Transfer] = []
    producers: dict[str, Producer] = {}
    try:
        for number in range(TRANSFERS):
            key = chance.choice("xy")
            if key not in producers or chance.random() < 0.2:
                producers[key] = bench.init(key, timeout_ms=TIMEOUT_MS)
            transfer = Transfer()
            transfers.append(transfer)
            for partition, amount in zip(chance.sample(PARTITIONS, 2), (-7, 7), strict=True):
                producer = producers[key]
                assert bench.add(producer, partition, key=key, v=version) is OK
                assert bench.accounts[partition].write(producer, transfer, amount)
            commits = chance.random() < 0.7
            ended = bench.end(producer, commits, key, version)
            assert not isinstance(ended, ErrorCode), (number, ended)
            producers[key], transfer.acknowledged = ended, commits
    except PowerOff:
        pass
    return transfers


@pytest.mark.parametrize("version", VERSIONS.values(), ids=VERSIONS)
def test_money_stays_constant_when_a_coordinator_dies_behind_any_record_or_marker(
    version: int,
) -> None:
    whole = DyingBench(dies_at=0)
    transfer_money(whole, version, random.Random(version))
    assert whole.steps > 4 * TRANSFERS
    for dies_at in range(1, whole.steps + 1):
        bench = DyingBench(dies_at)
        transfers = transfer_money(bench, version, random.Random(version))
        assert bench.steps == dies_at
        bench.crash()
        bench.wait(2 * TIMEOUT_MS)
        accounts = bench.accounts.values()
        assert not any(account.open for account in accounts), "a transaction hangs"
        committed = [each for account in accounts for each in account.ended[True]]
        assert sum(amount for _, amount in committed) == 0
        for transfer in transfers:
            records = sum(each is transfer for each, _ in committed)
            assert records in (0, 2), "a transfer is torn"
            if transfer.acknowledged is not None:
                assert records == 2 * transfer.acknowledged


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_group_goes_on_from_any_record_and_ends_when_nobody_is_heard_of(path: Path) -> None:
    bench = played(path)
    for partition, log in bench.logs.items():
        for length in range(len(log) + 1):
            again = Workbench(
                offsets_topic_num_partitions=bench.settings.offsets_topic_num_partitions
            )
            again.cluster = bench.cluster
            again.logs[partition] = log[:length]
            again.crash()
            for group in groups_of(again):
                if isinstance(group, ConsumerGroup):
                    held = [p for m in group.members.values()
                            for p in (*m.current.assigned, *m.current.revoking)]  # fmt: skip
                    assert len(held) == len(set(held)), "a partition has two owners"
            again.wait(4_000_000)
            assert all(group.is_empty for group in groups_of(again))


def groups_of(bench: Workbench) -> list[ClassicGroup | ConsumerGroup]:
    return [group for shard in bench.runtime.shards() for group in shard.groups.values()]


