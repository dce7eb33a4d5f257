"""Adds the new leader to NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH errors in replies to
Produce and Fetch (KIP-951)."""
