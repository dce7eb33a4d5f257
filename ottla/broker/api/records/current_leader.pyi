"""The new leader beside NOT_LEADER_OR_FOLLOWER (KIP-951)."""
