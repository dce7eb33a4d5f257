"""Threads that recover logs at the start, before anybody is served: so many for each log directory.

Reading and checksums go on without the interpreter lock, so that two threads keep two cores busy,
or a disk that has to bring what was in no cache. As in Kafka a log is one thread's, whole.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

from ottla.log.recovering import LogRecovery, Wanted
from ottla.log.storage import Storage

WAITING_MAX = 16
"""Logs that are done and wait for the loop's thread, with their files still open."""
Done = tuple[LogRecovery, BaseException | None]


def recover(storage: Storage, wanted: Wanted, threads: int) -> int:
    """Recover those of these logs that need it; how many that were. Blocks.

    What the disk refuses is told when the log is asked for. With one thread for one directory
    nothing is done: logs are recovered one by one then, as they are asked for.
    """
    queues = [deque(recoveries) for recoveries in storage.recoveries(wanted)]
    if threads * len(queues) < 2:
        return 0
    total, done = sum(map(len, queues)), Queue[Done](WAITING_MAX)
    with ThreadPoolExecutor(threads * len(queues), thread_name_prefix="ottla-recovery") as pool:
        for queue in queues:
            for _ in range(min(threads, len(queue))):
                pool.submit(_work, queue, done)
        failure = None
        for _ in range(total):
            recovery, failed = done.get()
            failure = failure or failed
            storage.end_recovery(recovery)
    if failure is not None:
        raise failure
    return total


def _work(queue: deque[LogRecovery], done: Queue[Done]) -> None:
    """One thread: recover what is next, until nothing is left."""
    while True:
        try:
            recovery = queue.popleft()
        except IndexError:
            return
        failure = None
        try:
            recovery.run()
        except BaseException as error:      # a bug of ours: it has to end the start
            failure = error
        done.put((recovery, failure))
