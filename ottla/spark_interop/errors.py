"""The errors of pipelines: each says what was wrong, where, and what to do."""

from __future__ import annotations


class PipelineError(Exception):
    """A pipeline cannot start or continue; the text is for its user."""


class SparkUnavailable(PipelineError):
    """No SparkSession with the Kafka connector is available."""


class NoBroker(PipelineError):
    """No broker of the cluster answers; a later attempt may succeed."""


class DataLost(PipelineError):
    """Records that a pipeline should have read are gone, or files have changed."""


class BadRecord(PipelineError):
    """A record does not have the declared format, and the mode is `failfast`."""
