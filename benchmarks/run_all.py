"""`make bench`: every question, one after the other, then the table of them all."""

from __future__ import annotations

from benchmarks import (
    client_rates,
    fetch_cpu,
    flush_rate,
    groups_cpu,
    latency,
    produce_cpu,
    restart_time,
    scrub_cpu,
    start_time,
    table,
)

QUESTIONS = (
    start_time, produce_cpu, fetch_cpu, latency, groups_cpu, flush_rate, restart_time, client_rates,
    scrub_cpu,
)  # fmt: skip

if __name__ == "__main__":
    for question in QUESTIONS:
        question.main()
    table.main()
