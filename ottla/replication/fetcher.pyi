"""A follower's side of Fetch, without a socket."""

from ottla.log.files.clock import Clock
from ottla.replication.fetch_plan import FetchPlan
from ottla.replication.fetch_reply import ReplyParser, ReplyReceiver
from ottla.replication.fetch_settings import FetchSettings
from ottla.replication.partition import Partition

class Fetcher(ReplyReceiver):
    @property
    def plan(self) -> FetchPlan: ...
    @property
    def parser(self) -> ReplyParser: ...
    @property
    def bytes_fetched(self) -> int: ...
    def __init__(
        self, node_id: int, source_id: int, clock: Clock, settings: FetchSettings,
        cut: dict[Partition, None],
    ) -> None: ...
    def reset(self) -> None: ...
    def feed(self, data: bytes | bytearray | memoryview) -> int: ...
