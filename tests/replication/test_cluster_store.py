"""The cluster's metadata log: no gaps, no writer but the controller, unreadable data refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given

from ottla.replication import cluster_store, entries
from ottla.replication.cluster_store import (
    Behind,
    ClusterRefused,
    ClusterStore,
    GoneBack,
    Mark,
    apply_entries,
    entry_path,
)
from ottla.replication.coordination import (
    BadVersion,
    Create,
    Delete,
    NoNode,
    Operation,
    PendingAnswer,
    Set,
    Stat,
    make,
)
from ottla.replication.election import Election
from ottla.replication.entries import (
    Entry,
    EntryHeader,
    EntryTooLarge,
    decode_entry,
    encode_entry,
)
from ottla.replication.metadata import MetadataImage, MetadataRecord, TopicDeleted
from ottla.replication.records import UnreadableMetadata, encode_record
from ottla.replication.standalone import snapshot_records
from tests.replication.coordination_promises import Called
from tests.replication.histories import histories
from tests.replication.server_and_store import ServerAndStore, setting
from tests.simulation.zookeeper import MemoryCoordination, ZooKeeperServer


class AskedFor(MemoryCoordination):
    """A session that records the paths of the nodes that it reads."""

    def __init__(self, server: ZooKeeperServer) -> None:
        super().__init__(server)
        self.asked: list[str] = []

    def get(self, path: str) -> PendingAnswer[tuple[bytes, Stat]]:
        self.asked.append(path)
        return super().get(path)


def on_a_cluster(test: Callable[[ServerAndStore], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def begun() -> None:
            cluster = ServerAndStore()
            await cluster.begin()
            await test(cluster)

        asyncio.run(begun())

    return run


@on_a_cluster
async def test_what_was_written_is_read_by_everybody_in_order(cluster: ServerAndStore) -> None:
    for n in range(70):
        await cluster.write(setting(str(n)), setting(f"{n}+"))
    other = MemoryCoordination(cluster.server)
    await other.start()
    assert await ClusterStore(other).load("c") == cluster.image
    assert (cluster.image.entry, cluster.image.offset) == (70, 140)


@on_a_cluster
async def test_a_reader_at_the_end_is_called_when_there_is_more(cluster: ServerAndStore) -> None:
    await cluster.write(setting("1"))
    news = Called()
    assert await cluster.store.after(1, news) == []
    await cluster.write(setting("2"))
    await news.wait()
    (entry,) = await cluster.store.after(1, news)
    assert (entry.number, entry.records) == (2, (setting("2"),))


@on_a_cluster
async def test_one_new_entry_is_read_with_few_requests(cluster: ServerAndStore) -> None:
    for n in range(100):
        await cluster.write(setting(str(n)))
    reader = AskedFor(cluster.server)
    await reader.start()
    store = ClusterStore(reader)
    number, turns = 0, 0
    while entries := await store.after(number):
        number, turns = entries[-1].number, turns + 1
    assert (number, turns) == (100, 8), "a start reads 1, 2, 4, ... 32, 32 and 5 entries"
    await cluster.write(setting("new"))
    reader.asked.clear()
    assert len(await store.after(100)) == 1 and await store.after(101) == []
    assert reader.asked == [entry_path(101), entry_path(102), entry_path(103), cluster_store.NEWEST]


@on_a_cluster
async def test_a_controller_that_was_deposed_writes_nothing(cluster: ServerAndStore) -> None:
    await cluster.write(setting("1"))
    again = Called()
    cluster.coordination.listen(lambda state: again())
    cluster.server.expire(cluster.coordination.session_id)
    other = MemoryCoordination(cluster.server)
    await other.start()
    term = await Election(other, 2, "j").contest()
    assert term is not None and term.epoch == cluster.term.epoch + 1
    await again.wait()
    with pytest.raises(BadVersion):
        await cluster.write(setting("2"))
    assert await cluster.store.after(1) == []


@on_a_cluster
async def test_an_entry_needs_the_one_before_it(cluster: ServerAndStore) -> None:
    await cluster.write(setting("1"))
    with pytest.raises(NoNode):
        await cluster.store.append(3, b"", cluster.term.version)


def test_a_snapshot_takes_the_place_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "PIECE_SIZE_MAX", 50)
    monkeypatch.setattr(cluster_store, "SNAPSHOT_AFTER_ENTRIES", 5)

    @on_a_cluster
    async def check(cluster: ServerAndStore) -> None:
        store = cluster.store
        for n in range(5):
            assert not await store.wants_snapshot(cluster.image)
            await cluster.write(setting(str(n)))
        assert await store.wants_snapshot(cluster.image)
        for _ in range(3):
            await store.write_snapshot(cluster.image, cluster.term.version)
            await cluster.write(setting("more"))
        await store.write_snapshot(cluster.image, cluster.term.version)
        # The entries after the previous snapshot stay, and so do the last two snapshots.
        assert await store.coordination.children(cluster_store.LOG) == [
            entry_path(7).rpartition("/")[2], entry_path(8).rpartition("/")[2]
        ]
        assert await store.coordination.children(cluster_store.SNAPSHOTS) == ["7", "8"]
        assert len(await store.coordination.children(f"{cluster_store.SNAPSHOTS}/8")) > 1
        assert await store.load("c") == cluster.image
        with pytest.raises(Behind):
            await store.after(3)
        assert await store.newest(MetadataImage.empty("c")) == cluster.image

    check()


@on_a_cluster
async def test_nodes_of_similar_names_are_left_alone_and_take_nothing_with_them(
    cluster: ServerAndStore,
) -> None:
    """A node's name may be similar to that of a snapshot or an entry, such as `02`. If it was read
    as a number, the node would be taken for the present snapshot, or for an entry that is gone.
    Then the real old nodes would never be deleted."""
    strange = [f"{cluster_store.LOG}/1", f"{cluster_store.LOG}/{'٣' * 13}",
               f"{cluster_store.SNAPSHOTS}/02", f"{cluster_store.SNAPSHOTS}/٢"]
    for path in strange:
        await make(cluster.coordination, path)
    for _ in range(3):
        await cluster.write(setting("a"))
        await cluster.store.write_snapshot(cluster.image, cluster.term.version)
    assert set(strange) <= set(cluster.server.nodes)
    assert entry_path(1) not in cluster.server.nodes
    assert await cluster.store.load("c") == cluster.image
    assert await cluster.store.coordination.children(f"{cluster_store.SNAPSHOTS}/2")


@on_a_cluster
async def test_a_snapshot_that_was_not_finished_is_not_read_and_made_anew(
    cluster: ServerAndStore
) -> None:
    await cluster.write(setting("1"))
    directory = f"{cluster_store.SNAPSHOTS}/1"
    await cluster.coordination.multi([Create(directory), Create(f"{directory}/0", b"half")])
    assert await cluster.store.load("c") == cluster.image
    await cluster.store.write_snapshot(cluster.image, cluster.term.version)
    assert await cluster.store.newest(MetadataImage.empty("c")) == cluster.image


@on_a_cluster
async def test_a_damaged_snapshot_or_entry_stops_the_reader(cluster: ServerAndStore) -> None:
    await cluster.write(setting("1"))
    await cluster.store.write_snapshot(cluster.image, cluster.term.version)
    await cluster.coordination.multi([Set(f"{cluster_store.SNAPSHOTS}/1/0", b"other")])
    with pytest.raises(UnreadableMetadata, match="checksum"):
        await cluster.store.load("c")
    await cluster.coordination.multi([Create(entry_path(2), b"garbage")])
    with pytest.raises(UnreadableMetadata, match="entry 2"):
        await cluster.store.after(1)


@on_a_cluster
async def test_the_first_broker_names_the_cluster_and_kafkas_root_is_refused(
    cluster: ServerAndStore
) -> None:
    assert await cluster.store.cluster_id("first") == "first"
    assert await cluster.store.cluster_id("second") == "first"
    await cluster.coordination.multi([Set(cluster_store.CLUSTER_ID, b"{}")])
    with pytest.raises(ClusterRefused, match="no cluster id"):
        await cluster.store.cluster_id("third")
    await make(cluster.coordination, "/brokers/topics")
    with pytest.raises(ClusterRefused, match="chroot"):
        await cluster.store.prepare()


async def write_again(cluster: ServerAndStore, number: int, batch: str) -> None:
    """Replace an entry by another one, as in a ZooKeeper that was restored from a backup."""
    header = EntryHeader(1, 1, cluster.term.epoch, batch, number - 1, 1)
    data = encode_entry(header, [encode_record(setting("other"))])
    path = entry_path(number)
    await cluster.coordination.multi([Delete(path), Create(path, data)])


@on_a_cluster
async def test_a_mark_shows_that_zookeeper_went_back(cluster: ServerAndStore) -> None:
    await cluster.write(setting("1"))
    mark = await cluster.store.mark(1)
    assert mark is not None and await cluster.store.mark(2) is None
    await cluster.store.check_mark(mark)
    with pytest.raises(GoneBack, match="entry 2 "):
        await cluster.store.check_mark(Mark(2, mark.czxid))
    await write_again(cluster, 1, "b")
    with pytest.raises(GoneBack, match="entry 1 "):
        await cluster.store.check_mark(mark)


@on_a_cluster
async def test_the_last_entry_shows_that_zookeeper_went_back(cluster: ServerAndStore) -> None:
    store = cluster.store
    await store.check_last(0)
    await cluster.write(setting("1"))
    await cluster.write(setting("2"))
    assert len(await store.after(0)) + len(await store.after(1)) == 2
    await store.check_last(2)
    with pytest.raises(GoneBack, match="entry 3 "):
        await store.check_last(3)
    await write_again(cluster, 1, "of others")
    await store.check_last(1)                   # only the last entry is remembered
    await write_again(cluster, 2, "b")
    await store.check_last(2)                   # the same controller wrote it again
    await write_again(cluster, 2, "of others")
    with pytest.raises(GoneBack, match="entry 2 "):
        await store.check_last(2)


@on_a_cluster
async def test_an_entry_that_a_snapshot_contains_may_be_deleted(cluster: ServerAndStore) -> None:
    marks = []
    for n in range(3):
        await cluster.write(setting(str(n)))
        marks.append(await cluster.store.mark(n + 1))
    await cluster.coordination.multi([Delete(entry_path(n)) for n in (3, 2)])
    image = replace(cluster.image, entry=2)
    await cluster.store.write_snapshot(image, cluster.term.version)
    for number, mark in enumerate(marks, 1):
        assert mark is not None
        if number == 3:
            with pytest.raises(GoneBack):
                await cluster.store.check_mark(mark)
            with pytest.raises(GoneBack):
                await cluster.store.check_last(number)
        else:
            await cluster.store.check_mark(mark)
            await cluster.store.check_last(number)


@given(histories())
def test_entries_and_snapshots_say_what_they_were_made_of(records: list[MetadataRecord]) -> None:
    header = EntryHeader(1, 3, 7, "batch", 0, len(records))
    entry = decode_entry(1, 99, encode_entry(header, map(encode_record, records)))
    assert (entry.header, list(entry.records), entry.czxid) == (header, records, 99)
    image = apply_entries(MetadataImage.empty("c"), [entry])
    kept = list(snapshot_records(image))
    pieces = entries.encode_snapshot(replace(header, records=len(kept)), kept)
    assert entries.decode_snapshot(1, pieces)[1] == tuple(kept)


def test_entries_that_do_not_follow_are_of_a_restored_backup() -> None:
    records = (setting("1"),)
    header = EntryHeader(1, 1, 1, "", 5, 1)
    entry = decode_entry(1, 9, encode_entry(header, map(encode_record, records)))
    with pytest.raises(UnreadableMetadata, match="backup"):
        apply_entries(MetadataImage.empty("c"), [entry])


def test_an_entry_has_a_bound() -> None:
    many = [setting(str(n) * 1000) for n in range(10_000)]
    with pytest.raises(EntryTooLarge):
        encode_entry(EntryHeader(1, 1, 1, "", 0, len(many)), map(encode_record, many))


@pytest.mark.parametrize("change", [{"format": 2}, {"records": 5}])
def test_an_entry_of_another_form_is_refused(change: dict[str, int]) -> None:
    header = EntryHeader(**({"format": 1, "controller": 1, "epoch": 1, "batch": "", "offset": 0,
                        "records": 1} | change))  # type: ignore[arg-type]
    with pytest.raises(UnreadableMetadata):
        decode_entry(1, 1, encode_entry(header, [encode_record(setting("1"))]))


@pytest.mark.parametrize("text", [
    b"", b"garbage", b"\xff", b"[]", b"{}", b'{"entry":1,"pieces":1,"crc":0}',
    b'{"entry":1,"pieces":1,"crc":0,"before":0,"more":0}',
    b'{"entry":-1,"pieces":1,"crc":0,"before":0}',
    b'{"entry":1,"pieces":true,"crc":0,"before":0}',
    b'{"entry":"1","pieces":1,"crc":0,"before":0}',
    b'{"entry":1,"pieces":2049,"crc":0,"before":0}',
])
def test_a_newest_snapshot_that_is_not_readable_stops_the_reader(text: bytes) -> None:
    @on_a_cluster
    async def check(cluster: ServerAndStore) -> None:
        await cluster.coordination.multi([Create(cluster_store.NEWEST, text)])
        with pytest.raises(UnreadableMetadata, match="/metadata/newest in ZooKeeper is not"):
            await cluster.store.load("c")

    check()


@pytest.mark.parametrize("pieces", [0, 1, 2048])
def test_a_newest_snapshot_of_any_size_is_looked_for(pieces: int) -> None:
    text = b'{"entry":1,"pieces":%d,"crc":1,"before":0}' % pieces

    @on_a_cluster
    async def check(cluster: ServerAndStore) -> None:
        await cluster.coordination.multi([Create(cluster_store.NEWEST, text)])
        with pytest.raises(UnreadableMetadata, match="/metadata/snapshots/1 in ZooKeeper"):
            await cluster.store.load("c")

    check()


@pytest.mark.parametrize(("name", "digits", "number"), [
    ("0", 0, 0), ("17", 0, 17), ("9" * 13, 0, 10**13 - 1), ("0000000000017", 13, 17),
    ("017", 0, None), ("17", 13, None), ("", 0, None), ("1" * 14, 0, None), ("1x", 0, None),
    ("-1", 0, None), ("٣", 0, None), ("1_0", 0, None),
])
def test_only_names_of_entries_and_snapshots_have_a_number(
    name: str, digits: int, number: int | None
) -> None:
    assert cluster_store.number_of(name, digits) == number


@pytest.mark.parametrize("text", [b"", b"1", b"[]", b"{}", b'{"id":""}', b'{"id":3}', b"\xff"])
def test_a_cluster_id_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(ClusterRefused, match="contains no cluster id"):
        cluster_store.id_of_cluster(text)
    assert cluster_store.id_of_cluster(cluster_store.cluster_id_text("c")) == "c"


@on_a_cluster
async def test_entries_are_deleted_a_hundred_at_a_time(cluster: ServerAndStore) -> None:
    """One multi with thousands of deletions would be larger than ZooKeeper takes."""
    for n in range(205):
        await cluster.write(setting(str(n)))
    await cluster.store.write_snapshot(cluster.image, cluster.term.version)
    await cluster.write(setting("more"))
    sizes: list[int] = []
    multi = cluster.coordination.multi

    def counted(operations: Sequence[Operation]) -> PendingAnswer[None]:
        if any(each.path.startswith(cluster_store.LOG) for each in operations):
            sizes.append(sum(isinstance(each, Delete) for each in operations))
        return multi(operations)

    cluster.coordination.multi = counted            # type: ignore[method-assign]
    await cluster.store.write_snapshot(cluster.image, cluster.term.version)
    assert sizes == [100, 100, 4]
    assert await cluster.store.coordination.children(cluster_store.LOG) == [
        "0000000000205", "0000000000206"]


def test_an_entry_that_contradicts_the_others_is_named() -> None:
    def entry(number: int, offset: int, record: MetadataRecord) -> Entry:
        header = EntryHeader(1, 1, 1, "", offset, 1)
        return Entry(number, 9, header, (record,))

    empty, wrong = MetadataImage.empty("c"), TopicDeleted("none")
    with pytest.raises(UnreadableMetadata, match=r"^entry 1 of the metadata log cannot be applied"):
        apply_entries(empty, [entry(1, 0, wrong)])
    with pytest.raises(UnreadableMetadata, match=r"^one of the entries 1 to 2 of the metadata log"):
        apply_entries(empty, [entry(1, 0, setting("1")), entry(2, 1, wrong)])
    good = apply_entries(empty, [entry(1, 0, setting("1")), entry(2, 1, setting("2"))])
    assert (good.entry, good.offset) == (2, 2)
    assert apply_entries(good, []) == good
    for number, offset in ((2, 2), (4, 2), (3, 1), (3, 3)):
        with pytest.raises(UnreadableMetadata, match="backup"):
            apply_entries(good, [entry(number, offset, setting("3"))])
