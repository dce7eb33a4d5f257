"""The thread that flushes without the interpreter lock: it reports failures, and returns every
group."""

from __future__ import annotations

import errno
import select
from pathlib import Path

import pytest

from ottla.broker.threads.plain_syncs import plain_files
from ottla.broker.threads.sync_thread import FILES_MAX, SyncThread
from ottla.log.files.disk import DelegatingFile, File
from tests.broker.flush_tasks import opened, refusing, task


def wait(thread: SyncThread) -> dict[File, OSError]:
    assert select.select([thread.fd], [], [], 20)[0]
    return thread.end()


def test_one_group_after_the_other_comes_back(tmp_path: Path) -> None:
    thread = SyncThread()
    for count in (1, 2, FILES_MAX):
        thread.begin([opened(tmp_path, number) for number in range(count)])
        assert wait(thread) == {}
    thread.close()


def test_the_file_that_failed_is_told_with_its_reason(tmp_path: Path) -> None:
    thread = SyncThread()
    good = opened(tmp_path)
    pipe = refusing()
    thread.begin([good, pipe])
    failures = wait(thread)
    assert list(failures) == [pipe]
    assert failures[pipe].errno == errno.EINVAL and failures[pipe].filename == "a pipe"
    thread.begin([good])
    assert wait(thread) == {}
    thread.close()


def test_who_ends_it_waits_for_what_it_is_at(tmp_path: Path) -> None:
    thread = SyncThread()
    thread.begin([opened(tmp_path)])
    thread.close()
    assert thread.fd == -1
    thread.close()
    SyncThread().close()  # a thread that was never used


def test_a_second_group_while_one_is_under_way_is_refused(tmp_path: Path) -> None:
    thread = SyncThread()
    thread.begin([opened(tmp_path)])
    with pytest.raises(AssertionError, match="after the previous group has ended"):
        thread.begin([opened(tmp_path)])
    assert wait(thread) == {}
    thread.close()


def test_only_groups_that_are_nothing_but_files_go_without_python(tmp_path: Path) -> None:
    file = opened(tmp_path)
    assert plain_files([task([file]), task([file])]) == [file, file]
    assert plain_files([task([file] * FILES_MAX)]) == [file] * FILES_MAX
    assert plain_files([task([file] * FILES_MAX), task([file])]) is None
    assert plain_files([task([file], ["its directory is new"])]) is None
    assert plain_files([task([])]) is None
    assert plain_files([task([DelegatingFile(-1, "of a test")])]) is None
    epochs = task([file])
    epochs.epochs = b"0"
    assert plain_files([epochs]) is None
