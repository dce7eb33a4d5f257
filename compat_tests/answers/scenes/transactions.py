"""Transactions: producers, partitions and offsets in them, their ends, and their descriptions."""

from __future__ import annotations

from typing import Any

from compat_tests.answers.conversation import Talk, batch
from compat_tests.answers.scenes.batches import read_all
from compat_tests.answers.scenes.offsets import fetch_body as offsets_body
from compat_tests.answers.variants import Body
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.wire.apis import ApiKey

Producer = tuple[int, int]


def init_producers(talk: Talk) -> None:
    """InitProducerId with each field wrong in turn, and with the producer's id and epoch."""

    def make() -> Body:
        return {"transactional_id": talk.fresh("id"), "transaction_timeout_ms": 60_000,
                "producer_id": -1, "producer_epoch": -1}

    talk.explore("InitProducerId", make, stride=1)
    talk.explore("InitProducerId", lambda: make() | {"transactional_id": None}, stride=1)
    for version in (3, 4, 5):
        name = talk.fresh("again")
        known = talk.producer(name)
        for producer_id, epoch in (known, (known[0], 5), (known[0], -1), (-1, 0), (77, 0),
                                   (known[0], known[1] + 1), known, (known[0], known[1])):
            talk.ask("InitProducerId", version, {
                "transactional_id": name, "transaction_timeout_ms": 60_000,
                "producer_id": producer_id, "producer_epoch": epoch,
            })  # fmt: skip


def add_body(name: str, producer: Producer, topics: list[Body], **more: Any) -> Body:
    """An AddPartitionsToTxn for all versions."""
    producer_id, epoch = producer
    return {
        "v3_and_below_transactional_id": name, "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch, "v3_and_below_topics": topics,
        "transactions": [{
            "transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch,
            "verify_only": False, "topics": topics,
        }],
    } | more  # fmt: skip


def end(talk: Talk, name: str, producer: Producer, commit: bool, version: int = 3) -> Any:
    """Send EndTxn, and wait until the transaction has ended; returns the answer."""
    answer = settled(talk, "EndTxn", version, {
        "transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1],
        "committed": commit,
    })  # fmt: skip
    until_ended(talk, name)
    return answer


def until_ended(talk: Talk, name: str) -> None:
    """Wait until a transaction's markers are written; Kafka writes them after it has answered."""
    noted = len(talk.entries)
    for _ in range(2000):
        answer = talk.ask("DescribeTransactions", 0, {"transactional_ids": [name]})
        del talk.entries[noted:]
        if not answer.transaction_states[0].transaction_state.startswith("Prepare"):
            return
    raise AssertionError(f"the transaction of {name} does not end")


def settled(talk: Talk, api: str, version: int, body: Body) -> Any:
    """Repeat a request while it gets CONCURRENT_TRANSACTIONS; record only the last answer."""
    for _ in range(2000):
        answer = talk.ask(api, version, body)
        if "51" not in codes(talk.entries[-1].answer):
            return answer
        talk.entries.pop()
    raise AssertionError(f"{api} of {talk.scene} stays concurrent")


def codes(answer: Any) -> set[str]:
    """All error codes in an answer, as text."""
    if isinstance(answer, list):
        return {code for each in answer for code in codes(each)}
    if not isinstance(answer, dict):
        return set()
    found = {code for each in answer.values() for code in codes(each)}
    return found | {str(value) for key, value in answer.items() if key.endswith("error_code")}


def add_partitions(talk: Talk) -> None:
    """AddPartitionsToTxn with each field wrong in turn, and with unusual partitions."""
    topic = talk.topic("t", 2)
    name = talk.fresh("id")
    producer = talk.producer(name)
    topics = [{"name": topic, "partitions": [0, 1]}]
    talk.explore("AddPartitionsToTxn", lambda: add_body(name, producer, topics), stride=2)
    for version in COMMON_VERSIONS[ApiKey.ADD_PARTITIONS_TO_TXN]:
        for added in (
            [], [{"name": topic, "partitions": []}], [{"name": topic, "partitions": [0, 0]}],
            [*topics, *topics], [{"name": "__consumer_offsets", "partitions": [0]}],
            [{"name": "__transaction_state", "partitions": [0]}],
            [{"name": "__consumer_offsets", "partitions": [999]}, *topics],
            [{"name": topic, "partitions": [0, 9]}],
            [{"name": "nobody", "partitions": [0]}, *topics],
        ):
            talk.ask("AddPartitionsToTxn", version, add_body(name, producer, added))
        for other in ((77, 0), (producer[0], 5), (producer[0], -1), (-1, -1)):
            talk.ask("AddPartitionsToTxn", version, add_body(name, other, topics))
            talk.ask("AddPartitionsToTxn", version, add_body("nobody", other, topics))
    for version in (4, 5):
        verified = add_body(name, producer, topics)
        verified["transactions"][0]["verify_only"] = True
        talk.ask("AddPartitionsToTxn", version, verified)
        twice = add_body(name, producer, topics)
        twice["transactions"] *= 2
        talk.ask("AddPartitionsToTxn", version, twice)
        two = add_body(name, producer, topics)
        two["transactions"].append(two["transactions"][0] | {"transactional_id": "nobody"})
        talk.ask("AddPartitionsToTxn", version, two)
    end(talk, name, producer, True)
    for version in (4, 5):
        verified = add_body(name, producer, topics)
        verified["transactions"][0]["verify_only"] = True
        settled(talk, "AddPartitionsToTxn", version, verified)


