from ottla.log.partition.config import LogConfig
from ottla.wire.batch import BatchLimits
from ottla.wire.errors import ProtocolError

LOOP_US_MAX: int

def room_on_loop(config: LogConfig) -> int:
    """The number of bytes of records that can be compressed on the loop in LOOP_US_MAX."""

class TopicLimits:
    @property
    def config(self) -> LogConfig: ...
    @property
    def limits(self) -> BatchLimits: ...
    @property
    def room_on_loop(self) -> int: ...
    def __init__(self, config: LogConfig) -> None: ...

class Preparation:
    """One partition's records while a thread prepares them; created by ProduceHandler only."""

    @property
    def stored(self) -> bytearray | None: ...
    @property
    def error(self) -> ProtocolError | None: ...
    def run(self) -> None:
        """Prepare the records in a thread; this uses no other data of the broker."""
