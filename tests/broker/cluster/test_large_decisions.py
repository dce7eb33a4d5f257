"""Decisions that do not fit into an entry of the metadata log: each item of the request fails."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from ottla.replication import entries
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import CreateTopicsRequest
from tests.broker.cluster.running_cluster import RunningCluster, create


@pytest.mark.parametrize("forwarded", [False, True])
def test_each_item_of_a_request_that_fits_into_no_entry_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forwarded: bool
) -> None:
    names = [sha256(b"%d" % number).hexdigest() for number in range(50)]
    topic = CreateTopicsRequest.Topic
    request = CreateTopicsRequest(
        topics=[topic(name=name, num_partitions=1, replication_factor=1) for name in names],
        timeout_ms=10_000,
    )
    with RunningCluster(tmp_path, 2) as cluster:
        monkeypatch.setattr(entries, "ENTRY_SIZE_MAX", 1000)
        node_id = cluster.controller
        with cluster.client(3 - node_id if forwarded else node_id) as client:
            answers = client.call(request, 5).topics
        assert [each.name for each in answers] == names
        assert {each.error_code for each in answers} == {ErrorCode.POLICY_VIOLATION}
        assert all("ask for it in several requests" in each.error_message for each in answers)
        assert create(cluster, node_id, "small", 1, 1) == 0
