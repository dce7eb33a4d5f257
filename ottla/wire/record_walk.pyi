"""Follows the records of a batch in plain C; Python meets it in `batch` and `records` only."""
