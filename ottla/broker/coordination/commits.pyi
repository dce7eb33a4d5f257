from collections.abc import Callable

from ottla.replication.partition import Partition, Promise
from ottla.wire.errors import ProtocolError

class CommitPromise(Promise): ...

def when_committed(
    partition: Partition, done: Callable[[ProtocolError | None], None]
) -> None:
    """Call `done(None)` once everything that the log holds now is committed, else `done(error)`.

    If everything is committed already, `done` is called before this returns. Later calls of `done`
    are in the order of the appends.
    """
