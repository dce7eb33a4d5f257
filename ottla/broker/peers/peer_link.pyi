"""The common part of connections to other brokers."""

class PeerLink:
    heard_at: float
    error: Exception | None
    @property
    def expires_at(self) -> float: ...
    def receive_pending(self) -> None: ...
