"""The connection on which the partitions of one leader are fetched."""

from collections.abc import Callable

from ottla.broker.network.poller import BrokerLoop
from ottla.broker.network.transport import Transport
from ottla.broker.peers.peer_link import PeerLink
from ottla.replication.fetcher import Fetcher

class FetchLink(PeerLink):
    fetcher: Fetcher
    def __init__(
        self,
        loop: BrokerLoop,
        transport: Transport,
        fetcher: Fetcher,
        on_end: Callable[[Exception], None],
        on_cut: Callable[[], None],
    ) -> None: ...
    def send_due(self) -> None: ...
    def time_has_come(self) -> None: ...
    def trim(self) -> None: ...
    def close(self, error: Exception) -> None: ...
