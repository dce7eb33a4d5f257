"""Topics that are created at their first use, and the replication factor that they get."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire.messages import FindCoordinatorRequest
from tests.broker.running import RunningBroker, WireClient


@pytest.mark.parametrize("wanted", [None, 3])
def test_a_lone_broker_warns_of_a_factor_that_was_set_and_not_of_a_default(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wanted: int | None
) -> None:
    given = {} if wanted is None else {"offsets.topic.replication.factor": wanted}
    with RunningBroker(tmp_path, **given) as broker, WireClient(broker.address) as client:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["me"])
        assert client.call(request, 4).coordinators[0].error_code == 0
    warned = [each.getMessage() for each in caplog.records if each.name == "ottla.topics"]
    assert [each for each in warned if "more than" in each] == [
        "offsets.topic.replication.factor=3 is more than the number of brokers:"
        " new topics get the replication factor 1"
    ] * (wanted is not None)


def test_a_small_segment_size_does_not_prevent_internal_topics(tmp_path: Path) -> None:
    """Kafka's limit for the segment size of these topics is lower than that of all topics."""
    small = {"offsets_topic_segment_bytes": 1, "transaction_state_log_segment_bytes": 1000}
    with RunningBroker(tmp_path, **small) as broker, WireClient(broker.address) as client:
        for kind, topic in enumerate(("__consumer_offsets", "__transaction_state")):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["me"])
            assert client.call(request, 4).coordinators[0].error_code == 0
            partition = broker.server.replicas.partition(topic, 0)
            assert partition is not None and partition.log.config.segment_bytes == 1 << 20
