"""A lane writes rows and progress in one transaction, and only while the topics keep their ids."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.spark_interop.cluster import Cluster
from ottla.spark_interop.errors import DataLost, NoBroker, PipelineError
from ottla.spark_interop.pipelines import progress, replay, targets, transactional
from ottla.spark_interop.pipelines.files import LocalFiles
from ottla.spark_interop.pipelines.transactional import Destination, Lane, Origin
from ottla.testing import Broker

DAYS_8_HOURS = 8 * 24


NUMBERS = itertools.count()


def new_topic(broker: Broker, **more: Any) -> str:
    return broker.create_topic(f"t{next(NUMBERS)}", **more)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture
def to(broker: Broker) -> Destination:
    """A destination with two topics of the test's own."""
    good, bad = new_topic(broker), new_topic(broker)
    return Destination(
        Cluster(broker.bootstrap_servers), good, f"writer-{good}", source="t 1",
        source_cluster="c1", aside=bad,
    )  # fmt: skip


def row(position: int, value: bytes = b"v", aside: bool = False) -> dict[str, Any]:
    return {"position": position, "key": b"k", "value": value, "partition": 0, "aside": aside}


def lane(to: Destination) -> Lane:
    return Lane(to, transactional.begin(to), 0)


def write(to: Destination, *rows: dict[str, Any]) -> Lane:
    one = lane(to)
    for each in rows:
        one.add(each)
    one.finish()
    return one


def committed(to: Destination, topic: str) -> list[bytes]:
    consumer = Consumer(to.cluster.client(**{
        "group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True,
    }))  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        found.append(bytes(message.value()))
    consumer.close()
    return found


def test_good_and_bad_rows_and_the_position_are_one_transaction(to: Destination) -> None:
    first = lane(to)
    for each in (row(1, b"good"), row(2, b"bad", aside=True)):
        first.add(each)
    first.abandon()
    assert committed(to, to.topic) == committed(to, str(to.aside)) == []
    assert transactional.positions(to) == {}
    write(to, row(1, b"good"), row(2, b"bad", aside=True))
    # If the function judges differently in the next run, this changes nothing: the record has
    # already been written.
    again = write(to, row(1, b"good"), row(2, b"good after all"))
    assert (again.written, again.skipped) == (0, 2)
    assert (committed(to, to.topic), committed(to, str(to.aside))) == ([b"good"], [b"bad"])
    assert transactional.positions(to) == {0: 2}


def test_a_replay_estimates_its_records_from_what_is_committed(to: Destination) -> None:
    write(to, row(1))
    grown = replay.growth(to, [0])
    assert grown() == 0
    write(to, row(2), row(3))
    assert grown() == 3     # two records and a transaction's marker


def test_without_a_checkpoint_a_pipeline_does_not_skip_deleted_records(
    broker: Broker, to: Destination, tmp_path: Path
) -> None:
    source = new_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce(source, b"%d" % number)
    producer.flush()
    check = partial(targets.refuse_unread, to.cluster, source, to, LocalFiles(tmp_path))
    check()                             # the first run: it begins where the topic begins
    write(to, row(4))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for start, lost in ((4, False), (7, True)):
        deleted = admin.delete_records([TopicPartition(source, 0, start)])
        [done] = deleted.values()
        done.result(30)
        if lost:
            with pytest.raises(DataLost, match=f"offsets 4 to 6 of partition 0 of {source} were"):
                check()
        else:
            check()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    check()                             # Spark itself compares the checkpoint with the topic


def test_progress_outlives_the_offsets_of_groups() -> None:
    with Broker({"offsets.retention.minutes": 60}) as broker:
        topic = new_topic(broker, configs={"retention.ms": "-1"})
        to = Destination(Cluster(broker.bootstrap_servers), topic, "replay", source_cluster="c")
        write(to, row(1), row(2))
        broker.advance(hours=DAYS_8_HOURS)
        assert write(to, row(1), row(2)).skipped == 2
        assert transactional.positions(to) == {0: 2}
        assert to.cluster.settings(progress.TOPIC)["cleanup.policy"].value == "compact"


def test_pipelines_of_two_source_clusters_do_not_fence_each_other(to: Destination) -> None:
    other = replace(to, source_cluster="c2", source="t 2")
    one, two = lane(to), lane(other)
    for position in (1, 2):
        one.add(row(position, b"one"))
        two.add(row(position, b"two"))
    one.finish()
    two.finish()
    assert sorted(committed(to, to.topic)) == [b"one", b"one", b"two", b"two"]
    elsewhere = replace(to, topic=str(to.aside), aside=None)
    assert len({d.transactional_id(0) for d in (to, other, elsewhere)}) == 3


def test_a_second_run_of_the_same_pipeline_ends_the_first_with_a_sentence(to: Destination) -> None:
    first = lane(to)
    first.add(row(1))
    write(to, row(1))
    with pytest.raises(PipelineError, match="another run of this pipeline writes"):
        first.finish()
    assert len(committed(to, to.topic)) == 1


def test_another_source_of_the_same_name_is_refused(to: Destination) -> None:
    write(to, row(1))
    with pytest.raises(PipelineError, match=r"from another source .* a name of its own"):
        transactional.begin(replace(to, source="t 2"))


