"""Syncs in threads: when a group of tasks has ended, each task has its own error."""

from __future__ import annotations

import asyncio
import errno
import weakref
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from ottla.broker.cluster.metadata_log import MetadataLog
from ottla.broker.threads.plain_syncs import PlainSyncs, plain_files
from ottla.log.files.disk import Disk
from ottla.log.storage.storage import Storage
from ottla.replication.metadata import ConfigSet, Decision, MetadataImage, MetadataRecord
from ottla.replication.standalone import StandaloneStore, StandaloneWrite
from ottla.replication.store import Encoded
from ottla.wire.errors import StorageFailed
from tests.broker.flush_tasks import opened, refusing, task
from tests.fakes import FakeClock


class Owner:
    """Takes the place of an object that keeps a partition, and so its open files."""


def test_only_the_task_of_the_file_that_failed_fails(tmp_path: Path) -> None:
    async def main() -> None:
        syncs, ended = PlainSyncs(asyncio.get_running_loop()), asyncio.Event()
        good, bad = task([opened(tmp_path)]), task([refusing()])
        assert syncs.begin([good, bad], ended.set)
        await ended.wait()
        assert good.error is None
        assert bad.error is not None and bad.error.errno == errno.EINVAL
        syncs.close()

    asyncio.run(main())


def test_a_file_is_given_up_when_its_sync_has_ended(tmp_path: Path) -> None:
    async def main() -> None:
        syncs, ended = PlainSyncs(asyncio.get_running_loop()), asyncio.Event()
        mine, owner = task([opened(tmp_path)]), Owner()
        known = weakref.ref(owner)
        assert syncs.begin([mine], partial(lambda owner: ended.set(), owner))
        del owner
        await ended.wait()
        assert known() is None, "the room of a deleted file would not come back"
        syncs.close()

    asyncio.run(main())


def test_what_needs_more_than_syncs_is_left_to_others(tmp_path: Path) -> None:
    async def main() -> None:
        syncs = PlainSyncs(asyncio.get_running_loop())
        assert not syncs.begin([task([opened(tmp_path)], [str(tmp_path)])], lambda: None)
        syncs.close()

    asyncio.run(main())


def test_metadata_that_cannot_be_synced_are_refused_and_never_shown(tmp_path: Path) -> None:
    async def main() -> None:
        storage = Storage.open(Disk(), FakeClock(), [str(tmp_path)], node_id=0)
        store = StandaloneStore.open(storage, storage.clock)
        log = MetadataLog(store, asyncio.get_running_loop())
        await log.decide(set_to, "a")           # the first write also syncs directories
        bad = [False, True]

        def begin(
            records: Sequence[MetadataRecord], image: MetadataImage, encoded: Encoded
        ) -> StandaloneWrite:
            write = store.begin(records, image, encoded)
            assert write.task is not None and plain_files([write.task])
            if bad.pop(0):
                write.task.files = [refusing()]
            return write

        log.begin = begin                       # type: ignore[method-assign]
        await log.decide(set_to, "b")
        shown = log.image
        assert shown.config_of("group", "g") == {"s": "b"}
        with pytest.raises(StorageFailed, match="metadata could not be written"):
            await log.decide(set_to, "c")
        assert log.image is shown
        log.close()

    asyncio.run(main())


def set_to(image: MetadataImage, value: str) -> Decision[None]:
    return Decision([ConfigSet("group", "g", "s", value)], None)
