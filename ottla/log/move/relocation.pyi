from collections.abc import Callable

from ottla.log.partition_log import PartitionLog

def relocate(
    log: PartitionLog, directory: str, on_failure: Callable[[str], None] | None
) -> None: ...
