"""What Spark reports about the batches of a streaming query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


class News:
    """The reports of a query's progress, each of which is taken once.

    Does not use `query.recentProgress`, which fetches every field of up to a hundred reports from
    the JVM by separate calls. With ten polls a second, this took over a third of the time of
    `archive`.
    """

    def __init__(self, query: Any) -> None:
        self._query, self._last = query, None

    def take(self) -> list[dict[str, Any]]:
        """The reports since the last call, the oldest first."""
        known = self._query._jsq.recentProgress()
        new: list[Any] = []
        for at in reversed(range(len(known))):
            if known[at] == self._last:     # the same object of the JVM
                break
            new.append(known[at])
        if new:
            self._last = new[0]
        return [json.loads(report.json()) for report in reversed(new)]


def is_batch(report: Mapping[str, Any]) -> bool:
    """Whether a report of progress is about a batch that ran.

    While there is nothing to read, Spark reports every ten seconds too. Such a report has the
    number of the next batch, and a batch with that number will follow.
    """
    return bool(report["numInputRows"]) or "addBatch" in report.get("durationMs", {})


def unreported(query: Any) -> dict[str, Any]:
    """The figures of a query's last batch: rows read, observed metrics, and late rows. They are
    read from the query's plan, and returned in the form of a progress report."""
    execution = query._jsq.streamingQuery().lastExecution()
    nodes, rows, late = [execution.executedPlan()], 0, 0
    while nodes:
        node = nodes.pop()
        children = node.children()
        nodes += [children.apply(at) for at in range(children.size())]
        rows += _figure(node, "numOutputRows") if children.isEmpty() else 0
        late += _figure(node, "numRowsDroppedByWatermark")
    observed = execution.observedMetrics()
    names = observed.keys().toList()
    return {
        "numInputRows": rows,
        "observedMetrics": {
            names.apply(at): json.loads(observed.apply(names.apply(at)).json())
            for at in range(names.size())
        },
        "stateOperators": [{"numRowsDroppedByWatermark": late}],
    }


def _figure(node: Any, name: str) -> int:
    """A metric of a node in a plan; 0 if the node has no metric of that name."""
    found = node.metrics().get(name)
    return int(found.get().value()) if found.isDefined() else 0
