"""The data pipeline on Spark: a session, typed topics, pipelines, offsets, history checks.

`from ottla.spark_interop import session, read_topic` works. Names are imported on first use, so
programs without Spark can use `history_rules`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "session": "spark_session",
    "read_topic": "topics",
    "stream_topic": "topics",
    "write_topic": "topics",
    "read_in_place": "in_place.source",
    "Cluster": "cluster",
    "Format": "value_format",
    "PipelineError": "errors",
    "OffsetCommitter": "offsets",
    "checkpoint_to_group": "offsets",
    "lag_metrics": "offsets",
    "offsets_from_checkpoint": "offsets",
    "starting_offsets_from_checkpoint": "offsets",
    "starting_offsets_from_group": "offsets",
    "archive": "pipelines.archive",
    "compact": "pipelines.archive",
    "read_archive": "pipelines.archive",
    "verify": "pipelines.archive",
    "replay": "pipelines.replay",
    "latest": "pipelines.latest",
    "read_latest": "pipelines.latest",
    "mirror": "pipelines.mirror",
    "mirror_lag": "pipelines.mirror",
    "windows": "pipelines.windows",
    "read_windows": "pipelines.windows",
    "dead_letter": "pipelines.dead_letter",
    "slice_topic": "pipelines.slice",
    "quality_report": "pipelines.quality",
    "check_history": "history",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
