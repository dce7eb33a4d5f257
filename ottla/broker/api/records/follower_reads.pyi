"""Consumers that read from the closest replica (KIP-392). Used from Cython only."""
