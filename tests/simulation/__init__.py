"""Runs the whole broker in one process; a seed decides everything. README.md says how it works."""
