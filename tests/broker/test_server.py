"""A start is refused if the metadata are missing. A stop at any time leaves no task behind."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from ottla.broker.network.poller import BrokerLoop
from ottla.broker.server import Server
from ottla.log.storage.log_directory import StorageRefused
from ottla.wire.messages import FindCoordinatorRequest
from tests.broker.produce_fetch import batch, produce
from tests.broker.running import RunningBroker, WireClient
from tests.broker.topics import create
from tests.waiting import until


def test_records_without_their_metadata_refuse_a_start(data: Path) -> None:
    with RunningBroker(data, auto_create_topics_enable=True) as broker:
        with WireClient(broker.address) as client:
            create(client, "kept")
            assert produce(client, "kept", batch(b"v")).error_code == 0
    shutil.rmtree(data / "__ottla_metadata-0")
    with pytest.raises(StorageRefused, match="kept-0"):
        RunningBroker(data)
    assert (data / "kept-0").exists()




async def turn(count: int) -> None:
    """Let the loop run `count` turns."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        turned = loop.create_future()
        loop.call_soon(turned.set_result, None)
        await turned


@pytest.mark.parametrize("turns", range(6))
def test_a_stop_at_any_time_leaves_no_task_behind(
    data: Path, turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    """This includes tasks that load a coordinator. A task that is left when its loop ends is
    destroyed, and asyncio logs this."""
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        until(lambda: client.call(find, 4).coordinators[0].error_code == 0, "a coordinator")
        config = broker.config

    async def stopped_early() -> set[asyncio.Task[object]]:
        server = Server(config)
        await server.start()
        await turn(turns)
        await server.stop()
        await turn(3)
        return asyncio.all_tasks() - {asyncio.current_task()}

    with asyncio.Runner(loop_factory=BrokerLoop) as runner:
        assert not runner.run(stopped_early())
    assert "was destroyed" not in caplog.text
