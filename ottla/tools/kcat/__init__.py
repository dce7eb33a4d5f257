"""`ottla kcat`: kcat's one-letter options and its output."""