def ends(talk: Talk) -> None:
    """AddOffsetsToTxn with each field wrong in turn, and EndTxn in every state of a transaction."""
    topic = talk.topic("t")
    name = talk.fresh("id")
    producer = talk.producer(name)
    talk.explore("AddOffsetsToTxn", lambda: {
        "transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1],
        "group_id": "a-group",
    }, stride=1)  # fmt: skip
    end(talk, name, producer, True)
    for version in COMMON_VERSIONS[ApiKey.END_TXN]:
        for commit in (True, False):
            name = talk.fresh("ended")
            current = talk.producer(name)
            end(talk, name, current, commit, version)                 # nothing has begun
            current = talk.producer(name)
            settled(talk, "AddPartitionsToTxn", 3,
                    add_body(name, current, [{"name": topic, "partitions": [0]}]))
            for other in ((77, 0), (current[0], 9), (current[0], -1)):
                end(talk, name, other, commit, version)
            end(talk, "nobody", current, commit, version)
            end(talk, "", current, commit, version)
            answer = end(talk, name, current, commit, version)
            end(talk, name, current, commit, version)                 # once more
            end(talk, name, current, not commit, version)
            if version >= 5:
                current = answer.producer_id, answer.producer_epoch
                end(talk, name, current, commit, version)
            describe(talk, name)


def describe(talk: Talk, *names: str) -> None:
    """Record the state of transactions."""
    settled(talk, "DescribeTransactions", 0, {"transactional_ids": list(names)})


def data(talk: Talk, producer: Producer, sequence: int, *values: str) -> bytes:
    """A transactional batch."""
    return batch(*values, producer_id=producer[0], producer_epoch=producer[1],
                 base_sequence=sequence, transactional=True)


def transactional_produce(talk: Talk) -> None:
    """Produce inside and outside transactions, as the right producer and as others."""
    topic = talk.topic("t", 2)
    for version in COMMON_VERSIONS[ApiKey.PRODUCE]:
        name = talk.fresh("id")
        producer = talk.producer(name)

        def write(who: str | None, by: Producer, sequence: int, **more: Any) -> None:
            talk.produce(topic, data(talk, by, sequence, "v"), version,  # noqa: B023
                         transactional_id=who, **more)

        write(name, producer, 0)                           # not begun
        write(None, producer, 0)
        settled(talk, "AddPartitionsToTxn", 3,
                add_body(name, producer, [{"name": topic, "partitions": [0]}]))
        write(name, producer, 0, acks=1)
        write(name, producer, 0)
        write(name, producer, 0)
        write(None, producer, 1)
        write("nobody", producer, 1)
        write("", producer, 1)
        write(name, producer, 5)
        write(name, (producer[0], 5), 0)
        write(name, (77, 0), 0)
        write(name, producer, 0, partition=1)
        talk.produce(topic, batch("plain"), version, transactional_id=name)
        talk.produce(topic, data(talk, producer, 1, "a") + data(talk, producer, 2, "b"), version,
                     transactional_id=name)
        end(talk, name, producer, version % 2 == 0)
        write(name, producer, 2)                           # after its end
    read_all(talk, topic, 2)


def isolated_fetches(talk: Talk) -> None:
    """Fetches with both isolation levels, from every offset of committed, aborted and open
    transactions."""
    topic = talk.topic("t")
    for number, commit in enumerate((True, False, False, True, False)):
        name = talk.fresh(f"id{number}")
        producer = talk.producer(name)
        settled(talk, "AddPartitionsToTxn", 3,
                add_body(name, producer, [{"name": topic, "partitions": [0]}]))
        talk.produce(topic, data(talk, producer, 0, "a", "b"), transactional_id=name)
        talk.produce(topic, batch("between"))
        end(talk, name, producer, commit)
        describe(talk, name)
    opened = talk.fresh("open")
    producer = talk.producer(opened)
    settled(talk, "AddPartitionsToTxn", 3,
            add_body(opened, producer, [{"name": topic, "partitions": [0]}]))
    talk.produce(topic, data(talk, producer, 0, "open"), transactional_id=opened)
    talk.produce(topic, batch("after"))
    for version in (4, 7, 11, 12, 18):
        for level in (0, 1, 2, -1):
            for offset in range(24):
                for limit in (1, 1 << 20):
                    if version not in (4, 18) and (level not in (0, 1) or offset % 5):
                        continue
                    partition = {"partition": 0, "fetch_offset": offset,
                                 "partition_max_bytes": limit}
                    talk.ask("Fetch", version, {
                        "max_wait_ms": 0, "min_bytes": 0, "max_bytes": limit,
                        "isolation_level": level,
                        "topics": [{"topic": topic, "topic_id": talk.ids[topic],
                                    "partitions": [partition]}],
                    })  # fmt: skip
    for level in (-1, 0, 1, 2):
        for timestamp in (-1, -2, -3, 1_600_000_000_001):
            partition = {"partition_index": 0, "timestamp": timestamp}
            talk.ask("ListOffsets", 7, {
                "replica_id": -1, "isolation_level": level,
                "topics": [{"name": topic, "partitions": [partition]}],
            })  # fmt: skip
    talk.ask("DescribeProducers", 0, {"topics": [{"name": topic, "partition_indexes": [0]}]})
    end(talk, opened, producer, False)


