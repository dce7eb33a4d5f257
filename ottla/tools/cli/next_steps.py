"""The next step after a broker has refused a request or a connection, for the end of a command's
error."""

from __future__ import annotations

import re

from ottla.client.errors import NoBroker, NotAllowed, Refused, allowed_by, is_running_there
from ottla.tools.printable import printable
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
"""What a refused right is about, as `ottla acl add` takes it."""
NAMED = re.compile(r"(topic|group) '([^']+)'")


def with_next_step(line: str, failed: Exception, flags: str = "") -> str:
    """The line about an error. Adds the next step if it is known, and the line names no step
    yet. `flags` are the command's flags for the brokers' address."""
    if isinstance(failed, NoBroker) and failed.refused:
        return f"{line}; {is_running_there(flags)}"
    if isinstance(failed, NotAllowed):
        return printable(failed.sentence)
    step = NEXT.get(failed.code) if isinstance(failed, Refused) else None
    if isinstance(failed, Refused) and failed.code in KINDS:
        found = NAMED.fullmatch(failed.what)
        step = allowed_by(f"{found[1]}/{found[2]}" if found else KINDS[failed.code])
    return f"{line.rstrip('.')}; {step}" if step and "; " not in line else line
