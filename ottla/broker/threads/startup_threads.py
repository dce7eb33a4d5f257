"""Threads that recover logs at the start, before clients are served. Each log directory has its own
threads.

Reading and checksums run without the interpreter lock, so two threads keep two cores busy. If the
data are not in the page cache, the threads keep the disk busy. As in Kafka, each log is recovered
by one thread.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from ottla.log.storage.recovery_task import LogRecovery, Wanted
from ottla.log.storage.storage import Storage


def recover(storage: Storage, wanted: Wanted, threads: int) -> int:
    """Recover the logs in `wanted` that need recovery; returns their number. Blocks.

    Disk errors are reported when the log is opened. With one thread and one directory this does
    nothing: logs are then recovered one by one when they are opened.
    """
    queues = [deque(recoveries) for recoveries in storage.recoveries(wanted)]
    if threads * len(queues) < 2:
        return 0
    total, one_at_a_time = sum(map(len, queues)), Lock()
    useful = [(queue, min(threads, len(queue))) for queue in queues]
    with ThreadPoolExecutor(total, thread_name_prefix="ottla-recovery") as pool:
        working = [
            pool.submit(_work, queue, storage, one_at_a_time)
            for queue, count in useful
            for _ in range(count)
        ]
    for each in working:
        each.result()                   # a bug of the broker ends the start
    return total


def _work(queue: deque[LogRecovery], storage: Storage, one_at_a_time: Lock) -> None:
    """The work of one thread: recover the next log until none is left."""
    while True:
        try:
            recovery = queue.popleft()
        except IndexError:
            return
        recovery.run()
        with one_at_a_time:
            storage.end_recovery(recovery)
