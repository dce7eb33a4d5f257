"""Groups of KIP-848, in which the broker assigns the partitions."""

from __future__ import annotations

from typing import Any

from compat_tests.answers.conversation import Talk
from compat_tests.answers.scenes.classic import answer_of_list, describe, join_body, joined
from compat_tests.answers.scenes.offsets import commit_body
from compat_tests.answers.scenes.offsets import fetch_body as offsets_body
from compat_tests.answers.variants import Body


def beat_body(group: str, member: str, epoch: int, topic: str | None, **more: Any) -> Body:
    """A heartbeat. With a topic, it has a subscription, and with epoch 0 the member joins."""
    joins = topic is not None
    return {
        "group_id": group, "member_id": member, "member_epoch": epoch, "instance_id": None,
        "rack_id": None, "rebalance_timeout_ms": 60_000 if joins else -1,
        "subscribed_topic_names": [topic] if joins else None, "subscribed_topic_regex": None,
        "server_assignor": None, "topic_partitions": [] if joins else None,
    } | more  # fmt: skip


def describe_consumers(talk: Talk, *groups: str, **more: Any) -> None:
    """Record state and members of groups."""
    for version in (0, 1):
        talk.ask("ConsumerGroupDescribe", version, {
            "group_ids": list(groups), "include_authorized_operations": False} | more)


def first_beats(talk: Talk) -> None:
    """First heartbeats with each field wrong in turn, each to a group of its own."""
    topic = talk.topic("t", 2)

    def make() -> Body:
        return beat_body(talk.fresh("g"), "member", 0, topic)

    # Patterns are skipped here, because Kafka resolves them only after it has answered.
    talk.explore("ConsumerGroupHeartbeat", make, stride=1, skip=("subscribed_topic_regex",),
                 then=lambda body: describe_consumers(talk, body["group_id"]))
    for more in (
        {"instance_id": "one"}, {"instance_id": ""}, {"rack_id": "r"}, {"rack_id": ""},
        {"server_assignor": "range"}, {"server_assignor": "uniform"}, {"server_assignor": ""},
        {"server_assignor": "best"}, {"subscribed_topic_names": []},
        {"subscribed_topic_names": ["nobody"]}, {"subscribed_topic_names": [topic, topic]},
        {"topic_partitions": [{"topic_id": talk.ids[topic], "partitions": [0]}]},
        {"topic_partitions": None}, {"rebalance_timeout_ms": -1}, {"rebalance_timeout_ms": 0},
        {"member_id": ""}, {"group_id": ""}, {"group_id": "  "},
    ):
        for version in (0, 1):
            body = make() | more
            talk.ask("ConsumerGroupHeartbeat", version, body)
            describe_consumers(talk, body["group_id"])
    for pattern in (topic, "a(", ".*nothing", "", "(?i)X", "\\d+"):
        for names in (None, [], [topic]):
            body = make() | {"subscribed_topic_regex": pattern, "subscribed_topic_names": names}
            talk.ask("ConsumerGroupHeartbeat", 1, body)


def later_beats(talk: Talk) -> None:
    """Heartbeats of a member of a stable group, with each field wrong in turn."""
    topic = talk.topic("t", 2)
    for instance in (None, "one"):
        group = talk.fresh("g")
        more = {"instance_id": instance}
        talk.ask("ConsumerGroupHeartbeat", 1, beat_body(group, "member", 0, topic) | more)
        owned = [{"topic_id": talk.ids[topic], "partitions": [0, 1]}]
        full = beat_body(group, "member", 1, topic) | more | {"topic_partitions": owned}
        talk.ask("ConsumerGroupHeartbeat", 1, full)
        bare = beat_body(group, "member", 1, None) | more
        talk.explore("ConsumerGroupHeartbeat", lambda bare=bare: dict(bare),  # type: ignore[misc]
                     stride=1, skip=("subscribed_topic_names", "member_epoch"))
        for epoch in (-3, -2, 0, 2, 77):
            for base in (bare, full):
                talk.ask("ConsumerGroupHeartbeat", 1, base | {"member_epoch": epoch})
                describe_consumers(talk, group)
        commit_and_fetch(talk, group, topic)
        talk.ask("ConsumerGroupHeartbeat", 1, bare | {"member_epoch": -1})
        describe_consumers(talk, group)


