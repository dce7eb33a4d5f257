"""What keeps the console light and quick on a large cluster: columns, parts, pieces."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ottla.console import picture
from ottla.console.cluster_pages import overview, pending_of, topic_page, topic_rows
from ottla.console.documents import PIECE, encoded
from ottla.console.picture import ASKED_AT_ONCE, Members, Offsets, Picture, pages, rates, records
from ottla.console.topic_columns import UNKNOWN, Topics
from ottla.console.views import Views
from ottla.wire.messages import MetadataResponse

MADE = MetadataResponse.Topic
WAIT_SECONDS = 30


def described(name: str, *partitions: tuple[int, list[int], list[int]]) -> Any:
    """Metadata of a topic: leader, replicas and in-sync replicas of each partition."""
    return MADE(name=name, topic_id=name.encode().ljust(16), partitions=[
        MADE.Partition(partition_index=index, leader_id=leader, leader_epoch=7,
                       replica_nodes=replicas, isr_nodes=isr)
        for index, (leader, replicas, isr) in enumerate(partitions)
    ])


def shop() -> Topics:
    """Topics of which one is healthy, one is behind, and one has no leader."""
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
    """Connections to no cluster: what is read is read in a thread."""

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
