"""A regular expression finds new topics, although the log refuses to record them at first."""

from __future__ import annotations

from typing import Any

from ottla.groups.consumer.heartbeat import Heartbeat, HeartbeatReply
from ottla.wire.errors import CoordinatorNotAvailable
from tests.groups.bench import Workbench
from tests.groups.members import GROUP


def beat(bench: Workbench, epoch: int, **told: Any) -> Any:
    """Send a heartbeat with a `sees` function, as the broker does if there are ACLs."""
    request = Heartbeat(GROUP, "a", epoch, sees=lambda topic: True, **told)
    return bench.ask(lambda s, r: s.beat(request, r))


def test_a_topic_is_found_after_too_few_replicas_were_in_sync_to_record_it() -> None:
    bench = Workbench()
    bench.cluster.make("logs-1", 1)
    joined = beat(bench, 0, pattern="logs-.*", rebalance_timeout_ms=5_000, owned=frozenset())
    assert len(joined.assignment) == 1
    bench.cluster.make("logs-2", 1)
    bench.refusal = CoordinatorNotAvailable("too few replicas")
    assert isinstance(beat(bench, joined.member_epoch), CoordinatorNotAvailable)
    bench.refusal = None
    told = beat(bench, joined.member_epoch)
    assert isinstance(told, HeartbeatReply)
    assert told.assignment is not None and len(told.assignment) == 2
