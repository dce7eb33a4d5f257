"""A real Prometheus scrapes a broker under load: no scrape fails, and the expressions of dashboards
and alerts have values. `python -m compat_tests.watched_by_prometheus --minutes 10` runs longer."""

from __future__ import annotations

from pathlib import Path

from compat_tests.waiting import wait_until
from compat_tests.watched_by_prometheus import GROUP, unanswered, watched


def test_prometheus_answers_what_boards_ask(tmp_path: Path) -> None:
    with watched(tmp_path, 1000) as (prometheus, _, instance):
        # Rates need two scrapes of a series, and the group's lag needs the group's first commit.
        moving = f'delta(kafka_consumergroup_current_offset{{consumergroup="{GROUP}"}}[1m]) > 0'
        wait_until(lambda: prometheus.ask(moving), "the group's offsets move")
        wait_until(lambda: not unanswered(prometheus, instance), "every expression is answered")
        assert not prometheus.ask("count_over_time(up[1m]) != sum_over_time(up[1m])")
