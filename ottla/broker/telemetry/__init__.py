"""Metrics that clients send to the broker (KIP-714)."""
