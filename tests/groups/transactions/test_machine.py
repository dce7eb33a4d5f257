"""Whatever producers do, and however often the broker dies, money that is transferred between
partitions in transactions is neither made nor lost, and acknowledged outcomes stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.groups.records import NO_PRODUCER, Producer
from ottla.groups.transactions.records import TopicIndex, TransactionValue
from ottla.wire.errors import ErrorCode, ProtocolError, StorageFailed
from tests.groups.transactions.money import (
    OK,
    PARTITIONS,
    TIMEOUT_MS,
    MoneyBench,
    Transfer,
)

IDS = ["x", "y"]


@dataclass(eq=False)
class Client:
    """A producer, which may have been fenced without knowing it (a zombie)."""

    transactional_id: str
    version: int
    producer: Producer | None = None
    transfer: Transfer | None = None
    ending: list[Any] | None = None
    """The answers to the EndTxn that is under way, or None. The next two fields say whether it asks
    for a commit, and whether the client was a zombie when it sent it."""
    wants_commit: bool = False

    asks_as_zombie: bool = False


class MoneyMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = MoneyBench()
        self.clients = [Client(IDS[n % 2], 2 * (n % 3 > 0)) for n in range(5)]
        self.transfers: list[Transfer] = []
        self.newest: dict[str, Producer] = {}

    def is_zombie(self, client: Client) -> bool:
        """Whether the transactional id was initialised again after the client got its producer."""
        assert client.producer is not None
        return client.producer < self.newest[client.transactional_id]

    clients_at = st.integers(0, 4)

    @rule(who=clients_at, recovers=st.booleans())
    def initialise(self, who: int, recovers: bool) -> None:
        client = self.clients[who]
        known = client.producer if recovers and client.producer is not None else NO_PRODUCER
        reply = self.bench.init(client.transactional_id, known, TIMEOUT_MS)
        if isinstance(reply, Producer):
            client.producer, client.transfer, client.ending = reply, None, None
            self.newest[client.transactional_id] = reply

    @rule(who=clients_at, source=st.integers(0, 3), sink=st.integers(0, 3))
    def transfer(self, who: int, source: int, sink: int) -> None:
        client = self.clients[who]
        if client.producer is None or client.ending is not None:
            return
        if client.transfer is None:
            client.transfer = Transfer()
            self.transfers.append(client.transfer)
        for index, change in ((source, -7), (sink, 7)):
            if not self.write(client, PARTITIONS[index], change):
                client.transfer.whole = False
                return

    def write(self, client: Client, partition: TopicIndex, amount: int) -> bool:
        assert client.producer is not None and client.transfer is not None
        key = client.transactional_id
        if self.bench.add(client.producer, partition, key=key, v=client.version) is not OK:
            return False
        if self.bench.check(client.producer, partition, key) is not OK:
            return False
        if not self.bench.accounts[partition].write(client.producer, client.transfer, amount):
            return False
        assert not self.is_zombie(client), "a zombie writes"
        client.transfer.written.append((partition, amount))
        return True

    @rule(who=clients_at, commit=st.booleans())
    def end(self, who: int, commit: bool) -> None:
        client = self.clients[who]
        if client.producer is None or client.transfer is None or client.ending is not None:
            return
        client.wants_commit = commit and client.transfer.whole
        client.asks_as_zombie = self.is_zombie(client)
        try:
            client.ending = self.bench.end_later(
                client.producer, client.wants_commit, client.transactional_id, client.version
            )
        except ProtocolError:
            client.producer = client.transfer = None

    @invariant()
    def hear(self) -> None:
        for client in self.clients:
            if not client.ending:
                continue
            reply = client.ending[0]
            assert len(client.ending) == 1, "an answer is given once"
            if isinstance(reply, TransactionValue):
                assert client.transfer is not None
                client.transfer.acknowledged = client.wants_commit
                assert not client.asks_as_zombie, "a zombie ends a transaction"
                client.producer = Producer(reply.producer_id, reply.epoch)
            else:
                client.producer = None
            client.transfer = client.ending = None

    @rule(lost=st.one_of(st.just(0), st.integers(1, 20)))
    def crash(self, lost: int) -> None:
        """kill -9, or a power cut that removes some of the unflushed records."""
        self.bench.crash(lost)
        self.lose_connections()

    @rule(seed=st.integers(0, 2**32))
    def compact(self, seed: int) -> None:
        self.bench.compact(seed)
        self.lose_connections()

    def lose_connections(self) -> None:
        for client in self.clients:
            if client.ending is not None:
                client.ending = client.transfer = client.producer = None

    @rule(ms=st.sampled_from([50, 1_000, 6_000]))
    def wait(self, ms: int) -> None:
        self.bench.wait(ms)

    @rule(held=st.booleans())
    def hold_markers(self, held: bool) -> None:
        self.bench.hold_markers = held
        if not held:
            self.bench.write_held_markers()

    @rule(held=st.booleans())
    def hold_commits(self, held: bool) -> None:
        self.bench.hold_commits = held
        if not held:
            self.bench.commit_all()

    @rule(is_full=st.booleans())
    def fill_disk(self, is_full: bool) -> None:
        self.bench.refusal = StorageFailed("disk full") if is_full else None

    @rule(at=st.integers(0, 3))
    def lose_leader(self, at: int) -> None:
        self.bench.marker_errors[PARTITIONS[at]] = ErrorCode.NOT_LEADER_OR_FOLLOWER

    @precondition(lambda self: self.bench.marker_errors)
    @rule()
    def find_leaders(self) -> None:
        self.bench.marker_errors.clear()

    @invariant()
    def no_transfer_is_torn(self) -> None:
        for transfer in self.transfers:
            ends = self.ends_of(transfer)
            assert not (True in ends and False in ends), "half committed, half aborted"

    def ends_of(self, transfer: Transfer) -> set[bool]:
        return {
            commits
            for account in self.bench.accounts.values()
            for commits, ended in account.ended.items()
            if any(each is transfer for each, _ in ended)
        }

    def teardown(self) -> None:
        bench = self.bench
        bench.marker_errors.clear()
        bench.refusal = None
        bench.hold_markers = bench.hold_commits = False
        bench.commit_all()
        bench.write_held_markers()
        bench.wait(2 * TIMEOUT_MS)
        self.hear()
        accounts = bench.accounts.values()
        assert not any(account.open for account in accounts), "a transaction hangs"
        assert sum(amount for account in accounts for _, amount in account.ended[True]) == 0
        for transfer in self.transfers:
            if transfer.acknowledged is not None and transfer.written:
                assert self.ends_of(transfer) == {transfer.acknowledged}


MoneyMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestMoney = MoneyMachine.TestCase
