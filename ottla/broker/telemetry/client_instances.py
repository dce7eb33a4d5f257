"""The clients that offer their metrics: when each may push, and its newest values (KIP-714)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ottla.broker.telemetry.otlp import Labels, Point
from ottla.broker.telemetry.subscriptions import (
    Subscription,
    Wanted,
    subscriptions_of,
    wanted_from,
)
from ottla.log.files.clock import Clock
from ottla.replication.metadata import MetadataImage, Resource
from ottla.wire.errors import ErrorCode, ProtocolError

INSTANCES_MAX = 16_384
"""How many clients are kept. As in Kafka, a further client replaces the one that has been silent
for longest."""
SERIES_MAX = 50_000
"""How many values are kept for all clients together, about 20 MB; further values are dropped."""
SILENT_INTERVALS_MAX = 3
SILENT_MS_MIN = 60_000
RETRIED = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these errors a client may ask again at once."""


@dataclass(slots=True, eq=False)
class ClientInstance:
    """One client. Times are the monotonic clock's, in ms; -inf for never."""

    instance_id: bytes
    attributes: Mapping[str, str]
    wanted: Wanted
    asked: bool = False             # a subscription was sent, and no push has come since
    asked_at: float = float("-inf")
    pushed_at: float = float("-inf")
    seen_at: float = float("-inf")
    pushes: int = 0
    terminating: bool = False
    newest_error: ErrorCode = ErrorCode.NONE
    values: dict[tuple[str, Labels], Point] = field(default_factory=dict)

    def may_ask(self, now_ms: float) -> bool:
        """Note a GetTelemetrySubscriptions request and return True, or return False if it comes too
        early."""
        if (
            now_ms - max(self.asked_at, self.pushed_at) < self.wanted.interval_ms
            and self.newest_error not in RETRIED
        ):
            return False
        self.asked, self.asked_at = True, now_ms
        return True

    def may_push(self, now_ms: float) -> bool:
        """Note a push and return True, or return False if it comes too early. The first push after
        each GetTelemetrySubscriptions is never too early."""
        if not self.asked and now_ms - self.pushed_at < self.wanted.interval_ms:
            return False
        self.asked, self.pushed_at = False, now_ms
        return True

    def is_gone(self, now_ms: float) -> bool:
        """Whether the client has been silent for so long that its values are outdated."""
        silent_ms_max = max(SILENT_MS_MIN, SILENT_INTERVALS_MAX * self.wanted.interval_ms)
        return now_ms - self.seen_at > silent_ms_max


class ClientInstances:
    """All clients that have asked for a subscription, in the order of their latest requests."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.series = 0
        self.dropped = 0
        self._instances: OrderedDict[bytes, ClientInstance] = OrderedDict()
        self._subscriptions: list[Subscription] = []
        self._read_from: Mapping[Resource, Mapping[str, str]] | None = None

    def now_ms(self) -> float:
        """The monotonic clock in ms."""
        return self.clock.monotonic() * 1000

    def instance(
        self, instance_id: bytes, attributes: Mapping[str, str], image: MetadataImage
    ) -> ClientInstance:
        """A client with its current subscription; an unknown client is added."""
        if self._read_from is not image.configs:        # replaced whenever a setting changes
            self._subscriptions = subscriptions_of(image)
            self._read_from = image.configs
        wanted = wanted_from(self._subscriptions, instance_id, attributes)
        known = self._instances.get(instance_id)
        if known is None:
            known = self._instances[instance_id] = ClientInstance(instance_id, attributes, wanted)
            self._make_room()
        elif known.wanted != wanted:
            # The subscription has changed. The client's next push has the old subscription id and
            # is refused; then the client may request the new subscription without waiting.
            known.wanted = wanted
            known.asked_at = known.pushed_at = float("-inf")
        known.attributes = attributes
        known.seen_at = self.now_ms()
        self._instances.move_to_end(instance_id)
        return known

    def _make_room(self) -> None:
        now_ms = self.now_ms()
        while self._instances:
            oldest = next(iter(self._instances.values()))
            if len(self._instances) <= INSTANCES_MAX and not oldest.is_gone(now_ms):
                break
            if oldest.seen_at == float("-inf"):
                break                   # only the new client itself is left
            self._forget(oldest)

    def _forget(self, instance: ClientInstance) -> None:
        self.series -= len(instance.values)
        instance.values.clear()
        del self._instances[instance.instance_id]

    def keep(self, instance: ClientInstance, points: list[Point], dropped: int) -> None:
        """Keep the values of a push; a delta is added to the earlier value."""
        if self._instances.get(instance.instance_id) is not instance:
            return                      # it was evicted while its push was decoded
        self.dropped += dropped
        instance.pushes += 1
        values = instance.values
        for point in points:
            key = point.name, point.labels
            before = values.get(key)
            if before is None and self.series >= SERIES_MAX:
                self.dropped += 1
                continue
            if before is None:
                self.series += 1
            elif point.delta:
                point = Point(
                    point.name, point.labels, before.value + point.value, point.counts, True
                )
            values[key] = point

    def __iter__(self) -> Iterator[ClientInstance]:
        """The clients that have not been silent for too long."""
        now_ms = self.now_ms()
        for instance in [each for each in self._instances.values() if each.is_gone(now_ms)]:
            self._forget(instance)
        return iter(list(self._instances.values()))


def check_push(
    instance: ClientInstance, subscription_id: int, codec: int, terminating: bool,
    size: int, size_max: int, now_ms: float,
) -> None:
    """Raise a ProtocolError if a push has to be refused; the checks have Kafka's order."""
    if instance.terminating:
        raise ProtocolError(
            "Client sent request with client already in terminating state.",
            ErrorCode.INVALID_REQUEST,
        )
    if not instance.may_push(now_ms) and not terminating:
        raise ProtocolError(
            "Request from the client arrived before the next push interval time.",
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        )
    if subscription_id != instance.wanted.subscription_id:
        raise ProtocolError(
            f"The subscription has changed; its id is now {instance.wanted.subscription_id}.",
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
        )
    if not 0 <= codec <= 4:
        raise ProtocolError(
            f"No codec has the number {codec}.", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
    if size > size_max:
        raise ProtocolError(
            f"The push has {size} bytes, but telemetry.max.bytes is {size_max}.",
            ErrorCode.TELEMETRY_TOO_LARGE,
        )
