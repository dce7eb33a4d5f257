from collections.abc import Callable

from ottla.replication.partition import Partition, Promise
from ottla.wire.errors import ProtocolError

class CommitPromise(Promise): ...

def when_committed(
    partition: Partition, done: Callable[[ProtocolError | None], None]
) -> None:
    """Call `done(None)` once everything that the log holds now is committed, or `done(error)` if
    the log goes offline or another broker leads the partition before that.

    If everything is committed already, `done` is called before this returns. The functions that
    wait are called in the order of the appends.
    """
