"""Metrics of logins, of refusals by the authorizer, and of the listeners' certificates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.http.exposition import counter, labels, metric

if TYPE_CHECKING:
    from ottla.broker.http.monitor import Monitor


def security_metrics(monitor: Monitor) -> Iterator[str]:
    """Logins by listener, under Kafka's names; the other metrics have names of Ottla's own."""
    for name, help_text in (
        ("successful_authentication", "Logins, and TLS handshakes with a client's certificate."),
        ("failed_authentication", "Failed logins and failed TLS handshakes."),
        ("successful_reauthentication", "Clients that authenticated again."),
        ("failed_reauthentication", "Clients that failed to authenticate again."),
    ):
        rows = [
            (labels(listener=each.name, networkprocessor=0), each.logins.counts[name])
            for each in monitor.listeners
        ]
        for family in ("socketservermetrics", "socket_server_metrics"):
            yield from metric(f"kafka_server_{family}_{name}_total", "counter", help_text, rows)
    authorizer = monitor.broker.authorizer
    if authorizer is not None:
        yield from counter(
            "ottla_authorization_denials_total", "Refusals by ACLs.", authorizer.denials.count)
    ends = [
        (labels(listener=listener.name, subject=each.subject), each.ends.timestamp())
        for listener in monitor.listeners for each in listener.security.chain
    ]
    if ends:
        yield from metric(
            "ottla_certificate_not_after_seconds", "gauge",
            "When a listener's certificates expire, in seconds since 1970.", ends)
