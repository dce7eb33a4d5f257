"""The errors of pipelines: each says what was wrong, where, and what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """A pipeline cannot start or continue; the text is for its user."""


class WrongOption(PipelineError):
    """An option of a pipeline is wrong or missing. The text has the names of these options in
    backquotes, as in `time_column`."""

    def __init__(self, text: str, *names: str) -> None:
        super().__init__(text)
        self.names = names

    def with_flags(self) -> str:
        """The text for the command line, where `time_column` is --time-column."""
        text = str(self)
        for name in self.names:
            text = text.replace(f"`{name}`", f"--{name.replace('_', '-')}")
        return text


class WrongColumn(WrongOption):
    """An option names a column, a type or a function that does not exist."""


class SparkUnavailable(PipelineError):
    """No SparkSession with the Kafka connector is available."""


class NoBroker(PipelineError):
    """No broker of the cluster answers; a later attempt may succeed."""


class OutputClosed(BrokenPipeError):
    """The reader of standard output has exited, as `head` does after its last line."""


class DataLost(PipelineError):
    """Records that a pipeline should have read are gone, or files have changed."""


class BadRecord(PipelineError):
    """A record does not have the declared format, and the mode is `failfast`."""
