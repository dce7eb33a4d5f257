from collections.abc import Callable

from ottla.replication.partition import Partition, Promise
from ottla.wire.errors import ProtocolError

class CommitPromise(Promise): ...

def when_committed(
    partition: Partition, done: Callable[[ProtocolError | None], None]
) -> None:
    """Call `done(None)` once everything that the log holds now is committed. If the log goes
    offline before that, or another broker leads the partition, call `done(error)`.

    If everything is committed already, `done` is called before this returns. The functions that
    wait are called in the order of the appends.
    """
