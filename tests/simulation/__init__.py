"""The whole broker in one process from a seed; README.md says how it works."""