def commit_and_fetch(talk: Talk, group: str, topic: str) -> None:
    """Commits and fetches offsets of a KIP-848 group, with right and wrong members and epochs."""
    for version in range(6, 11):
        for member, epoch in (("member", 1), ("member", 0), ("member", 99), ("nobody", 1),
                              ("", -1), ("member", -1)):
            talk.ask("OffsetCommit", version, commit_body(
                talk, group, topic, member_id=member, generation_id_or_member_epoch=epoch))
            body = offsets_body(talk, group, topic)
            body["groups"][0] |= {"member_id": member, "member_epoch": epoch}
            talk.ask("OffsetFetch", version, body)


def two_members(talk: Talk) -> None:
    """Partitions are reassigned when a second member joins and leaves."""
    topic = talk.topic("t", 4)
    for version in (0, 1):
        group = talk.fresh("g")
        everything = [{"topic_id": talk.ids[topic], "partitions": [0, 1, 2, 3]}]
        half = [{"topic_id": talk.ids[topic], "partitions": [0, 1]}]

        def beat(member: str, epoch: int, topic: str | None = None, **more: Any) -> None:
            talk.ask("ConsumerGroupHeartbeat", version,  # noqa: B023
                     beat_body(group, member, epoch, topic) | more)  # noqa: B023
            describe_consumers(talk, group)  # noqa: B023

        beat("a", 0, topic)
        beat("a", 1, topic_partitions=everything)
        beat("b", 0, topic)
        beat("a", 1)
        beat("a", 1, topic_partitions=half)
        beat("a", 2)
        beat("b", 2)
        beat("b", 1)
        beat("b", -1)
        beat("a", 2)
        beat("a", 3)
        beat("a", -1)


def mixed_groups(talk: Talk) -> None:
    """Requests of classic groups to a KIP-848 group, and the other way round."""
    topic = talk.topic("t", 2)
    classic, modern = talk.fresh("classic"), talk.fresh("modern")
    member = joined(talk, classic)
    talk.ask("ConsumerGroupHeartbeat", 1, beat_body(modern, "m", 0, topic))
    for version in (0, 1):
        for epoch, named in ((1, None), (-1, None), (-2, None)):
            talk.ask("ConsumerGroupHeartbeat", version, beat_body(classic, "m", epoch, named))
        for operations in (False, True):
            talk.ask("ConsumerGroupDescribe", version, {
                "group_ids": [classic, modern, "nobody", "", modern],
                "include_authorized_operations": operations,
            })  # fmt: skip
    for version in range(7):
        describe(talk, modern, classic, version=version)
    for generation in (-1, 0, 1):
        body = {"group_id": modern, "generation_id": generation, "member_id": "m"}
        talk.ask("Heartbeat", 3, body)
        talk.ask("SyncGroup", 5, {**body, "protocol_type": "consumer", "protocol_name": "range",
                                  "assignments": []})
    talk.ask("JoinGroup", 5, join_body(modern, protocol_type="connect"))
    talk.ask("JoinGroup", 5, join_body(modern, "m"))
    talk.ask("LeaveGroup", 2, {"group_id": modern, "member_id": "m"})
    talk.ask("DeleteGroups", 2, {"groups_names": [modern, classic]})
    for states in (["Stable"], ["stable"], ["Assigning"], ["empty"]):
        for types in (["consumer"], ["classic", "consumer"], []):
            answer_of_list(talk, 5, {"states_filter": states, "types_filter": types})
    talk.ask("LeaveGroup", 2, {"group_id": classic, "member_id": member})


SCENES = (first_beats, later_beats, two_members, mixed_groups)
