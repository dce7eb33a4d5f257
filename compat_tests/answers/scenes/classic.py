"""Classic groups: join, sync, heartbeat and leave requests, and what administrators see."""

from __future__ import annotations

from typing import Any

from compat_tests.answers.conversation import Talk
from compat_tests.answers.variants import Body
from compat_tests.answers.versions import COMMON_VERSIONS
from ottla.groups.classic.subscription import Subscription, write_subscription
from ottla.wire.apis import ApiKey

FOREVER_MS = 300_000


def join_body(group: str, member: str = "", instance: str | None = None, **more: Any) -> Body:
    """A JoinGroup of a consumer."""
    data = write_subscription(Subscription(("t",)), 1)
    return {
        "group_id": group, "session_timeout_ms": 60_000, "rebalance_timeout_ms": FOREVER_MS,
        "member_id": member, "group_instance_id": instance, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": data}, {"name": "other", "metadata": b"m"}],
        "reason": "because",
    } | more  # fmt: skip


def sync_body(group: str, member: str, generation: int, **more: Any) -> Body:
    """A SyncGroup of the leader."""
    return {
        "group_id": group, "generation_id": generation, "member_id": member,
        "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range",
        "assignments": [{"member_id": member, "assignment": b"all"}],
    } | more  # fmt: skip


def joined(talk: Talk, group: str, instance: str | None = None, version: int = 3) -> str:
    """Make a stable group of one member; returns the member's id."""
    version = 5 if instance is not None else version
    answer = talk.ask("JoinGroup", version, join_body(group, instance=instance))
    if version >= 4 and instance is None:
        answer = talk.ask("JoinGroup", version, join_body(group, answer.member_id))
    member: str = answer.member_id
    talk.ask("SyncGroup", 3, sync_body(group, member, answer.generation_id,
                                       group_instance_id=instance))
    return member


def describe(talk: Talk, *groups: str, version: int = 6) -> None:
    """Record what administrators see of groups."""
    talk.ask("DescribeGroups", version, {"groups": list(groups),
                                         "include_authorized_operations": False})


def join_fields(talk: Talk) -> None:
    """First JoinGroup requests with each field wrong in turn, each to a group of its own.

    Kafka describes about one of several thousand groups as not found if it has only just created
    the group. So the scene pauses before it describes a group.
    """

    def make() -> Body:
        return join_body(talk.fresh("g"))

    def static() -> Body:
        return join_body(talk.fresh("g"), instance="one")

    def described(body: Body) -> None:
        talk.pause()
        describe(talk, body["group_id"])

    talk.explore("JoinGroup", make, skip=("group_id", "rebalance_timeout_ms", "metadata"),
                 then=described)
    talk.explore("JoinGroup", static, versions=range(5, 10),
                 skip=("group_id", "rebalance_timeout_ms", "metadata"))
    for version in COMMON_VERSIONS[ApiKey.JOIN_GROUP]:
        for empty in ("", " "):
            talk.ask("JoinGroup", version, join_body(empty, "nobody"))
        group = talk.fresh("second")
        answer = talk.ask("JoinGroup", version, join_body(group))
        if version >= 4:
            again = talk.ask("JoinGroup", version, join_body(group, answer.member_id))
            talk.ask("JoinGroup", version, join_body(group, again.member_id))
            answer = again
        describe(talk, group)
        talk.ask("Heartbeat", 0, {"group_id": group, "generation_id": answer.generation_id,
                                  "member_id": answer.member_id})


def members_fields(talk: Talk) -> None:
    """SyncGroup, Heartbeat and LeaveGroup to a stable group, with each field wrong in turn."""
    group, still = talk.fresh("g"), talk.fresh("static")
    member, static = joined(talk, group), joined(talk, still, "one")

    talk.explore("SyncGroup", lambda: sync_body(group, member, 1), stride=2)
    talk.explore("SyncGroup", lambda: sync_body(still, static, 1, group_instance_id="one"),
                 versions=range(3, 6), stride=2)
    talk.explore("Heartbeat", lambda: {
        "group_id": group, "generation_id": 1, "member_id": member, "group_instance_id": None,
    }, stride=1)  # fmt: skip
    talk.explore("Heartbeat", lambda: {
        "group_id": still, "generation_id": 1, "member_id": static, "group_instance_id": "one",
    }, versions=range(3, 5), stride=1)  # fmt: skip
    describe(talk, group, still)
    for version in COMMON_VERSIONS[ApiKey.LEAVE_GROUP]:
        for leaving, instance in (("nobody", None), ("", None), ("", "nobody"), ("other", "one")):
            members = [{"member_id": leaving, "group_instance_id": instance, "reason": "r"}]
            for each in (group, still, "no-group", ""):
                talk.ask("LeaveGroup", version, {"group_id": each, "member_id": leaving,
                                                 "members": members})
                talk.ask("LeaveGroup", version, {"group_id": each, "member_id": leaving,
                                                 "members": members * 2})
        talk.ask("LeaveGroup", version, {"group_id": group, "member_id": "", "members": []})
    describe(talk, group, still)
    for version in COMMON_VERSIONS[ApiKey.LEAVE_GROUP]:
        going = talk.fresh("leaving")
        who = joined(talk, going)
        members = [{"member_id": who, "group_instance_id": None, "reason": None}]
        talk.ask("LeaveGroup", version, {"group_id": going, "member_id": who, "members": members})
        describe(talk, going, version=min(version, 6))
        talk.ask("LeaveGroup", version, {"group_id": going, "member_id": who, "members": members})


