"""Adds the new leader to NOT_LEADER_OR_FOLLOWER errors (KIP-951)."""
