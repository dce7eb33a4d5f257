"""The sender of a request: one object for a connection, which each of its requests refers to."""

ANONYMOUS = "User:ANONYMOUS"
"""The principal of clients of a listener that does not authenticate."""

cdef enum:
    ALLOWED_MAX = 1000              # topics in `writable`; `readable` has the same limit
    SAMPLED_MAX = 100               # topics in `written`; `read` has the same limit
    SAMPLES_KEPT = 24               # a topic is forgotten after this many samples without it


cdef class Client:
    """One client, made by the listener that accepted it."""

    def __init__(
        self, str host, str listener, str connection_id="", str principal=ANONYMOUS,
        str protocol="PLAINTEXT",
    ):
        self.host, self.listener, self.connection_id = host, listener, connection_id
        self.principal, self.protocol = principal, protocol

    cpdef Client named(self, str client_id):
        """The same client with the client id of a later request."""
        cdef Client client = Client(
            self.host, self.listener, self.connection_id, self.principal, self.protocol)
        client.client_id, client.by_token = client_id, self.by_token
        client.software_name, client.software_version = self.software_name, self.software_version
        client.written, client.read = self.written, self.read
        return client

    cdef bint allowed(self, object rules, bint writing, object topic) except -1:
        """Whether the authorizer is known to allow this client to write to, or to read, a topic
        given by name or id. `rules` is the authorizer's table of decisions, a new object after each
        change of the ACLs.

        If this is false the authorizer has to be asked: its permissions are only cached here.
        """
        return self.rules is rules and topic in (self.writable if writing else self.readable)

    cdef int allow(self, object rules, bint writing, object topic) except -1:
        """Note that the authorizer allows this client to write to, or to read, a topic."""
        cdef set topics
        if self.rules is not rules:
            self.rules, self.writable, self.readable = rules, set(), set()
        topics = self.writable if writing else self.readable
        if len(topics) >= ALLOWED_MAX:
            topics.clear()
        topics.add(topic)
        return 0

    def sample(self, int number):
        """Sample the topics of the next Produce and of the next Fetch, and forget the topics that
        the last SAMPLES_KEPT samples did not have."""
        for topics in (self.written, self.read):
            if topics is not None:
                for topic in [each for each, at in topics.items() if at < number - SAMPLES_KEPT]:
                    del topics[topic]
        self.sample_number = number
        self.samples_writes = self.samples_reads = True

    cdef int sampled(self, bint writing, object topic) except -1:
        """Note a topic of a sampled request."""
        cdef dict topics = self.written if writing else self.read
        if topics is None:
            topics = {}
            if writing:
                self.written = topics
            else:
                self.read = topics
        if topic in topics or len(topics) < SAMPLED_MAX:
            topics[topic] = self.sample_number
        return 0

    def authenticated(self, str principal, bint by_token):
        """The same client after it has authenticated as `principal`."""
        cdef Client client = self.named(self.client_id)
        client.principal, client.by_token = principal, by_token
        return client

    def peer(self):
        """The peer's address and port, as far as they are known."""
        _, dash, rest = (self.connection_id or "").partition("-")
        return rest.rpartition("-")[0] if dash else self.host

    def introduce(self, str software_name, str software_version):
        """Note the name and version of the client's software from ApiVersions."""
        self.software_name, self.software_version = software_name, software_version
