# A Produce request as it was read, and how far it is served; see produce_state.pyx.

from libc.stdint cimport int32_t, uint8_t

from ottla.broker.api.records.preparation cimport Preparation
from ottla.broker.network.promises cimport Held, PendingReply
from ottla.broker.security.client cimport Client
from ottla.wire.codec cimport Cursor, Writer


cdef struct ProducedPartition:          # one partition in the request; positions count from `body`
    int32_t topic_at, topic_size        # the topic's name or id
    int32_t partitions                  # in a topic's first entry, its number of entries; else 0
    int32_t index
    int32_t records_at
    int32_t sent                        # bytes of records, -1 for null


cdef class ProduceState(Held):
    """One request between `read` and its reply."""
    cdef Writer reply
    cdef int version, acks
    cdef int timeout_ms
    cdef bint transactional_batches     # it has batches of a transaction
    cdef str transactional_id
    cdef Client client
    cdef object access                  # None without an authorizer
    cdef object refusal                 # an error or verdicts for TransactionGate.check, or None
    cdef PendingReply pending           # holds back the reply until promises end, or None
    cdef bint failed                    # some partition was refused
    cdef uint8_t *body                  # position 0, even if `frame` begins at a later position
    cdef int32_t size_sent              # bytes of the body
    cdef bytearray frame                # the request's own copy of its bytes, or None
    cdef ProducedPartition first        # `parts` points to it if there is one partition
    cdef bytearray memory               # holds the parts if there are several
    cdef ProducedPartition *parts       # in the order of the reply, no partition twice
    cdef Py_ssize_t count, room         # of parts; invariant: next <= count <= room
    cdef Py_ssize_t topics              # number of topics that have parts
    cdef Py_ssize_t next                # the current part
    cdef Py_ssize_t unlooked            # work since the clock was read, in bytes
    cdef double turn_ends               # when other connections have to be served; 0: not set yet
    cdef str topic                      # the current topic's name
    cdef list leaders                   # brokers that lead refused partitions (KIP-951), or None
    cdef object topic_partitions        # the topic's partitions, or an exception
    # The current partition.
    cdef uint8_t *records
    cdef Py_ssize_t size                # of the batch: more bytes may have been sent after it
    cdef bint in_log                    # errors from now on are reported with the log start
    cdef str internal                   # the topic's name if only brokers may write to it
    cdef bytearray stored               # holds `records` unless they are the client's bytes
    cdef Preparation preparation        # its preparation in a thread

    cdef int read(self, Cursor request) except -1
    cdef int read_partitions(
        self, Cursor request, const uint8_t *topic, Py_ssize_t topic_size, Py_ssize_t partitions
    ) except -1
    cdef ProducedPartition *make_room(self, Py_ssize_t room) except NULL
    cdef int remove_duplicates(self) except -1
    cdef int keep(self, Py_ssize_t position) except -1

    cdef inline str topic_name(self, ProducedPartition *part):
        return (<const char *>self.body)[part.topic_at:part.topic_at + part.topic_size].decode(
            "utf-8", "replace")

    cdef inline bytes topic_id(self, ProducedPartition *part):
        return (<const char *>self.body)[part.topic_at:part.topic_at + part.topic_size]
