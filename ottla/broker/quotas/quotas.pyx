# cython: boundscheck=False, wraparound=False
"""The limits on what clients may use: bytes produced and fetched, request time, mutations.

The `ClientQuotas` of a client are cached until the quotas in the metadata change. As in Kafka, a
client that has exceeded a quota is answered at once, with a throttle time. Its connection is not
read during that time (KIP-219).
"""

from libc.math cimport round
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from ottla.broker.quotas.windows cimport Rate, TokenBucket
from ottla.broker.security.client cimport Client
from ottla.log.files.clock cimport Clock

from ottla.broker.quotas.precedence import quota_of
from ottla.replication.principals import CLIENT_KEYS
from ottla.wire.errors import ErrorCode, ProtocolError

cdef enum:
    KEPT_MAX = 10_000           # the most scopes kept, since clients may use any client ids
    THROTTLE_MS_MAX = 600_000   # the longest throttle time, however much one request exceeds quotas

cdef int WRITE_TXN_MARKERS = 27     # sent by brokers only


class ThrottlingQuotaExceeded(ProtocolError):
    """The client has exceeded its quota of created or deleted partitions (KIP-599)."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


cdef class ClientQuotas:
    pass


cdef class Quotas:
    """The quotas of one broker, from the newest metadata. When a limit changes, what was counted so
    far still counts."""

    def __init__(
        self, Clock clock not None, int samples=11, double sample_seconds=1,
        int controller_samples=11, double controller_sample_seconds=1
    ):
        self.clock, self.limits, self.kept = clock, {}, {}
        self.samples, self.sample_seconds = samples, sample_seconds
        self.controller_samples = controller_samples
        self.controller_sample_seconds = controller_sample_seconds

    def follow(self, old, new, topics=()):
        """Use the quotas of the new image; called for each change of the metadata."""
        if new.quotas is self.limits:
            return
        self.limits = new.quotas
        self.epoch += 1
        used = {key for limits in new.quotas.values() for key in limits if key in CLIENT_KEYS}
        self.active, self.timing = bool(used), "request_percentage" in used

    cdef ClientQuotas of(self, Client client):
        """The quotas that currently apply to a client."""
        cdef ClientQuotas quotas = <ClientQuotas>client.quotas
        if quotas is not None and quotas.epoch == self.epoch:
            return quotas
        quotas = ClientQuotas.__new__(ClientQuotas)
        quotas.epoch = self.epoch
        user, client_id = client.principal.partition(":")[2], client.client_id or ""
        quotas.produced = self.window("producer_byte_rate", user, client_id)
        quotas.fetched = self.window("consumer_byte_rate", user, client_id)
        quotas.requests = self.window("request_percentage", user, client_id)
        quotas.mutations = self.window("controller_mutation_rate", user, client_id)
        client.quotas = quotas
        return quotas

    cdef object window(self, str key, str user, str client_id):
        """The window that a client shares with others of its scope; None if there is no limit."""
        cdef double now = self.clock.monotonic()
        limit = quota_of(self.limits, key, user, client_id)
        if limit is None:
            return None
        bound, scope = limit
        window = self.kept.get((key, scope))
        if window is None:
            if len(self.kept) >= KEPT_MAX:
                self.forget()
            if key == "controller_mutation_rate":
                window = TokenBucket(
                    self.controller_samples, self.controller_sample_seconds, bound, now)
            else:
                window = Rate(self.samples, self.sample_seconds, bound)
            self.kept[key, scope] = window
        elif key == "controller_mutation_rate":
            window.allow(bound, now)
        else:
            window.bound = bound
        return window

    def forget(self):
        """Drop the least recently used half of all scopes."""
        by_use = sorted(self.kept.items(), key=lambda item: item[1].used_at)
        self.kept = dict(by_use[len(by_use) // 2:])

    cdef int32_t charge(
        self, Client client, int key, Py_ssize_t size, double seconds, double now
    ) except -1:
        """Charge a request to its client's quotas; returns the throttle time in milliseconds.

        `size` is the number of bytes produced or fetched, `seconds` the time that the loop has
        spent on the request.
        """
        cdef ClientQuotas limits = self.of(client)
        cdef double wait = 0
        # Time is measured only while there are quotas of request time. If the first of them was set
        # during this request, `seconds` may be anything, even negative.
        seconds = min(max(seconds, 0), self.sample_seconds)
        if key == PRODUCE and limits.produced is not None:
            wait = limits.produced.record(<double>size, now)
        elif key == FETCH and limits.fetched is not None:
            wait = limits.fetched.record(<double>size, now)
        if limits.requests is not None and key != WRITE_TXN_MARKERS:
            wait = max(wait, min(limits.requests.record(seconds * 100, now), self.sample_seconds))
        return in_ms(wait)

    cdef int32_t would_throttle(self, Client client, Py_ssize_t size, double now) except -1:
        """The throttle time in ms of a fetch of `size` bytes, by the byte rate alone.

        Nothing is charged: a fetch that is throttled returns no records (KIP-219).
        """
        cdef Rate rate = self.of(client).fetched
        return 0 if rate is None else in_ms(rate.would_wait(<double>size, now))

    cdef int64_t fetch_size_max(self, Client client) except -1:
        """The largest size of a client's fetch: the bytes that an unused quota allows at once."""
        cdef Rate rate = self.of(client).fetched
        if rate is None:
            return INT64_MAX
        return max(1, <int64_t>min(rate.bound * (self.samples - 1) * self.sample_seconds, 1e15))

    def throttled(self):
        """The rates in use: key, user, client id, limit, number of throttles, and the sum of the
        throttle times in seconds."""
        return [
            (key, *scope, window.bound, window.throttles, window.throttled)
            for (key, scope), window in self.kept.items() if isinstance(window, Rate)
        ]

    def mutations(self, Client client not None, bint strict):
        """The limit of mutations for one request; None if the client has no such limit."""
        cdef TokenBucket bucket = self.of(client).mutations if self.active else None
        return None if bucket is None else Mutations(bucket, self.clock, strict)


cdef class Mutations:
    """The partitions that one request creates or deletes (KIP-599).

    If `strict`, the request is refused once its client owes tokens. Older clients do not know
    THROTTLING_QUOTA_EXCEEDED, and are only throttled.
    """

    def __init__(self, TokenBucket bucket not None, Clock clock not None, bint strict):
        self.bucket, self.clock, self.strict = bucket, clock, strict

    def begin(self):
        """Called before each attempt to change the metadata: gives back the tokens that the
        previous attempt took."""
        self.bucket.take(-self.taken, self.clock.monotonic())
        self.taken = self.throttle_ms = 0

    def take(self, int partitions):
        """Count partitions. Raises ThrottlingQuotaExceeded if `strict` and tokens are owed."""
        cdef double now = self.clock.monotonic()
        cdef double wait = self.bucket.wait(now)
        if self.strict and wait > 0:
            self.throttle_ms = in_ms(wait)
            raise ThrottlingQuotaExceeded("")       # as in Kafka, without a message
        self.bucket.take(partitions, now)
        self.taken += partitions
        if not self.strict:
            self.throttle_ms = in_ms(self.bucket.wait(now))


cdef int32_t in_ms(double seconds) noexcept:
    return <int32_t>min(round(seconds * 1000), <double>THROTTLE_MS_MAX)
