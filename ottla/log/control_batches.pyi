"""Reads transaction markers out of control batches (KIP-98). Used from Cython only."""
