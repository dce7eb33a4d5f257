"""kafka-consumer-groups: flags, listing and deletion as in Apache Kafka's ConsumerGroupCommand."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ottla.client.errors import ClientError, Refused
from ottla.client.similar_names import near
from ottla.tools.admin import groups
from ottla.tools.kafka_names import group_offsets, group_tables
from ottla.tools.kafka_names.common import connect, padded
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.group_choice import chosen, show_error
from ottla.tools.kafka_names.java import exception_of
from ottla.tools.kafka_names.main import complain, followed_by
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.tools.admin.groups import Group

STATES = (
    "Stable",
    "Dead",
    "CompletingRebalance",
    "PreparingRebalance",
    "Assigning",
    "Reconciling",
    "Empty",
)
TYPES = ("Consumer", "Classic")
SPECS = (
    "to-offset",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "shift-by",
    "to-current",
    "from-file",
)
NOTICE = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this "
    "command will require either --dry-run or --execute to be specified. You should add the "
    "--dry-run option explicitly if you are scripting this command and want to keep the current "
    "default behavior without prompting."
)


def run(options: Options) -> int:
    """Checks the flags as ConsumerGroupCommand does, then performs the action."""
    given = [name for name in options.command.actions if options.has(name)]
    if len(given) != 1:
        raise UsageError(
            "Command must include exactly one action: --list, --describe, --delete, "
            "--reset-offsets, --delete-offsets, --validate-regex"
        )
    action = given[0]
    if action == "validate-regex":
        return validate_regex(options.one("validate-regex"))
    options.needs("bootstrap-server")
    check(options, action)
    act = {
        "list": list_groups,
        "describe": describe,
        "delete": delete,
        "reset-offsets": group_offsets.reset,
        "delete-offsets": group_offsets.forget,
    }
    try:
        with connect(options) as cluster:
            act[action](options, cluster)
    except Refused as refused:
        show_error(
            f"Executing consumer group command failed due to "
            f"{exception_of(refused.number, refused.said)}"
        )
        print(f"kafka-consumer-groups: {refused}", file=sys.stderr)
    except (ClientError, ValueError) as failed:
        show_error(f"Executing consumer group command failed due to {failed}")
        more = failed.near if isinstance(failed, group_offsets.Mistyped) else ""
        complain("kafka-consumer-groups", followed_by(str(failed), more))
    return 0


def check(options: Options, action: str) -> None:
    """Raises UsageError if a flag does not fit the action, or the action needs other flags."""
    if action == "describe":
        if not (options.has("group") or options.has("all-groups")):
            raise UsageError("Option [describe] takes one of these options: [all-groups], [group]")
        if sum(options.has(name) for name in ("members", "offsets", "state")) > 1:
            raise UsageError(
                "Option [describe] takes at most one of these options: [members], "
                "[offsets], [state]"
            )
    if action == "delete" and not (options.has("group") or options.has("all-groups")):
        raise UsageError("Option [delete] takes one of these options: [all-groups], [group]")
    if action == "delete" and options.has("topic"):
        raise UsageError(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )
    if action == "delete-offsets" and not (options.has("group") and options.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if action == "reset-offsets":
        if options.has("execute") and options.has("dry-run"):
            raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if not (options.has("group") or options.has("all-groups")):
            raise UsageError(
                "Option [reset-offsets] takes one of these options: [all-groups], [group]"
            )
        if sum(options.has(name) for name in SPECS) != 1:
            raise UsageError("Option [reset-offsets] takes exactly one of: " + ", ".join(SPECS))
        if (
            not options.has("from-file")
            and not options.has("topic")
            and not options.has("all-topics")
        ):
            raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
        if not options.has("execute") and not options.has("dry-run"):
            print(NOTICE, file=sys.stderr)
    options.excludes("group", "all-groups", "list")
    options.excludes("topic", "list", "describe")
    if action == "list":
        for name, known in (("state", STATES), ("type", TYPES)):
            filters(options, name, known)


def filters(options: Options, name: str, known: tuple[str, ...]) -> list[str]:
    """The states or types to list. Raises UsageError for an unknown state or type."""
    text = options.one(name)
    wanted = [part.strip() for part in text.split(",") if part.strip()]
    by_name = {one.lower(): one for one in known}
    if any(one.lower() not in by_name for one in wanted):
        what = "state" if name == "state" else "types"
        plural = "states" if name == "state" else "types"
        raise UsageError(f"Invalid {what} list '{text}'. Valid {plural} are: {', '.join(known)}")
    return [by_name[one.lower()] for one in wanted]


def list_groups(options: Options, cluster: ClusterClient) -> None:
    states = filters(options, "state", STATES)
    types = [one.lower() for one in filters(options, "type", TYPES)]
    matching = [
        group
        for group in groups.list_groups(cluster, states, types or ["consumer", "classic"])
        if group.type == "consumer" or group.protocol_type in ("consumer", "")
    ]
    if not (options.has("state") or options.has("type")):
        for group in matching:
            print(group.id)
        return
    width = max([25, *(len(group.id) for group in matching)])
    columns = ["TYPE"] * options.has("type") + ["STATE"] * options.has("state")
    print(padded(("GROUP", width), *((name, 20) for name in columns)))
    for group in matching:
        values = {"TYPE": group.type.capitalize(), "STATE": group.state}
        print(padded((group.id, width), *((values[name], 20) for name in columns)))


def describe(options: Options, cluster: ClusterClient) -> None:
    for group_id in sorted(chosen(options, cluster)):
        group = groups.describe(cluster, group_id)
        if warn(group):
            show(options, cluster, group)


def warn(group: Group) -> bool:
    """Reports a group that does not exist, has no members or is rebalancing. Returns whether the
    group exists."""
    if group.state == "Dead":
        print(f"\nError: Consumer group '{group.id}' does not exist.")
        return False
    if group.state == "Empty":
        print(f"\nConsumer group '{group.id}' has no active members.", file=sys.stderr)
    elif group.state in ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"):
        print(f"\nWarning: Consumer group '{group.id}' is rebalancing.", file=sys.stderr)
    return True


def show(options: Options, cluster: ClusterClient, group: Group) -> None:
    verbose = options.has("verbose")
    if options.has("members"):
        group_tables.members(group, verbose)
    elif options.has("state"):
        group_tables.state(cluster, group, verbose)
    else:
        group_tables.show_offsets(cluster, group, verbose)


def delete(options: Options, cluster: ClusterClient) -> None:
    done, failed = [], []
    for group_id in chosen(options, cluster):
        try:
            groups.delete(cluster, group_id)
            done.append(group_id)
        except Refused as refused:
            missing = refused.code == ErrorCode.GROUP_ID_NOT_FOUND
            similar = near(cluster, refused.code, group_id) if missing else ""
            failed.append((group_id, exception_of(refused.number), similar))
    quoted = ", ".join(f"'{group_id}'" for group_id in done)
    if not failed:
        print(f"Deletion of requested consumer groups ({quoted}) was successful.")
        return
    show_error("Deletion of some consumer groups failed:")
    for group_id, reason, similar in failed:
        print(f"* Group '{group_id}' could not be deleted due to: {reason}")
        text = followed_by(f"group {group_id!r} was not deleted: {reason}", similar)
        complain("kafka-consumer-groups", text)
    if done:
        print(f"\nThese consumer groups were deleted successfully: {quoted}")


def validate_regex(pattern: str) -> int:
    """Checks whether re2, which brokers use for subscriptions, accepts a regular expression."""
    import re2

    settings = re2.Options()
    settings.log_errors = False
    try:
        re2.compile(pattern, settings)
    except re2.error as wrong:
        reason = str(wrong.args[0].decode() if isinstance(wrong.args[0], bytes) else wrong)
        reason = reason.partition(":")[0].replace("missing )", "missing closing )")
        print(f"The regular expression `{pattern}` is invalid: {reason}.")
    else:
        print(f"The regular expression `{pattern}` is valid.")
    return 0
