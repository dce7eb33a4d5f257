"""Settings of a topic that its copy in another cluster must not have.

The records of the copy keep their timestamps, which may be old."""

from __future__ import annotations

NOT_COPIED = (
    "message.timestamp.type",  # records keep their timestamps
    # Records that were new when the source accepted them may be too old for these limits now.
    "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms",
    "min.insync.replicas", "unclean.leader.election.enable",  # for the source's cluster only
    "leader.replication.throttled.replicas", "follower.replication.throttled.replicas",
)  # fmt: skip
