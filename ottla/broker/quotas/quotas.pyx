# cython: boundscheck=False, wraparound=False
"""What clients may use of the broker: bytes produced and fetched, request time, mutations.

Each client is asked for its `ClientQuotas` once, until the quotas in the metadata change. As in
Kafka a client that has used too much is answered at once, with a throttle time, and its connection
is not read from for so long (KIP-219).
"""

from libc.math cimport round
from libc.stdint cimport INT64_MAX, int32_t, int64_t

from ottla.broker.quotas.windows cimport Rate, TokenBucket
from ottla.broker.security.client cimport Client
from ottla.log.clock cimport Clock

from ottla.broker.quotas.precedence import quota_of
from ottla.replication.controller.quotas import CLIENT_KEYS
from ottla.wire.errors import ErrorCode, ProtocolError

cdef enum:
    KEPT_MAX = 10_000           # scopes that are remembered; a client may change its id at will
    THROTTLE_MS_MAX = 600_000   # one record may be as large as many windows

cdef int WRITE_TXN_MARKERS = 27     # by brokers only


class ThrottlingQuotaExceeded(ProtocolError):
    """The client has created or deleted as many partitions as it may for now (KIP-599)."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


cdef class ClientQuotas:
    pass


cdef class Quotas:
    """The quotas of one broker, by the newest metadata; windows outlast changes of their bound."""

    def __init__(
        self, Clock clock not None, int samples=11, double sample_seconds=1,
        int controller_samples=11, double controller_sample_seconds=1
    ):
        self.clock, self.limits, self.kept = clock, {}, {}
        self.samples, self.sample_seconds = samples, sample_seconds
        self.controller_samples = controller_samples
        self.controller_sample_seconds = controller_sample_seconds

    def follow(self, old, new, topics=()):
        """Take other quotas; it follows the metadata."""
        if new.quotas is self.limits:
            return
        self.limits = new.quotas
        self.epoch += 1
        used = {key for limits in new.quotas.values() for key in limits if key in CLIENT_KEYS}
        self.active, self.timing = bool(used), "request_percentage" in used

    cdef ClientQuotas of(self, Client client):
        """What counts for a client now."""
        cdef ClientQuotas found = <ClientQuotas>client.quotas
        if found is not None and found.epoch == self.epoch:
            return found
        found = ClientQuotas.__new__(ClientQuotas)
        found.epoch = self.epoch
        user, client_id = client.principal.partition(":")[2], client.client_id or ""
        found.produced = self.window("producer_byte_rate", user, client_id)
        found.fetched = self.window("consumer_byte_rate", user, client_id)
        found.requests = self.window("request_percentage", user, client_id)
        found.mutations = self.window("controller_mutation_rate", user, client_id)
        client.quotas = found
        return found

    cdef object window(self, str key, str user, str client_id):
        """The window that a client shares with others of its scope; None: it is not limited."""
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
        """Forget the half of all scopes that nobody has used for longest."""
        by_use = sorted(self.kept.items(), key=lambda item: item[1].used_at)
        self.kept = dict(by_use[len(by_use) // 2:])

    cdef int32_t charge(
        self, Client client, int key, Py_ssize_t size, double seconds, double now
    ) except -1:
        """Count what a request has used; returns the milliseconds to throttle its client.

        `size` is what a produce has brought or a fetch takes along, `seconds` the time that the
        loop has spent with the request.
        """
        cdef ClientQuotas limits = self.of(client)
        cdef double wait = 0
        seconds = min(max(seconds, 0), self.sample_seconds)     # quotas came or went meanwhile
        if key == PRODUCE and limits.produced is not None:
            wait = limits.produced.record(<double>size, now)
        elif key == FETCH and limits.fetched is not None:
            wait = limits.fetched.record(<double>size, now)
        if limits.requests is not None and key != WRITE_TXN_MARKERS:
            wait = max(wait, min(limits.requests.record(seconds * 100, now), self.sample_seconds))
        return in_ms(wait)

    cdef int32_t would_throttle(self, Client client, Py_ssize_t size, double now) except -1:
        """What `charge` would return for a fetch that takes `size` bytes along.

        A fetch that is throttled takes none, so that it is not counted (KIP-219).
        """
        cdef Rate rate = self.of(client).fetched
        return 0 if rate is None else in_ms(rate.would_wait(<double>size, now))

    cdef int64_t fetch_size_max(self, Client client) except -1:
        """How many bytes one fetch of a client may return: what a whole window allows."""
        cdef Rate rate = self.of(client).fetched
        if rate is None:
            return INT64_MAX
        return max(1, <int64_t>min(rate.bound * (self.samples - 1) * self.sample_seconds, 1e15))

    def mutations(self, Client client not None, bint strict):
        """What one request may create and delete; None where nothing limits its client."""
        cdef TokenBucket bucket = self.of(client).mutations if self.active else None
        return None if bucket is None else Mutations(bucket, self.clock, strict)


cdef class Mutations:
    """The partitions that one request creates or deletes (KIP-599).

    Where `strict` it is refused more once its client owes any. Clients of older versions do not
    know that error and are only throttled.
    """

    def __init__(self, TokenBucket bucket not None, Clock clock not None, bint strict):
        self.bucket, self.clock, self.strict = bucket, clock, strict

    def begin(self):
        """A decision begins, perhaps once more: what it took before is given back."""
        self.bucket.take(-self.taken, self.clock.monotonic())
        self.taken = self.throttle_ms = 0

    def take(self, int partitions):
        """Count partitions; raises ThrottlingQuotaExceeded."""
        cdef double now = self.clock.monotonic()
        cdef double wait = self.bucket.wait(now)
        if self.strict and wait > 0:
            self.throttle_ms = in_ms(wait)
            raise ThrottlingQuotaExceeded("")       # Kafka has no text for it either
        self.bucket.take(partitions, now)
        self.taken += partitions
        if not self.strict:
            self.throttle_ms = in_ms(self.bucket.wait(now))


cdef int32_t in_ms(double seconds) noexcept:
    return <int32_t>min(round(seconds * 1000), <double>THROTTLE_MS_MAX)
