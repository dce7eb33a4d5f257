"""Adds the next step to a command's error, after a broker has refused a request or a connection."""

from __future__ import annotations

import re

from ottla.client.errors import (
    LoginFailed,
    NoBroker,
    NotAllowed,
    Refused,
    TimedOut,
    allowed_by,
    is_running_there,
    login_step,
)
from ottla.tools.printable import printable
from ottla.wire.apis import FORWARDED
from ottla.wire.errors import ErrorCode

NEXT: dict[ErrorCode | None, str] = {
    ErrorCode.GROUP_ID_NOT_FOUND: "to see all: ottla group list",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "to see all: ottla transaction list",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "to see all topics: ottla topic list",
    ErrorCode.TOPIC_ALREADY_EXISTS: "with --if-not-exists, existing topics are skipped",
    ErrorCode.TOPIC_DELETION_DISABLED: "brokers need delete.topic.enable=true",
    ErrorCode.INVALID_REPLICATION_FACTOR: "to see the brokers: ottla cluster info",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "to see what is moved: ottla reassign list",
}
KINDS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic/NAME",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group/ID",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transaction/ID",
}
"""The resource of the refused right, in the form that `ottla acl add` takes."""
NAMED = re.compile(r"(topic|group|transactional id) '([^']+)'")
PARTITION = re.compile(r"([\w.-]+)[-:]\d+$")
RIGHTS = {
    "topic": {
        "write": ("produce", "perf produce"),
        "read": ("consume", "perf consume", "topic browse", "group reset"),
        "create": ("topic create",),
        "alter": ("topic grow",),
        "delete": ("topic delete", "topic trim"),
        "describe": ("topic describe", "topic offsets", "topic why"),
        "describe-configs": ("config show",),
        "alter-configs": ("config set", "config reset"),
    },
    "group": {
        "read": ("consume", "perf consume", "group reset"),
        "delete": ("group delete",),
        "describe": ("group describe", "group why"),
        "describe-configs": ("config show",),
        "alter-configs": ("config set", "config reset"),
    },
    "transaction": {
        "write": ("produce", "transaction abort"), "describe": ("transaction describe",),
    },
    "cluster": {
        "alter": ("acl add", "acl delete", "user set", "user delete", "feature set", "elect",
                  "reassign start", "reassign cancel", "cluster drain"),
        "describe": ("acl list", "user list", "reassign list", "reassign plan", "cluster info",
                     "cluster dirs", "cluster quorum", "cluster check", "topic describe"),
        "describe-configs": ("config show", "quota list", "server config", "server connections",
                             "topic why", "group why"),
        "alter-configs": ("config set", "config reset", "quota set", "quota delete"),
    },
}
"""For each kind of resource, the rights on it and the commands that need each right. The rights to
read, write, delete and alter include the right to describe."""


def with_next_step(line: str, failed: Exception, flags: str = "", command: str = "") -> str:
    """The line about an error. Adds the next step if it is known and the line names none.
    `flags` are the command's flags for the brokers' address. `command` is the command's name, such
    as "topic describe"."""
    if isinstance(failed, NoBroker) and failed.refused:
        return f"{line}; {is_running_there(flags)}"
    if isinstance(failed, LoginFailed):
        return printable(f"{line.rstrip('.')}; {login_step(failed)}")
    if isinstance(failed, NotAllowed):
        return printable(failed.sentence)
    if isinstance(failed, TimedOut) and failed.key in FORWARDED and not failed.dry_run:
        return (f"{line}; the change may still be made: see ottla cluster check, and look before "
                "you repeat the command")
    step = NEXT.get(failed.code) if isinstance(failed, Refused) else None
    if " has no partition " in line:
        return line
    if isinstance(failed, Refused) and failed.code in KINDS:
        step = printable(_right(failed, command))
    return f"{line.rstrip('.')}; {step}" if step and "; " not in line else line


def _right(failed: Refused, command: str) -> str:
    """The command that gives the right that was refused, as far as it is known."""
    resource = KINDS[failed.code]
    kind = resource.partition("/")[0]
    if found := NAMED.fullmatch(failed.what):
        resource = f"{'transaction' if ' ' in found[1] else found[1]}/{found[2]}"
    elif kind == "topic" and (found := PARTITION.search(failed.what)):
        resource = f"topic/{found[1]}"
    known = {words: right for right, many in RIGHTS[kind].items() for words in many}
    operation = known.get(command, "OPERATION")
    # Of this command's requests, only DescribeConfigs is refused with a message.
    if command == "topic describe" and failed.said:
        operation = "describe-configs"
    step = allowed_by(resource, operation, failed.user or "")
    if kind == "topic" and operation == "write":
        # A broker hides from this user whether the topic exists. Producers create missing topics.
        create = allowed_by(resource, "create", failed.user or "").partition(": ")[2]
        step += f"; if the topic does not exist yet, also: {create}"
    return step
