"""The first step of a flush, on the loop: what one log has that is not on the medium yet."""

from ottla.log.flush import FlushTask
from ottla.log.partition_log import PartitionLog

def begin(log: PartitionLog, by_file_system: bool) -> FlushTask | None: ...
