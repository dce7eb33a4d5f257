"""Metrics pushed by clients (KIP-714), under the clients' names for them.

As in OpenTelemetry's own Prometheus exporters, dots become underscores, and a monotonic sum gets
`_total`. The labels `client_instance_id` and `client_id` identify the client.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import counter, gauge, labels, metric

if TYPE_CHECKING:
    from ottla.broker.context import BrokerContext

OURS = ("kafka_", "ottla_", "process_")
"""Prefixes that only the broker itself may use, so that no client can forge the broker's
metrics."""
NO_NAME = re.compile(r"[^a-zA-Z0-9_]")
CLIENTS_PER_SLICE = 10


def client_metrics(broker: BrokerContext) -> Iterator[str]:
    """The newest values of all clients, one metric at a time."""
    instances = broker.client_telemetry.instances
    if instances is None:
        return
    prefix = "ottla_client_telemetry_"
    clients = list(instances)
    yield from gauge(f"{prefix}clients", "Clients that offer their metrics.", len(clients))
    yield from gauge(
        f"{prefix}series", "Values that clients pushed and the broker keeps.", instances.series)
    yield from counter(
        f"{prefix}dropped_total", "Values that clients pushed and the broker dropped.",
        instances.dropped)
    families: dict[str, list[tuple[str, float]]] = {}
    kinds: dict[str, str] = {}
    for number, instance in enumerate(clients):
        own = {
            "client_instance_id": instance.attributes["client_instance_id"],
            "client_id": instance.attributes["client_id"],
        }
        for point in instance.values.values():
            name = _metric_name(point.name, point.counts)
            kind = "counter" if point.counts else "gauge"
            if name.startswith(OURS) or kinds.setdefault(name, kind) != kind:
                continue
            where = {**{_label_name(key): value for key, value in point.labels}, **own}
            families.setdefault(name, []).append((labels(**where), point.value))
        if number % CLIENTS_PER_SLICE == 0:
            yield ""                    # a slice ends
    for name, rows in sorted(families.items()):
        # Two points may become the same series when their labels are cleaned: keep one value.
        shown = ((where, _number(value)) for where, value in dict(rows).items())
        yield from metric(name, kinds[name], "A client's own metric.", shown)


def _metric_name(text: str, counts: bool) -> str:
    name = NO_NAME.sub("_", text)
    if counts and not name.endswith("_total"):
        name += "_total"
    return f"_{name}" if not name or name[0].isdigit() else name


def _label_name(text: str) -> str:
    """Strip underscores: names that start with two are reserved by Prometheus (`__name__`)."""
    name = NO_NAME.sub("_", text).strip("_")
    return f"key_{name}" if not name or name[0].isdigit() else name


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("+Inf" if value > 0 else "-Inf")
