"""kafka-groups: the lines of Apache Kafka's GroupsCommand."""

from __future__ import annotations

from ottla.tools.admin.groups import Listed, list_groups
from ottla.tools.kafka_names.common import connect, padded
from ottla.tools.kafka_names.grammar import Options, UsageError

TYPES = ("classic", "consumer", "share", "streams")


def run(options: Options) -> int:
    """Lists the groups that match the flags."""
    options.needs("bootstrap-server")
    if not options.has("list"):
        raise UsageError("Command must include exactly one action: --list.")
    kinds = [name for name in ("consumer", "share", "streams") if options.has(name)]
    if len(kinds) > 1:
        raise UsageError(f'Option "[{kinds[0]}]" can\'t be used with option "[{kinds[1]}]"')
    if options.has("group-type") and options.one("group-type").lower() not in TYPES:
        raise UsageError("--group-type must be a valid group type.")
    with connect(options) as cluster:
        groups = [group for group in list_groups(cluster) if fits(options, group)]
    width = max([20, *(len(group.id) for group in groups)])
    print(padded(("GROUP", width), ("TYPE", 20), ("PROTOCOL", 20)))
    for group in groups:
        line = padded((group.id, width), (group.type.capitalize(), 20), (group.protocol_type, 20))
        print(f"{line} ")
    return 0


def fits(options: Options, group: Listed) -> bool:
    """Whether a group matches the filters."""
    if options.has("consumer"):
        return group.type == "consumer" or (
            group.type == "classic" and group.protocol_type in ("consumer", "")
        )
    for kind in ("share", "streams"):
        if options.has(kind):
            return group.type == kind
    if options.has("group-type") and group.type != options.one("group-type").lower():
        return False
    return not options.has("protocol") or group.protocol_type == options.one("protocol")
