"""One request, as its handler sees it: who sent it, which API and version, and the broker."""

from libc.stdint cimport int32_t

from ottla.broker.security.client cimport Client

from ottla.broker.security.access import Access


cdef class RequestContext:
    """One request: its sender, its API and version."""

    def __init__(self, broker, int api_key, int version, Client client):
        self.broker, self.api_key, self.version, self.client = broker, api_key, version, client

    @property
    def access(self):
        """What the client is allowed to do."""
        return Access(self.broker.authorizer, self.client, self.broker.image, self.api_key)

    def throttle(self, int throttle_ms):
        """Throttle the client for at least this time after its reply."""
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