def commit_body(talk: Talk, name: str, producer: Producer, group: str, topic: str) -> Body:
    """A TxnOffsetCommit of two partitions."""
    partitions = [
        {"partition_index": index, "committed_offset": 5, "committed_leader_epoch": -1,
         "committed_metadata": "m"}
        for index in (0, 1)
    ]  # fmt: skip
    return {
        "transactional_id": name, "group_id": group, "producer_id": producer[0],
        "producer_epoch": producer[1], "generation_id_or_member_epoch": -1, "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "topic_id": talk.ids[topic], "partitions": partitions}],
    }  # fmt: skip


def transactional_offsets(talk: Talk) -> None:
    """TxnOffsetCommit with each field wrong in turn, and which offsets OffsetFetch then shows."""
    topic, group, name = talk.topic("t", 2), talk.fresh("g"), talk.fresh("id")
    producer = talk.producer(name)
    settled(talk, "AddOffsetsToTxn", 3, {
        "transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1],
        "group_id": group})
    talk.explore("TxnOffsetCommit", lambda: commit_body(talk, name, producer, group, topic),
                 stride=2, skip=("transactional_id", "group_id"))
    for version in COMMON_VERSIONS[ApiKey.TXN_OFFSET_COMMIT]:
        for other in ("", "nobody"):
            body = commit_body(talk, name, producer, group, topic)
            talk.ask("TxnOffsetCommit", version, body | {"transactional_id": other})
            if version < 5:
                talk.ask("TxnOffsetCommit", version, body | {"group_id": other})
        body = commit_body(talk, name, producer, group, topic)
        talk.ask("TxnOffsetCommit", version, body | {"topics": []})
        talk.ask("TxnOffsetCommit", version, body | {"topics": body["topics"] * 2})
    for stable in (False, True):
        for version in (6, 7, 8, 9):
            talk.ask("OffsetFetch", version, offsets_body(talk, group, topic,
                                                          require_stable=stable))
    end(talk, name, producer, True)
    describe(talk, name)
    for version in (6, 8):
        talk.ask("OffsetFetch", version, offsets_body(talk, group, topic))


def administration(talk: Talk) -> None:
    """DescribeTransactions, ListTransactions and WriteTxnMarkers."""
    topic = talk.topic("t", 2)
    begun, done = talk.fresh("begun"), talk.fresh("done")
    producers = {name: talk.producer(name) for name in (begun, done)}
    for name, producer in producers.items():
        settled(talk, "AddPartitionsToTxn", 3,
                add_body(name, producer, [{"name": topic, "partitions": [0, 1]}]))
    talk.produce(topic, data(talk, producers[begun], 0, "v"), transactional_id=begun)
    end(talk, done, producers[done], True)
    describe(talk, done)
    talk.explore("DescribeTransactions", lambda: {"transactional_ids": [begun, done]})
    base = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1,
            "transactional_id_pattern": None}
    for more in (
        {}, {"state_filters": ["Ongoing"]}, {"state_filters": ["Nonsense", "Ongoing"]},
        {"state_filters": ["ongoing"]}, {"state_filters": [""]}, {"producer_id_filters": [77]},
        {"producer_id_filters": [producers[begun][0]]}, {"duration_filter": 0},
        {"duration_filter": 1 << 40}, {"duration_filter": -5}, {"transactional_id_pattern": ""},
        {"transactional_id_pattern": ".*begun.*"}, {"transactional_id_pattern": "a("},
        {"transactional_id_pattern": "begun"},
    ):
        for version in range(3):
            talk.ask("ListTransactions", version, base | more)
            answer = talk.entries[-1].answer
            if isinstance(answer, dict):
                answer["transaction_states"] = [
                    each for each in answer["transaction_states"]
                    if each["transactional_id"].startswith(talk.scene)
                ]
    producer_id, epoch = producers[begun]

    def marker() -> Body:
        return {"markers": [{
            "producer_id": producer_id, "producer_epoch": epoch, "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [0, 9]},
                       {"name": "nobody", "partition_indexes": [0]}],
            "coordinator_epoch": 0, "transaction_version": 0,
        }]}  # fmt: skip

    talk.explore("WriteTxnMarkers", marker, stride=1,
                 skip=("transaction_version", "producer_epoch", "coordinator_epoch"))
    talk.ask("DescribeProducers", 0, {"topics": [{"name": topic, "partition_indexes": [0, 1]}]})
    end(talk, begun, producers[begun], False)


SCENES = (
    init_producers, add_partitions, ends, transactional_produce, isolated_fetches,
    transactional_offsets, administration,
)  # fmt: skip
