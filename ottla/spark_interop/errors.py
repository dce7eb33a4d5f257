"""The errors of pipelines: each says what was wrong, where, and what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """A pipeline cannot start or go on; the text is for the person who runs it."""


class SparkUnavailable(PipelineError):
    """No SparkSession with the Kafka connector can be had as things are."""


class DataLost(PipelineError):
    """Records that a pipeline should have read are gone, or files are not what was written."""


class BadRecord(PipelineError):
    """A record does not have the declared format, and the mode is `failfast`."""
