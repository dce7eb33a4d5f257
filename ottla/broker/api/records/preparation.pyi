from ottla.log.config import LogConfig
from ottla.wire.batch import BatchLimits
from ottla.wire.errors import ProtocolError

LOOP_US_MAX: int

def room_on_loop(config: LogConfig) -> int:
    """How many bytes of records the loop may compress: what takes LOOP_US_MAX."""

class TopicLimits:
    @property
    def config(self) -> LogConfig: ...
    @property
    def limits(self) -> BatchLimits: ...
    @property
    def room_on_loop(self) -> int: ...
    def __init__(self, config: LogConfig) -> None: ...

class Preparation:
    """One partition's records on their way through a thread; made by Producing only."""

    @property
    def stored(self) -> bytearray | None: ...
    @property
    def error(self) -> ProtocolError | None: ...
    def run(self) -> None:
        """Do it; for a thread, which has nothing else of the broker's in its hands."""
