from collections.abc import Collection

from ottla.broker.security.client import Client
from ottla.log.clock import Clock
from ottla.replication.metadata import MetadataImage
from ottla.wire.errors import ProtocolError

class ThrottlingQuotaExceeded(ProtocolError): ...

class Quotas:
    def __init__(
        self,
        clock: Clock,
        samples: int = 11,
        sample_seconds: float = 1,
        controller_samples: int = 11,
        controller_sample_seconds: float = 1,
    ) -> None: ...
    @property
    def active(self) -> bool: ...
    @property
    def timing(self) -> bool: ...
    def follow(
        self, old: MetadataImage, new: MetadataImage, topics: Collection[str] = ()
    ) -> None: ...
    def mutations(self, client: Client, strict: bool) -> Mutations | None: ...

class Mutations:
    @property
    def throttle_ms(self) -> int: ...
    def begin(self) -> None: ...
    def take(self, partitions: int) -> None: ...
