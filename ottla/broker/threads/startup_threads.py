"""Threads that recover logs at the start, before anybody is served: so many for each log directory.

Reading and checksums go on without the interpreter lock, so that two threads keep two cores busy,
or a disk that has to bring what was in no cache. As in Kafka a log is one thread's, whole.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from ottla.log.recovery.task import LogRecovery, Wanted
from ottla.log.storage import Storage


def recover(storage: Storage, wanted: Wanted, threads: int) -> int:
    """Recover those of these logs that need it; how many that were. Blocks.

    What the disk refuses is told when the log is asked for. With one thread for one directory
    nothing is done: logs are recovered one by one then, as they are asked for.
    """
    queues = [deque(recoveries) for recoveries in storage.recoveries(wanted)]
    if threads * len(queues) < 2:
        return 0
    total, one_at_a_time = sum(map(len, queues)), Lock()
    with ThreadPoolExecutor(threads * len(queues), thread_name_prefix="ottla-recovery") as pool:
        working = [
            pool.submit(_work, queue, storage, one_at_a_time)
            for queue in queues
            for _ in range(threads)
        ]
    for each in working:
        each.result()                   # a bug of ours ends the start
    return total


def _work(queue: deque[LogRecovery], storage: Storage, one_at_a_time: Lock) -> None:
    """One thread: recover what is next, until nothing is left."""
    while True:
        try:
            recovery = queue.popleft()
        except IndexError:
            return
        recovery.run()
        with one_at_a_time:
            storage.end_recovery(recovery)
