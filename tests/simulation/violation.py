"""What a run finds."""


class Violation(AssertionError):
    """A promise was broken."""
