"""What keeps the console light and quick on a large cluster: it stores metadata in columns, splits
requests, and decodes answers in parts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.client.errors import NotConnected, Unreachable
from ottla.console import picture
from ottla.console.cluster_pages import overview, pending_of, topic_page, topic_rows
from ottla.console.documents import PIECE, encoded
from ottla.console.picture import (
    ASKED_AT_ONCE,
    SENT_AHEAD,
    Members,
    Offsets,
    Picture,
    pages,
    rates,
    records,
)
from ottla.console.topic_columns import UNKNOWN, Topics
from ottla.console.views import Views
from ottla.tools.admin.offsets import LATEST
from ottla.wire.messages import (
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
)
from ottla.wire.parts import DecodedInParts

MADE = MetadataResponse.Topic
WAIT_SECONDS = 30


def described(name: str, *partitions: tuple[int, list[int], list[int]]) -> Any:
    """The metadata of a topic. Each partition is given as its leader, its replicas and its
    in-sync replicas."""
    return MADE(name=name, topic_id=name.encode().ljust(16), partitions=[
        MADE.Partition(partition_index=index, leader_id=leader, leader_epoch=7,
                       replica_nodes=replicas, isr_nodes=isr)
        for index, (leader, replicas, isr) in enumerate(partitions)
    ])


def shop() -> Topics:
    """Three topics: one is healthy, one has a replica that is not in sync, and one has a partition
    without a leader."""
    return Topics([
        described("orders", (1, [1, 2], [1, 2]), (2, [2, 1], [2, 1])),
        described("behind", (1, [1, 2], [1])),
        described("away", (-1, [2], []), (1, [1], [1])),
    ])


def test_columns_say_what_the_metadata_said() -> None:
    topics = shop()
    assert [topic.name for topic in topics] == ["away", "behind", "orders"]
    assert (len(topics), topics.partitions) == (3, 5)
    assert (topics.led()[1], topics.led()[2], topics.held()) == (3, 1, {1: 4, 2: 4})
    assert [(topic.leaderless, topic.out_of_sync) for topic in topics] == [(1, 1), (0, 1), (0, 0)]
    orders = topics.by_name["orders"]
    assert list(orders.of(topics.leaders)) == [1, 2]
    assert [topics.replicas[place] for place in orders.places] == [(1, 2), (2, 1)]


def test_partitions_may_come_in_any_order_and_one_may_be_missing() -> None:
    topic = described("t", *[(number, [number], [number]) for number in range(4)])
    topic.partitions = [topic.partitions[index] for index in (3, 0, 1)]
    topics = Topics([topic, described("u", (9, [9], [9]))])
    assert list(topics.by_name["t"].of(topics.leaders)) == [0, 1, -1, 3]
    assert list(topics.by_name["u"].of(topics.leaders)) == [9]


def test_each_leader_is_asked_for_its_partitions_once_a_part_at_a_time() -> None:
    many = [described(f"t{number:04}", *[(index % 3, [index % 3], []) for index in range(9)])
            for number in range(3000)]
    large = described("large", *[(0, [0], [])] * (2 * ASKED_AT_ONCE + 1))
    topics = Topics([*many, large, described("away", (-1, [1], []))])
    asked: set[tuple[str, int]] = set()
    for leader, page in pages(topics):
        places = {(topic.name, index) for topic, indexes in page for index in indexes}
        assert 0 < len(places) <= ASKED_AT_ONCE and not places & asked
        for topic, indexes in page:
            assert {topics.leaders[topic.first + index] for index in indexes} == {leader}
        asked |= places
    assert len(asked) == topics.partitions - 1


def test_the_requests_on_their_way_fit_into_the_buffers_of_a_socket() -> None:
    """Otherwise, the broker and the console could each wait until the other reads."""
    long = [described(f"{number:0249}", (0, [0], [])) for number in range(1000)]
    wide = described("wide", *[(0, [0], [])] * 5000)
    for topics in (Topics(long), Topics([wide])):
        sizes = [len(picture.request(page, LATEST).encode(3)) for _, page in pages(topics)]
        assert (SENT_AHEAD + 2) * max(sizes) <= 64 << 10 and len(sizes) <= 25


def offsets_of(topics: Topics, at: float, *ends: int) -> Offsets:
    found = Offsets(at, topics.column(), topics.column())
    for place, end in enumerate(ends):
        found.starts[place], found.ends[place] = min(end, 0), end
    return found


def test_what_did_not_answer_is_not_counted() -> None:
    topics = shop()
    found = offsets_of(topics, 0, 10, 5, 3, UNKNOWN, 8)
    assert {topic.name: records(topic, found) for topic in topics} == {
        "orders": 15, "behind": 3, "away": 8}
    assert topics.by_name["away"].total(found.ends) == 8


def test_rates_are_of_topics_that_have_grown_even_if_others_come_and_go() -> None:
    old, new = shop(), Topics([described("away", (1, [1], [1])), described("new", (1, [1], [1])),
                               described("orders", (1, [1], [1]), (2, [2], [2]))])
    before = offsets_of(old, 100, 10, 5, 3, 0, 8)
    assert rates(old, before, new, offsets_of(new, 102, 0, 4, 30, 5)) == {"orders": 10.0}


def test_what_is_not_read_yet_is_null_and_said_to_be() -> None:
    members = Members("c", 1, [], set())
    first = overview(members, None, None, None, [])
    assert first["topics"] is None and first["lag"] is None and first["controller"] == 1
    assert {"topics", "records", "bytes", "lag", "problems"} <= {*first["pending"]}
    then = overview(members, Picture(members, shop()), {}, [], [])
    assert (then["topics"], then["partitions"], then["records"]) == (3, 5, None)
    assert "records" in then["pending"] and "topics" not in then["pending"]
    assert [one["what"] for one in then["problems"]] == [
        "broker/1", "broker/2", "topic/away", "topic/behind"]
    assert "problems" in then["pending"], "the disks"
    [row, *_] = topic_rows(Picture(members, shop()), None)
    assert (row["topic"], row["records"], row["bytes"], row["lag"]) == ("away", None, None, None)
    assert pending_of(Picture(members, shop()), None) == [
        "records", "records_per_second", "bytes", "lag"]
    page = topic_page(Picture(members, shop()), "orders", [], {})
    assert page is not None and [one["end"] for one in page["rows"]] == [None, None]


def test_the_problems_of_ten_thousand_topics_are_as_many_as_are_shown() -> None:
    topics = Topics(described(f"t{number}", (1, [1, 2], [1])) for number in range(10_000))
    worst = described("worst", (-1, [1], []))
    both = Topics([described(f"t{number}", (1, [1, 2], [1])) for number in range(200)] + [worst])
    members = Members("c", 1, [], set())
    assert len(overview(members, Picture(members, topics), {}, [], [])["problems"]) == 100
    found = overview(members, Picture(members, both), {}, [], [])["problems"]
    assert found[2]["what"] == "topic/worst"


class Here:
    """Takes the place of the connections to a cluster: it calls a function in a thread, without a
    cluster."""

    async def run(self, function: Callable[[Any], Any]) -> Any:
        return await asyncio.to_thread(function, None)


def views() -> Views:
    return Views(Here())  # type: ignore[arg-type]


def test_a_page_that_does_not_wait_sees_what_there_is() -> None:
    begin, may_answer = threading.Event(), threading.Event()

    def read(cluster: Any, memory: Any) -> Iterator[str]:
        begin.wait(WAIT_SECONDS)
        yield "a part"
        may_answer.wait(WAIT_SECONDS)
        yield "all"

    async def scene() -> None:
        made = views()
        assert await made.soon(read, seconds=0) is None
        begin.set()
        assert await made.part(read, seconds=0) == "a part"
        assert await made.soon(read, seconds=0) == "a part"
        whole = asyncio.create_task(made.get(read))
        may_answer.set()
        assert await whole == "all"
        assert await made.soon(read, seconds=0) == "all"

    asyncio.run(scene())


def test_after_a_change_who_waits_gets_the_new_value_and_others_the_old_one_meanwhile() -> None:
    counted, may_answer = [0], threading.Event()
    may_answer.set()

    def read(cluster: Any, memory: Any) -> int:
        may_answer.wait(WAIT_SECONDS)
        counted[0] += 1
        return counted[0]

    async def scene() -> None:
        made = views()
        assert await made.get(read) == 1 and await made.get(read) == 1
        may_answer.clear()
        made.forget()
        assert await made.soon(read, seconds=0) == 1
        waits = asyncio.create_task(made.get(read))
        may_answer.set()
        assert await waits == 2 and await made.soon(read, seconds=0) == 2

    asyncio.run(scene())


def test_what_is_made_of_a_view_is_made_once_and_let_go_with_it() -> None:
    def read(cluster: Any, memory: Any) -> list[int]:
        return [1]

    async def scene() -> None:
        made = views()
        value = await made.get(read)
        first = await made.derived("d", (value,), lambda: ["made"])
        assert await made.derived("d", (value,), lambda: ["made again"]) is first
        assert await made.derived("d", ([1],), lambda: ["of another"]) == ["of another"]
        assert await made.derived("d", (value,), lambda: ["made again"]) == ["made again"]
        made.forget()
        await made.get(read)
        assert not made.made, "nothing keeps the value before"

    asyncio.run(scene())


def test_long_documents_are_the_same_json_in_pieces() -> None:
    row = {"name": "\u00fc\"<\u2028", "count": 1, "none": None}
    for count in (0, 1, PIECE, PIECE + 1, 3 * PIECE + 7):
        document = {"value": {"key": "name", "rows": [row] * count}, "removed": ["x"] * count}
        assert json.loads(asyncio.run(encoded(document))) == document


def test_a_reading_too_soon_after_another_one_keeps_its_rates() -> None:
    topics = shop()
    memory: dict[Any, Any] = {}
    for at, end, wanted in ((100.0, 0, None), (100.5, 5, None), (102.0, 20, {"orders": 10.0}),
                            (102.5, 90, {"orders": 10.0})):
        found = offsets_of(topics, at, end)
        picture.sum_up(memory, topics, found)
        assert found.rates == wanted and found.records == end


class Leader:
    """A connection to a broker that answers in the order of the requests. If it `fails`, the
    connection breaks when an answer is read."""

    def __init__(self, offset: int, fails: bool = False) -> None:
        self.offset, self.fails = offset, fails
        self.waiting: list[ListOffsetsRequest] = []
        self.sent_ahead, self.closed = 0, False

    def send(self, request: ListOffsetsRequest, *, at_most: int) -> ListOffsetsRequest:
        assert at_most < 4, "versions with leader epochs make a broker open its files"
        self.waiting.append(request)
        self.sent_ahead = max(self.sent_ahead, len(self.waiting))
        return request

    def answer(self, sent: ListOffsetsRequest) -> ListOffsetsResponse:
        if self.fails:
            raise Unreachable("the broker closed the connection")
        assert self.waiting.pop(0) is sent, "answers come in the order of the requests"
        made = ListOffsetsResponse.Topic
        return ListOffsetsResponse(topics=[made(name=topic.name, partitions=[
            made.Partition(partition_index=part.partition_index,
                           offset=self.offset if part.timestamp == LATEST else 1)
            for part in topic.partitions
        ]) for topic in sent.topics])

    def close(self) -> None:
        self.closed = True


class Leaders:
    """A cluster with these brokers. Other brokers cannot be reached."""

    def __init__(self, **brokers: Any) -> None:
        self.brokers = brokers

    def node(self, number: int) -> Any:
        waiting = any(one.waiting for one in self.brokers.values())
        assert not waiting, "a real cluster may send a request of its own on these connections"
        if f"n{number}" not in self.brokers:
            raise NotConnected("not there")
        return self.brokers[f"n{number}"]


def three_leaders() -> Topics:
    """Enough partitions for several requests to each of three brokers."""
    return Topics([described(f"t{number:04}", *[(index % 3, [0, 1, 2], []) for index in range(9)])
                   for number in range(4000)])


def test_a_broker_works_on_offsets_while_others_are_decoded() -> None:
    topics, brokers = three_leaders(), {"n0": Leader(10), "n1": Leader(20)}
    found = Offsets(0, topics.column(), topics.column())
    picture.read_offsets(Leaders(**brokers), topics, found)  # type: ignore[arg-type]
    assert [list(topic.of(found.ends)) for topic in topics] == [[10, 20, UNKNOWN] * 3] * 4000
    assert [list(topic.of(found.starts)) for topic in topics] == [[1, 1, UNKNOWN] * 3] * 4000
    assert not any(one.waiting or one.closed for one in brokers.values())
    assert all(2 <= one.sent_ahead <= SENT_AHEAD + 2 for one in brokers.values())


def test_after_an_error_nobody_takes_answers_that_were_not_read_for_others() -> None:
    topics, brokers = three_leaders(), {"n0": Leader(10, fails=True), "n1": Leader(20)}
    found = Offsets(0, topics.column(), topics.column())
    with pytest.raises(Unreachable):
        picture.read_offsets(Leaders(**brokers), topics, found)  # type: ignore[arg-type]
    assert all(one.closed for one in brokers.values() if one.waiting)
    assert brokers["n1"].waiting, "the test sends ahead"


class Directories:
    """A connection to a broker with one log directory, which has partitions of the topics `orders`
    and `hidden`. If it `fails`, it has no answer."""

    def __init__(self, all_asked: Callable[[], bool], fails: bool = False) -> None:
        self.all_asked, self.fails = all_asked, fails
        self.waiting = self.asked = False

    def send(self, request: DescribeLogDirsRequest) -> int:
        self.waiting = self.asked = True
        return 1

    def answer(self, sent: int, *, in_parts: tuple[str, ...]) -> DecodedInParts:
        assert self.all_asked(), "the brokers work at the same time"
        if self.fails:
            raise Unreachable("gone")
        made = DescribeLogDirsResponse.Result
        found = DescribeLogDirsResponse(results=[made(log_dir="/d", topics=[
            made.Topic(name="orders", partitions=[
                made.Topic.Partition(partition_index=index, partition_size=7) for index in (0, 1)]),
            made.Topic(name="hidden", partitions=[
                made.Topic.Partition(partition_index=0, partition_size=100)]),
        ])])
        return DecodedInParts(DescribeLogDirsResponse, found.encode(4), 4, *in_parts)


def test_all_brokers_add_up_sizes_at_the_same_time_and_one_that_fails_leaves_a_note() -> None:
    def all_asked() -> bool:
        return all(one.asked for one in brokers.values())

    brokers = {f"n{number}": Directories(all_asked, number == 1) for number in range(3)}
    one = DescribeClusterResponse.Broker
    members = Members("c", 0, [one(broker_id=number) for number in range(5)], {4})
    notes: list[str] = []
    asked = picture.ask_disks(Leaders(**brokers), members, notes)  # type: ignore[arg-type]
    disks = picture.read_disks(asked, shop(), notes)
    assert notes == ["disks of broker 3: not there", "disks of broker 1: gone"] and not asked
    assert [(one.broker, one.replicas, one.size) for one in disks.directories] == [
        (0, 3, 114), (2, 3, 114)]
    assert disks.shown_bytes == 28 and list(disks.sizes) == [7, 7] + [UNKNOWN] * 3
