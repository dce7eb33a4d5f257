"""Records when each API that waits answers: at once, after an event, or after the whole wait.

If an answer comes too early, the client asks again at once; if it comes too late, the client has
waited for nothing. The fields of an answer show neither.
"""

from __future__ import annotations

from compat_tests.answers.conversation import Question, Talk, batch
from compat_tests.answers.scenes.classic import join_body, sync_body
from compat_tests.answers.scenes.fetching import VERSIONS as FETCHES
from compat_tests.answers.scenes.fetching import fetch_body, partitions_of
from compat_tests.answers.variants import Body

WAIT_SECONDS = 1.5
WAIT_MS = round(WAIT_SECONDS * 1000)
VERSIONS = sorted({4, 7, 11, 12, 13, 16, FETCHES[-1]})


def waiting(talk: Talk, *parts: tuple[str, int, int], **more: object) -> Body:
    """A fetch of (topic, partition, offset) that waits for a byte."""
    body = fetch_body(talk, "", max_wait_ms=WAIT_MS, min_bytes=1, **more)
    body["topics"] = [partitions_of(talk, name, index, offset=at) for name, index, at in parts]
    return body


def fetch_waits(talk: Talk) -> None:
    """Fetches of an idle partition, alone and beside others that cannot be served."""
    idle, full = talk.topic("idle"), talk.topic("full")
    gone, anew = talk.topic("gone"), talk.topic("anew")
    before = talk.ids[anew]
    talk.produce(full, batch("some"))
    for name in (gone, anew):
        talk.ask("DeleteTopics", 5, {"topic_names": [name], "timeout_ms": 5000})
    talk.again(anew)
    talk.ids[anew] = before
    asked: list[Question] = []
    for version in VERSIONS:
        sets: list[tuple[tuple[str, int, int], ...]] = [
            (), ((idle, 0, 0),), ((gone, 0, 0),), ((idle, 9, 0),), ((idle, 0, 7),),
            ((idle, 0, 0), (gone, 0, 0)), ((idle, 0, 0), (anew, 0, 0)),
            ((idle, 0, 0), (full, 0, 7)), ((idle, 0, 0), (full, 0, 0), (gone, 0, 0)),
            ((gone, 0, 0), (full, 0, 1)),
        ]
        for parts in sets:
            asked.append(("Fetch", version, waiting(talk, *parts)))
        for more in ({"min_bytes": 0}, {"max_wait_ms": 0}, {"min_bytes": 1 << 20}):
            asked.append(("Fetch", version, waiting(talk, (full, 0, 0), (gone, 0, 0)) | more))
    talk.when(asked, WAIT_SECONDS)


def session_waits(talk: Talk) -> None:
    """Fetches that wait in a session; some sessions hold topics that were deleted meanwhile."""
    idle, gone, anew = (talk.topic(each) for each in ("idle", "gone", "anew"))
    sessions = {}
    for version in filter(lambda each: each >= 7, VERSIONS):
        for held, names in {
            "both": (idle, gone), "gone": (gone,), "none": (idle,), "anew": (idle, anew),
        }.items():
            body = waiting(talk, *((name, 0, 0) for name in names), session_epoch=0)
            answer = talk.ask("Fetch", version, body | {"max_wait_ms": 0})
            sessions[version, held] = answer.session_id
    for name in (gone, anew):
        talk.ask("DeleteTopics", 5, {"topic_names": [name], "timeout_ms": 5000})
    talk.again(anew)
    for epoch in (1, 2):
        asked: list[Question] = []
        for (version, held), session in sessions.items():
            body = waiting(talk, session_id=session, session_epoch=epoch)
            if held == "none" and epoch == 1:
                forgotten = {"topic": idle, "topic_id": talk.ids[idle], "partitions": [0]}
                body["forgotten_topics_data"] = [forgotten]
            asked.append(("Fetch", version, body))
        talk.when(asked, WAIT_SECONDS)