def static_members(talk: Talk) -> None:
    """Static members that return, are replaced, and are fenced."""
    for version in range(5, 10):
        group = talk.fresh("g")
        old = joined(talk, group, "one", version)
        new = talk.ask("JoinGroup", version, join_body(group, instance="one"))
        if new is None:
            continue
        describe(talk, group)
        for member in (old, new.member_id, "other"):
            talk.ask("Heartbeat", 4, {"group_id": group, "generation_id": 1, "member_id": member,
                                      "group_instance_id": "one"})
            talk.ask("SyncGroup", 5, sync_body(group, member, 1, group_instance_id="one"))
        talk.ask("JoinGroup", version, join_body(group, old, "one"))
        talk.ask("JoinGroup", version, join_body(group, "", "one",
                                                 protocols=[{"name": "x", "metadata": b""}]))
        describe(talk, group)


def rebalances(talk: Talk) -> None:
    """Answers and group states while a second member joins, in every version of DescribeGroups."""
    for version in COMMON_VERSIONS[ApiKey.DESCRIBE_GROUPS]:
        group = talk.fresh("g")
        first = joined(talk, group)
        talk.send("JoinGroup", 3, join_body(group), "second")
        until_state(talk, group, "PreparingRebalance")
        describe(talk, group, version=version)
        for generation in (0, 1, 2):
            talk.ask("Heartbeat", 3, {"group_id": group, "generation_id": generation,
                                      "member_id": first, "group_instance_id": None})
            talk.ask("SyncGroup", 3, sync_body(group, first, generation))
            commit = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1,
                      "committed_metadata": ""}
            talk.ask("OffsetCommit", 9, {
                "group_id": group, "generation_id_or_member_epoch": generation,
                "member_id": first, "group_instance_id": None,
                "topics": [{"name": "nobody", "partitions": [commit]}],
            })  # fmt: skip
        talk.ask("JoinGroup", 3, join_body(group, first))
        second = talk.receive("second").member_id
        describe(talk, group, version=version)
        talk.ask("Heartbeat", 3, {"group_id": group, "generation_id": 2, "member_id": second})
        given = [{"member_id": first, "assignment": b"1"},
                 {"member_id": second, "assignment": b"2"}]
        talk.ask("SyncGroup", 3, sync_body(group, first, 2, assignments=given))
        talk.ask("SyncGroup", 3, sync_body(group, second, 2, assignments=[]))
        describe(talk, group, version=version)
        talk.ask("DeleteGroups", 2, {"groups_names": [group]})
        talk.ask("LeaveGroup", 2, {"group_id": group, "member_id": second})
        describe(talk, group, version=version)
        talk.ask("LeaveGroup", 2, {"group_id": group, "member_id": first})
        describe(talk, group, version=version)


def until_state(talk: Talk, group: str, state: str) -> None:
    """Repeat a request, without recording it, until the group is in this state."""
    body = {"groups": [group], "include_authorized_operations": False}
    noted = len(talk.entries)
    for _ in range(1000):
        answer = talk.ask("DescribeGroups", 0, body)
        del talk.entries[noted:]
        if answer.groups[0].group_state == state:
            return
    raise AssertionError(f"{group} does not become {state}")


def group_administration(talk: Talk) -> None:
    """DescribeGroups, with each field wrong in turn, ListGroups and DeleteGroups."""
    group, empty = talk.fresh("g"), talk.fresh("empty")
    joined(talk, group)
    member = joined(talk, empty)
    talk.ask("LeaveGroup", 2, {"group_id": empty, "member_id": member})
    for operations in (False, True):
        talk.explore("DescribeGroups", lambda operations=operations: {
            "groups": [group, empty], "include_authorized_operations": operations,
        }, stride=1)  # type: ignore[misc]  # fmt: skip
    for states in ([], ["Stable"], ["stable"], ["Nonsense"], ["Empty", "Stable"], [""], ["Dead"]):
        for types in ([], ["classic"], ["Consumer"], ["nonsense"], ["share"], [""]):
            for version in range(5, 6) if types else COMMON_VERSIONS[ApiKey.LIST_GROUPS]:
                answer_of_list(talk, version, {"states_filter": states, "types_filter": types})
    for names in ([], [""], ["nobody"], [group], [empty, group, "nobody"], [empty], [empty, empty]):
        for version in COMMON_VERSIONS[ApiKey.DELETE_GROUPS]:
            talk.ask("DeleteGroups", version, {"groups_names": names})
    describe(talk, group, empty)


def answer_of_list(talk: Talk, version: int, body: Body) -> None:
    """Send ListGroups; record only the scene's own groups."""
    talk.ask("ListGroups", version, body)
    answer = talk.entries[-1].answer
    if isinstance(answer, dict):
        answer["groups"] = [each for each in answer["groups"]
                            if each["group_id"].startswith(talk.scene)]


def find_coordinator(talk: Talk) -> None:
    """Coordinators of groups and transactions, one and many at a time."""
    talk.explore("FindCoordinator", lambda: {
        "key": "g", "key_type": 0, "coordinator_keys": ["g", "h"],
    }, stride=1)  # fmt: skip
    for version in COMMON_VERSIONS[ApiKey.FIND_COORDINATOR]:
        for key_type in (0, 1, 3):
            for keys in (["a"], [""], ["a", "a"], ["a", ""]):
                talk.ask("FindCoordinator", version, {
                    "key": keys[0], "key_type": key_type, "coordinator_keys": keys,
                })  # fmt: skip


SCENES = (
    join_fields, members_fields, static_members, rebalances, group_administration,
    find_coordinator,
)  # fmt: skip
