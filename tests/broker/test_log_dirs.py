"""AlterReplicaLogDirs: a partition may be put where it is; the codes were asked of Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import AlterReplicaLogDirsRequest
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import RunningBroker, WireClient
from tests.broker.test_server import create


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_partition_stays_where_it_is(tmp_path: Path, version: int) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    with RunningBroker(tmp_path, log_dirs=f"{first},{second}") as running:
        with WireClient(running.address) as client:
            create(client, "t")
            assert produce(client, "t", batch(b"x")).error_code == 0
            made = AlterReplicaLogDirsRequest.Dir

            def put(path: Path | str, topic: str = "t", index: int = 0) -> int:
                wanted = made(path=str(path), topics=[made.Topic(name=topic, partitions=[index])])
                answer = client.call(AlterReplicaLogDirsRequest(dirs=[wanted]), version)
                [told] = answer.results
                assert (told.topic_name, told.partitions[0].partition_index) == (topic, index)
                code: int = told.partitions[0].error_code
                return code

            [home] = [each for each in (first, second) if (each / "t-0").is_dir()]
            [other] = {first, second} - {home}
            assert put(home) == ErrorCode.NONE
            assert put(other) == ErrorCode.INVALID_REQUEST
            assert (home / "t-0").is_dir() and not (other / "t-0").exists()
            assert put(home, index=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert put(home, topic="nobody") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for path in ("/nowhere", "a", "", f"{home}/"):
                assert put(path) == ErrorCode.LOG_DIR_NOT_FOUND
            assert put("/nowhere", topic="nobody") == ErrorCode.LOG_DIR_NOT_FOUND
