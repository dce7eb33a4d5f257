"""The error that a run reports."""


class Violation(AssertionError):
    """A promise was broken."""
