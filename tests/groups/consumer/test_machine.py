"""Whatever members do, lose or forget, no partition has two owners. When nothing changes any more,
every partition of the subscribed topics has exactly one owner (KIP-848)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply
from ottla.groups.records import TopicPartition
from ottla.wire.errors import StorageFailed
from tests.groups.bench import Workbench
from tests.groups.compacting import durable

SESSION_MS = 45_000


class Client:
    """A consumer that follows its assignment at once."""

    def __init__(self, name: str, instance_id: str | None) -> None:
        self.name, self.instance_id = name, instance_id
        self.epoch = 0
        self.topics = frozenset({"t"})
        self.told_topics: frozenset[str] | None = None
        self.assignor: str | None = None
        self.owned: frozenset[TopicPartition] = frozenset()
        self.silent_ms = 0

    def lost(self) -> None:
        self.epoch, self.owned, self.told_topics = 0, frozenset(), None


class ConsumerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Workbench(offsets_topic_num_partitions=1)
        self.clients = [Client("a", None), Client("b", None), Client("c", "i"), Client("d", "j")]

    @initialize(partitions=st.integers(1, 7))
    def make_topic(self, partitions: int) -> None:
        self.bench.cluster.make("t", partitions)
        self.bench.cluster.make("u", 2)

    def request(self, client: Client) -> Heartbeat:
        joins = client.epoch == 0
        full = joins or client.told_topics != client.topics
        return Heartbeat(
            "g", client.name, client.epoch, client.instance_id, None,
            60_000 if full else -1, client.topics if full else None, None, client.assignor,
            client.owned, "client", "/h",
        )

    @rule(who=st.integers(0, 3), lose_reply=st.booleans())
    def beat(self, who: int, lose_reply: bool) -> None:
        client = self.clients[who]
        reply = self.bench.ask(lambda s, r: s.beat(self.request(client), r))
        self.hear(client, reply, lose_reply)
        if isinstance(reply, HeartbeatReply) and not lose_reply:
            client.told_topics = client.topics

    @rule(who=st.integers(0, 3), ahead=st.sampled_from([-1, 0, 0, 0, 1]), stranger=st.booleans())
    def beat_with_nothing_to_tell(self, who: int, ahead: int, stranger: bool) -> None:
        """The fast path answers like the full path, or leaves the heartbeat to the full path."""
        client = self.clients[who]
        if client.epoch + ahead <= 0:
            return
        name, epoch, instance_id = client.name, client.epoch + ahead, client.instance_id
        host = "/elsewhere" if stranger else "/h"
        now_ms, before = self.bench.runtime.tick_ms(), len(self.bench.records)
        beat = Heartbeat("g", name, epoch, instance_id, client_id="client", client_host=host)
        short = self.bench.shard().keep_alive("g", beat, ("client", host), now_ms)
        reply = self.bench.ask(lambda s, r: s.beat(beat, r))
        if short is not None:
            assert reply == HeartbeatReply(name, epoch, short) and len(self.bench.records) == before
        if ahead == 0:
            self.hear(client, reply, False)

    def hear(self, client: Client, reply: object, lose_reply: bool) -> None:
        if isinstance(reply, HeartbeatReply):
            client.silent_ms = 0
            if lose_reply:
                client.told_topics = None  # the connection broke: all fields are sent again
                return
            client.epoch = reply.member_epoch
            if reply.assignment is not None:
                client.owned = reply.assignment
        elif isinstance(reply, StorageFailed):
            client.told_topics = None  # all fields are sent again
        else:
            client.lost()

    @rule(who=st.integers(0, 3))
    def leave(self, who: int) -> None:
        client = self.clients[who]
        if client.epoch > 0:
            epoch = -1 if client.instance_id is None else -2
            request = Heartbeat("g", client.name, epoch, client.instance_id)
            self.bench.ask(lambda s, r: s.beat(request, r))
        client.lost()

    @rule(who=st.integers(0, 3), topics=st.sampled_from(["t", "u", "tu", ""]))
    def subscribe(self, who: int, topics: str) -> None:
        self.clients[who].topics = frozenset(topics)

    @rule(who=st.integers(0, 3), assignor=st.sampled_from(["uniform", "range"]))
    def choose(self, who: int, assignor: str) -> None:
        self.clients[who].assignor = assignor

    @rule(more=st.integers(1, 3))
    def grow(self, more: int) -> None:
        topic = self.bench.cluster.topics["t"]
        if topic.partitions < 20:
            self.bench.cluster.make("t", topic.partitions + more)

    @rule(ms=st.sampled_from([1_000, 20_000, 46_000, 61_000]))
    def wait(self, ms: int) -> None:
        for client in self.clients:
            client.silent_ms += ms
            if client.silent_ms >= SESSION_MS:
                client.lost()  # a client revokes its partitions when its session must have ended
        self.bench.wait(ms)

    @rule(is_full=st.booleans())
    def fill_disk(self, is_full: bool) -> None:
        self.bench.refusal = StorageFailed("disk full") if is_full else None

    @rule()
    def crash(self) -> None:
        self.bench.crash()

    @rule(seed=st.integers(0, 2**32))
    def compact(self, seed: int) -> None:
        before = durable(self.bench.shard())
        self.bench.crash()
        assert durable(self.bench.shard()) == before
        self.bench.compact(seed)

    @invariant()
    def nothing_has_two_owners(self) -> None:
        seen: dict[TopicPartition, str] = {}
        for client in self.clients:
            for partition in client.owned:
                assert partition not in seen, (partition, seen[partition], client.name)
                seen[partition] = client.name
        group = self.bench.shard().groups.get("g")
        if isinstance(group, ConsumerGroup):
            held: set[TopicPartition] = set()
            for member in group.members.values():
                mine = {*member.current.assigned, *member.current.revoking}
                assert not held & mine
                held |= mine
            assert held == set(group.owners)

    def teardown(self) -> None:
        """Let all members send heartbeats until nothing changes any more, then check that each
        partition of the subscribed topics has one owner."""
        if not self.bench.cluster.topics:
            return
        self.bench.refusal = None
        for client in self.clients:
            client.told_topics = None
        for _ in range(12):
            for who in range(len(self.clients)):
                self.beat(who, False)
                self.nothing_has_two_owners()
            self.bench.wait(1_000)
        wanted = {
            (topic.topic_id, index)
            for topic in self.bench.cluster.topics.values()
            if any(topic.name in client.topics for client in self.clients)
            for index in range(topic.partitions)
        }
        owned = [partition for client in self.clients for partition in client.owned]
        assert sorted(owned) == sorted(wanted)
        if len({client.topics for client in self.clients}) == 1 and wanted and not any(
            client.assignor for client in self.clients
        ):
            sizes = [len(client.owned) for client in self.clients]
            assert max(sizes) - min(sizes) <= 1


ConsumerMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestConsumerGroups = ConsumerMachine.TestCase
