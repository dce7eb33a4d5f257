"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Any

from compat_tests.answers.conversation import Talk
from compat_tests.answers.scenes.classic import joined
from compat_tests.answers.variants import Body
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.wire.apis import ApiKey


def commit_body(talk: Talk, group: str, topic: str, **more: Any) -> Body:
    """An OffsetCommit of two partitions without a member."""
    partitions = [
        {"partition_index": index, "committed_offset": 5 + index, "committed_leader_epoch": 0,
         "committed_metadata": "m"}
        for index in (0, 1)
    ]  # fmt: skip
    return {
        "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "",
        "group_instance_id": None, "retention_time_ms": -1,
        "topics": [{"name": topic, "topic_id": talk.ids.get(topic, bytes(16)),
                    "partitions": partitions}],
    } | more  # fmt: skip


def fetch_body(talk: Talk, group: str, topic: str, **more: Any) -> Body:
    """An OffsetFetch of two partitions, for all versions."""
    wanted = {"name": topic, "partition_indexes": [0, 1]}
    by_id = wanted | {"topic_id": talk.ids.get(topic, bytes(16))}
    return {
        "group_id": group, "topics": [wanted], "require_stable": False,
        "groups": [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": [by_id]}],
    } | more  # fmt: skip


def commit_offsets(talk: Talk) -> None:
    """Commits with each field wrong in turn, and the offsets that the group has then."""
    topic, group = talk.topic("t", 2), talk.fresh("g")
    member = joined(talk, group)

    def simple() -> Body:
        return commit_body(talk, talk.fresh("simple"), topic)

    talk.explore("OffsetCommit", simple, skip=("retention_time_ms",),
                 then=lambda body: fetched(talk, body["group_id"]))
    talk.explore("OffsetCommit", lambda: commit_body(
        talk, group, topic, generation_id_or_member_epoch=1, member_id=member),
        skip=("retention_time_ms",))  # fmt: skip
    for version in COMMON_VERSIONS[ApiKey.OFFSET_COMMIT]:
        body = commit_body(talk, talk.fresh("edges"), topic)
        for topics in (
            [], [{"name": topic, "topic_id": talk.ids[topic], "partitions": []}],
            [*body["topics"], *body["topics"]],
            [{"name": "nobody", "topic_id": bytes(range(16)), "partitions": []}],
            [*body["topics"], {"name": "nobody", "topic_id": bytes(range(16)),
                               "partitions": body["topics"][0]["partitions"]}],
        ):
            talk.ask("OffsetCommit", version, body | {"topics": topics})
        for metadata in ("x" * 4096, "x" * 4097, "", "ü" * 2049):
            body = commit_body(talk, talk.fresh("metadata"), topic)
            body["topics"][0]["partitions"][0]["committed_metadata"] = metadata
            talk.ask("OffsetCommit", version, body)


def fetched(talk: Talk, group: str) -> None:
    """Record all offsets of a group."""
    talk.ask("OffsetFetch", 8, {
        "groups": [{"group_id": group, "topics": None}], "require_stable": False,
    })  # fmt: skip


def fetch_offsets(talk: Talk) -> None:
    """Offsets of existing and missing groups, all of them or some."""
    topic, group = talk.topic("t", 3), talk.fresh("g")
    member = joined(talk, group)
    talk.ask("OffsetCommit", 8, commit_body(
        talk, group, topic, generation_id_or_member_epoch=1, member_id=member))
    for stable in (False, True):
        talk.explore("OffsetFetch", lambda stable=stable: fetch_body(
            talk, group, topic, require_stable=stable), stride=2)  # type: ignore[misc]
    for version in COMMON_VERSIONS[ApiKey.OFFSET_FETCH]:
        names = ("nobody", topic)
        for topics in (
            None, [], [{"name": topic, "partition_indexes": []}],
            [{"name": topic, "partition_indexes": [0, 0, 9]}],
            [{"name": each, "partition_indexes": [0]} for each in names],
            [{"name": topic, "partition_indexes": [n]} for n in (0, 1)],
        ):
            for asked in (group, "no-group", ""):
                if topics is None and version < 2:
                    continue
                named = None if topics is None else [
                    each | {"topic_id": talk.ids.get(each["name"], bytes(range(16)))}
                    for each in topics
                ]
                talk.ask("OffsetFetch", version, {
                    "group_id": asked, "topics": topics, "require_stable": False,
                    "groups": [{"group_id": asked, "member_id": None, "member_epoch": -1,
                                "topics": named}] * (2 if version == 9 else 1),
                })  # fmt: skip


def delete_offsets(talk: Talk) -> None:
    """Deletes offsets of groups with and without members."""
    topic, group, busy = talk.topic("t", 2), talk.fresh("g"), talk.fresh("busy")
    member = joined(talk, busy)
    talk.ask("OffsetCommit", 8, commit_body(
        talk, busy, topic, generation_id_or_member_epoch=1, member_id=member))

    def make(which: str) -> Body:
        talk.ask("OffsetCommit", 8, commit_body(talk, group, topic))
        partitions = [{"partition_index": index} for index in (0, 1)]
        return {"group_id": which, "topics": [{"name": topic, "partitions": partitions}]}

    for which in (group, busy):
        talk.explore("OffsetDelete", lambda which=which: make(which),  # type: ignore[misc]
                     then=lambda body: fetched(talk, group))


SCENES = (commit_offsets, fetch_offsets, delete_offsets)