def test_topics_that_were_made_again_have_no_progress_and_one_of_two_is_refused(
    broker: Broker, to: Destination
) -> None:
    write(to, row(1), row(2, aside=True))
    broker.delete_topic(to.topic)
    broker.create_topic(to.topic)
    with pytest.raises(PipelineError, match=f"used another topic instead of {to.topic}, or"):
        transactional.begin(to)
    broker.delete_topic(str(to.aside))
    broker.create_topic(str(to.aside))
    assert transactional.positions(to) == {}
    assert write(to, row(1), row(2, aside=True)).written == 2


def test_only_the_source_of_an_idle_pipeline_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def reach(cluster: Cluster) -> None:
        raise NoBroker(str(cluster.bootstrap))

    monkeypatch.setattr(Cluster, "reach", reach)
    origin = Origin(Cluster("source"), "t", "an id")
    with pytest.raises(NoBroker, match="source"):
        Destination(Cluster("destination"), "t", "mirror", origin=origin).reach()


@pytest.mark.parametrize("which", ["source", "target"])
def test_nothing_is_committed_once_a_topic_was_made_again(
    broker: Broker, to: Destination, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional, "SETTLED_SECONDS", 0.0)
    source = new_topic(broker)
    origin = Origin(to.cluster, source, to.cluster.topic_id(source))
    known = transactional.begun_with(replace(to, origin=origin))
    first = lane(known)
    first.add(row(1))
    changed = source if which == "source" else str(to.aside)
    broker.delete_topic(changed)
    with pytest.raises(PipelineError, match=f"topic {changed} was deleted while"):
        first.finish()
    first.abandon()
    broker.create_topic(changed)
    if which == "target":       # between two batches
        with pytest.raises(PipelineError, match="was deleted and created again while"):
            transactional.begin(known)
    with pytest.raises(PipelineError, match=f"topic {source} was deleted and created again"):
        Origin(to.cluster, source, "an earlier id").check()
    assert committed(to, to.topic) == []


def test_a_topic_takes_records_as_large_as_it_says_and_names_what_is_too_large(
    broker: Broker,
) -> None:
    topic = new_topic(broker, configs={"max.message.bytes": "3000000"})
    to = Destination(Cluster(broker.bootstrap_servers), topic, "large", source_cluster="c")
    large = os.urandom(2_900_000)
    write(to, row(1, large))
    assert committed(to, topic) == [large]
    write(to, row(2, b"0" * 10_000_000))        # compression makes its batch small enough
    too_large = lane(to)
    too_large.add(row(3, os.urandom(3_100_000)))
    with pytest.raises(PipelineError, match=(
        rf"^{topic} refuses a record of 31\d+ bytes .* raise max\.message\.bytes of {topic}$"
    )):  # fmt: skip
        too_large.finish()


@pytest.mark.parametrize("small", ["topic", "aside"])
def test_small_records_are_not_refused_because_their_batch_is_too_large(
    broker: Broker, small: str
) -> None:
    limits = {name: "20000" if name == small else "1000000" for name in ("topic", "aside")}
    topic, aside = (
        new_topic(broker, configs={"max.message.bytes": limit}) for limit in limits.values()
    )
    to = Destination(
        Cluster(broker.bootstrap_servers), topic, f"small-{topic}", source_cluster="c", aside=aside
    )
    values = [os.urandom(9_900) for _ in range(20)]
    aside_too = [row(n, value, n % 2 == 0) for n, value in enumerate(values, 1)]
    write(to, *aside_too)
    assert committed(to, topic) == values[::2]
    assert committed(to, aside) == values[1::2]


def test_progress_behind_another_pipelines_open_transaction_is_waited_for(to: Destination) -> None:
    first = lane(to)
    first.add(row(1))
    blocking = Producer(to.cluster.client(**{"transactional.id": "another pipeline"}))
    blocking.init_transactions(10)
    blocking.begin_transaction()
    blocking.produce(progress.TOPIC, "{}", "not ours", to.partition)
    blocking.flush(10)
    first.finish()
    found: list[dict[int, int]] = []
    reading = threading.Thread(target=lambda: found.append(transactional.positions(to)))
    reading.start()
    reading.join(1)
    assert not found                            # {} would let a pipeline write the row again
    blocking.abort_transaction(10)
    reading.join(30)
    assert found == [{0: 1}]


@pytest.mark.parametrize("rate", [0.05, 4, 1_000])
def test_a_rate_is_kept_however_low_it_is(
    to: Destination, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`poll` returns as soon as a record is delivered, even if it was given more time."""
    now = [0.0]

    class Clocked(Producer):
        def poll(self, seconds: float) -> int:
            now[0] += min(seconds, 0.02)
            return int(super().poll(0))

    monkeypatch.setattr("confluent_kafka.Producer", Clocked)
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None)
    monkeypatch.setattr(transactional, "time", clock)
    rows = max(4, int(rate / 4))
    one = lane(replace(to, rate=rate))
    for position in range(1, rows + 1):
        one.add(row(position))
    assert (rows - 1) / rate - 0.1 < now[0] < rows / rate
    one.finish()
    assert transactional.positions(to) == {0: rows}