def fetch_events(talk: Talk) -> None:
    """Fetches wait for one byte, or for more bytes than come. Meanwhile a record is written, and a
    topic is deleted."""
    topic, deleted = talk.topic("idle"), talk.topic("deleted")
    more = {"min_bytes": 1 << 20}
    asked: list[Question] = []
    for version in VERSIONS:
        asked += [
            ("Fetch", version, waiting(talk, (topic, 0, 0))),
            ("Fetch", version, waiting(talk, (topic, 0, 0)) | more),
            ("Fetch", version, waiting(talk, (deleted, 0, 0))),
            ("Fetch", version, waiting(talk, (deleted, 0, 0), (topic, 0, 0)) | more),
        ]

    def event() -> None:
        talk.produce(topic, batch("event"))
        talk.ask("DeleteTopics", 5, {"topic_names": [deleted], "timeout_ms": 5000})

    talk.when(asked, WAIT_SECONDS, event)


def group_waits(talk: Talk) -> None:
    """JoinGroup waits for the other members, SyncGroup for the leader."""
    for version in (0, 3, 9):
        group = talk.fresh("g")
        short = {"rebalance_timeout_ms": WAIT_MS, "session_timeout_ms": 10_000}
        if version == 0:
            short["session_timeout_ms"] = 6000
        first = talk.ask("JoinGroup", version, join_body(group, **short))
        if version >= 4:
            first = talk.ask("JoinGroup", version, join_body(group, first.member_id, **short))
        leader, generation = first.member_id, first.generation_id
        talk.ask("SyncGroup", 3, sync_body(group, leader, generation))
        second = ""
        if version >= 4:
            second = talk.ask("JoinGroup", version, join_body(group, **short)).member_id
        # The leader joins again, so both members get an answer.
        talk.when(
            [("JoinGroup", version, join_body(group, second, **short))], WAIT_SECONDS,
            lambda: talk.ask("JoinGroup", version,  # noqa: B023
                             join_body(group, leader, **short)))  # noqa: B023
        follower = talk.last.member_id
        generation = talk.last.generation_id
        # The follower waits for the leader's assignment.
        talk.when(
            [("SyncGroup", 3, sync_body(group, follower, generation, assignments=[]))],
            WAIT_SECONDS,
            lambda: talk.ask("SyncGroup", 3,
                             sync_body(group, leader, generation)))  # noqa: B023
        if version == 0:
            continue                    # version 0 has no rebalance timeout of its own
        # The others do not join again, so the answer comes after the rebalance timeout.
        third = ""
        if version >= 4:
            third = talk.ask("JoinGroup", version, join_body(group, **short)).member_id
        talk.when([("JoinGroup", version, join_body(group, third, **short))], WAIT_SECONDS)


def changes_at_once(talk: Talk) -> None:
    """Requests that are done at once are answered before their timeout."""
    topic = talk.topic("t")
    names = [talk.fresh("new") for _ in range(2)]
    wait = {"timeout_ms": WAIT_MS}
    made = {"name": names[0], "num_partitions": 1, "replication_factor": 1, "assignments": [],
            "configs": []}  # fmt: skip
    more = {"name": topic, "count": 3, "assignments": None}
    elected = [{"topic": topic, "partitions": [0]}]
    cut = {"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]}
    for one in (
        ("CreateTopics", 5, {"topics": [made], "validate_only": False} | wait),
        ("CreatePartitions", 2, {"topics": [more], "validate_only": False} | wait),
        ("DeleteRecords", 2, {"topics": [cut]} | wait),
        ("ElectLeaders", 2, {"election_type": 0, "topic_partitions": elected} | wait),
        ("DeleteTopics", 5, {"topic_names": [names[0]]} | wait),
        ("DeleteTopics", 5, {"topic_names": [names[1]]} | wait),
    ):
        talk.when([one], WAIT_SECONDS)
        talk.settle()
    data = [{"index": 0, "records": batch("v")}]
    for acks in (1, -1):
        body = {"transactional_id": None, "acks": acks, "timeout_ms": WAIT_MS, "topic_data": [
            {"name": topic, "topic_id": talk.ids[topic], "partition_data": data}]}  # fmt: skip
        talk.when([("Produce", 9, body)], WAIT_SECONDS)


SCENES = (fetch_waits, session_waits, fetch_events, group_waits, changes_at_once)
