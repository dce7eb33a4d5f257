"""Metrics of requests: their number, their errors, the duration of each phase, and how many
requests are waiting now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import labels, metric
from ottla.wire.apis import APIS
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.http.monitor import Monitor

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
REQUESTS = "kafka_network_requestmetrics_"
PHASES = {
    "requestqueue": "The wait for earlier requests of the same connection",
    "local": "The time of the handler, until it ended or began to wait",
    "remote": "The wait for acknowledgements, bytes, other members or the disk",
    "throttle": "How long a quota delayed the client after the response",
}
PURGATORIES = {0: "Produce", 1: "Fetch", 11: "Rebalance", 14: "Rebalance"}
"""Kafka's names for the requests that wait: Produce, Fetch, JoinGroup and SyncGroup."""


def request_metrics(monitor: Monitor) -> Iterator[str]:
    """The number and the duration of the requests so far."""
    counts = monitor.broker.counts
    rows = [
        (labels(request=_api(key), version=version), count)
        for (key, version), count in counts.by_version()
    ]
    yield from metric(f"{REQUESTS}requests_total", "counter", "Requests.", rows)
    errors = [
        (labels(request=_api(key), error=_error(code)), count)
        for (key, code), count in sorted(counts.errors.items())
    ]
    yield from metric(f"{REQUESTS}errors_total", "counter", "Errors in responses.", errors)
    durations = counts.durations()
    totals = {key: buckets for key, (buckets, _) in durations.items()}
    yield from _times("total", "The time from a request to its response", totals)
    for phase, help_text in PHASES.items():
        yield from _times(phase, help_text, counts.phase(phase))
    yield from _histogram(durations)


def _times(phase: str, help_text: str, by_key: Mapping[int, Sequence[int]]) -> Iterator[str]:
    """The durations of one phase, under Kafka's name for it, in milliseconds."""
    name = f"{REQUESTS}{phase}timems"
    times = [
        (labels(request=_api(key), quantile=quantile), quantile_ms(buckets, quantile))
        for key, buckets in by_key.items() for quantile in QUANTILES
    ]
    yield from metric(name, "gauge", f"{help_text}, in ms; since the broker's start.", times)
    counted = [(labels(request=_api(key)), sum(buckets)) for key, buckets in by_key.items()]
    yield from metric(f"{name}_count", "counter", "Requests whose duration was measured.", counted)


def _histogram(durations: Mapping[int, tuple[list[int], float]]) -> Iterator[str]:
    seconds = "ottla_request_duration_seconds"
    yield f"# HELP {seconds} Seconds from a request to its response.\n# TYPE {seconds} histogram\n"
    for key, (buckets, spent) in durations.items():
        last = max(at for at, count in enumerate(buckets) if count)
        api = _api(key)
        lines = [
            f'{seconds}_bucket{{request="{api}",le="{2**at / 1e6}"}} {count}\n'
            for at, count in enumerate(accumulate(buckets[: last + 1]))
        ]
        lines.append(f'{seconds}_bucket{{request="{api}",le="+Inf"}} {sum(buckets)}\n')
        lines.append(f'{seconds}_sum{{request="{api}"}} {spent}\n')
        lines.append(f'{seconds}_count{{request="{api}"}} {sum(buckets)}\n')
        yield "".join(lines)


def waiting_requests(waiting: Mapping[int, int]) -> Iterator[str]:
    """How many requests wait: under the names of Kafka's purgatories, and for each API. `waiting`
    has the numbers by API key."""
    sizes: Counter[str] = Counter()
    for key, name in PURGATORIES.items():
        sizes[name] += waiting.get(key, 0)
    yield from metric(
        "kafka_server_delayedoperationpurgatory_purgatorysize", "gauge",
        "Requests that are waiting now.",
        [(labels(delayedOperation=name), size) for name, size in sizes.items()])
    yield from metric(
        "ottla_requests_waiting", "gauge", "Requests that are waiting now, by API.",
        [(labels(request=_api(key)), count) for key, count in waiting.items() if count])


def _api(key: int) -> str:
    return APIS[key].name if key in APIS else str(key)


def _error(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)


def quantile_ms(buckets: Sequence[int], quantile: float) -> float:
    """The upper bound of the bucket that contains the quantile, in milliseconds."""
    wanted, seen = quantile * sum(buckets), 0
    for at, count in enumerate(buckets):
        seen += count
        if seen >= wanted:
            return float(2**at / 1000)
    return 0.0
