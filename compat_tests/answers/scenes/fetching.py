"""Fetch: positions, limits, epochs, isolation and sessions."""

from __future__ import annotations

from compat_tests.answers.conversation import Talk, batch
from compat_tests.answers.variants import Body
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.wire.apis import ApiKey

VERSIONS = COMMON_VERSIONS[ApiKey.FETCH]
SESSIONS = range(7, VERSIONS.stop)


def fetch_body(talk: Talk, topic: str, *indexes: int, **more: object) -> Body:
    """A fetch from offset 0 of partitions of one topic."""
    return {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20,
        "isolation_level": 0, "session_id": 0, "session_epoch": -1, "rack_id": "",
        "topics": [partitions_of(talk, topic, *indexes)] if indexes else [],
        "forgotten_topics_data": [],
    } | more  # fmt: skip


def partitions_of(talk: Talk, topic: str, *indexes: int, offset: int = 0) -> Body:
    """The part of a fetch for one topic."""
    return {
        "topic": topic, "topic_id": talk.ids.get(topic, bytes(16)),
        "partitions": [
            {"partition": index, "current_leader_epoch": -1, "fetch_offset": offset,
             "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
            for index in indexes
        ],
    }  # fmt: skip


def filled(talk: Talk, partitions: int = 2) -> str:
    """A topic with records in all its partitions."""
    topic = talk.topic("t", partitions)
    for index in range(partitions):
        for n in range(4):
            talk.produce(topic, batch(f"{n}" * 20, "b"), partition=index)
    return topic


def fetch_fields(talk: Talk) -> None:
    """Fetches with each field in turn at borderline values."""
    topic = filled(talk)
    talk.explore("Fetch", lambda: fetch_body(talk, topic, 0, 1),
                 skip=("max_wait_ms", "session_id"), stride=3)


def fetch_positions(talk: Talk) -> None:
    """Offsets inside and outside a log whose start has moved, and limits in bytes."""
    topic = filled(talk)
    partition = {"partition_index": 0, "offset": 3}
    talk.ask("DeleteRecords", 2, {"topics": [{"name": topic, "partitions": [partition]}],
                                  "timeout_ms": 5000})
    for version in VERSIONS:
        for offset in (0, 2, 3, 5, 7, 8, 9, 1 << 40):
            body = fetch_body(talk, topic)
            body["topics"] = [partitions_of(talk, topic, 0, offset=offset)]
            talk.ask("Fetch", version, body)
        for limit in (0, 1, 90, 200):
            talk.ask("Fetch", version, fetch_body(talk, topic, 0, 1, max_bytes=limit))
            body = fetch_body(talk, topic, 0, 1)
            body["topics"][0]["partitions"][0]["partition_max_bytes"] = limit
            talk.ask("Fetch", version, body)
        talk.ask("Fetch", version, fetch_body(talk, topic, 0, 1, isolation_level=1))
        talk.ask("Fetch", version, fetch_body(talk, topic, 0, 0, 9, 1))
        twice = fetch_body(talk, topic, 0)
        twice["topics"] = [*twice["topics"], partitions_of(talk, topic, 1)]
        talk.ask("Fetch", version, twice)
        talk.ask("Fetch", version, fetch_body(talk, "nobody", 0))


def fetch_epochs(talk: Talk) -> None:
    """Current, older and newer leader epochs, and fetches that detect a diverging log."""
    topic = filled(talk, 1)
    for version in range(9, VERSIONS.stop):
        for current in (-2, -1, 0, 1, 5):
            for last in (-2, -1, 0, 1) if version >= 12 else (-1,):
                for offset in (0, 8, 20):
                    body = fetch_body(talk, topic, 0)
                    body["topics"][0]["partitions"][0] |= {
                        "current_leader_epoch": current, "last_fetched_epoch": last,
                        "fetch_offset": offset,
                    }  # fmt: skip
                    if version % 3 == 0 or version == VERSIONS[-1]:
                        talk.ask("Fetch", version, body)


def fetch_sessions(talk: Talk) -> None:
    """Sessions that are opened, continued, changed and closed; wrong epochs; unknown sessions."""
    topic = filled(talk)
    for version in SESSIONS:

        def ask(session: int, epoch: int, *indexes: int, **more: object) -> int:
            body = fetch_body(talk, topic, *indexes, session_id=session,
                              session_epoch=epoch)
            answer = talk.ask("Fetch", version, body | more)  # noqa: B023
            return answer.session_id if answer is not None else 0

        session = ask(0, 0, 0, 1)
        ask(session, 1)
        ask(session, 1)                                    # the same epoch again
        body = fetch_body(talk, topic, session_id=session, session_epoch=2)
        body["topics"] = [partitions_of(talk, topic, 0, offset=8)]
        talk.ask("Fetch", version, body)
        talk.produce(topic, batch("new"))
        ask(session, 3)
        ask(session, 4, 5)                                 # a missing partition
        ask(session, 5)
        forget = {"topic": topic, "topic_id": talk.ids[topic], "partitions": [0, 9]}
        ask(session, 6, forgotten_topics_data=[forget])
        ask(session, 7)
        ask(session, 99)
        ask(session, -1, 0)                                # closes the session
        ask(session, 1)
        for unknown in (123456, -5, 1):
            for epoch in (-2, -1, 0, 1, 5):
                ask(unknown, epoch)
                ask(unknown, epoch, 0)
        for epoch in (-2, 1, 5):
            ask(0, epoch, 0)
        empty = ask(0, 0)
        ask(empty, 1, 0)


SCENES = (fetch_fields, fetch_positions, fetch_epochs, fetch_sessions)
