# cython: boundscheck=False, wraparound=False
"""Fetch (key 1), versions 0-18. A request is parsed in one pass, its records are looked up as often
as needed, and its reply is written in one pass.

`read` parses the request (`fetch_parts`). `begin` finds its session (KIP-227). `look` finds the
records to send, and returns whether the reply is due. `fetch_writer` writes the body of the reply.
Two strategies depend on the client: `Reader` knows what the client may read, and `RecordFormat`
knows which formats the client understands (see `reader`).
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.broker.api.records.conversions cimport share_conversion, unfinished
from ottla.broker.api.records.current_leader cimport absent
from ottla.broker.api.records.fetch_parts cimport ANY_REPLICA_SINCE, read_fetch
from ottla.broker.api.records.fetch_sessions cimport FetchItem, FetchSession, FetchSessionCache
from ottla.broker.api.records.fetch_writer cimport FetchWriter
from ottla.broker.api.records.follower_reads cimport AnyReplicaReader, RackReader
from ottla.broker.api.records.legacy_fetch cimport (
    BATCHES_SINCE, ZSTD_SINCE, MessageSets, WithoutZstd,
)
from ottla.broker.api.records.reader cimport (
    CONSUMER, FINAL_EPOCH, MAY_READ, NO_SESSION, REDIRECTED, Fetch, Reader, RecordFormat,
)
from ottla.broker.api.records.replica_fetch cimport ReplicaReader, check_divergence
from ottla.replication.partition cimport Partition
from ottla.wire.codec cimport Cursor

import logging

from ottla.broker.api.records.reader import UNKNOWN
from ottla.broker.dispatch import handles
from ottla.broker.security.access import access_of
from ottla.broker.security.decisions import by_item
from ottla.log.files.index_file import RebuildNeeded
from ottla.replication.controller.access import Operation
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError, UnknownTopicId

log = logging.getLogger("ottla.fetch")

cdef int16_t FETCH_SESSION_ID_NOT_FOUND = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
cdef int16_t INVALID_FETCH_SESSION_EPOCH = ErrorCode.INVALID_FETCH_SESSION_EPOCH
cdef int16_t FETCH_SESSION_TOPIC_ID_ERROR = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
cdef int16_t UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
cdef int16_t STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR

cdef enum:
    FETCH_KEY = 1
    INITIAL_EPOCH = 0
    RESPONSE_SIZE_MAX = 1 << 30
    LOOKS_UNTIMED_MAX = 32              # partitions with records between two reads of the clock
    ABSENT_MAX = 1000                   # partitions of a session that are missing on this broker
    LISTED_SIZE = 17                    # bytes of an aborted transaction in a reply
    UNFIT_MAX = 32                      # a reply is full once this many partitions did not fit

cdef double LOOK_SECONDS_MAX = 0.005    # time limit of a look, checked now and then


@handles(ApiKey.FETCH, access=by_item)
def fetch(request, context):
    """Never called: connections use FetchHandler. This function is registered so that
    ApiVersions lists Fetch."""
    raise AssertionError("dispatch must not serve Fetch: connections use FetchHandler")


cdef class FetchHandler:
    def __init__(self, broker, choose_session_id):
        self.broker = broker
        self.by_name, self.by_id = broker.replicas.by_name, broker.replicas.by_id
        self.authorizer = broker.authorizer
        self.consumers_size_max = broker.config.fetch_max_bytes
        self.redirects, self.rack = broker.config.redirects_consumers, broker.config.broker_rack
        self.sessions = FetchSessionCache(
            broker.config.max_incremental_fetch_session_cache_slots, choose_session_id)
        self.consumer, self.replica = Reader(), ReplicaReader(broker.role.leader_throttle)
        self.any_replica, self.in_rack = AnyReplicaReader(), RackReader(broker.metadata_log)
        self.stored, self.without_zstd = RecordFormat(), WithoutZstd()
        self.message_sets = MessageSets()
        self.writer = FetchWriter(broker.metadata_log, broker.counts, broker.doubted.doubt)

    cdef Fetch read(self, Cursor request, int version):
        # Lengths in a reply have 31 bits, and a reply contains more than records.
        cdef Fetch fetch = read_fetch(request, version, RESPONSE_SIZE_MAX)
        fetch.reader = self.reader_of(fetch)
        if fetch.reader.consumer:
            # A replica asks for its own replica.fetch.response.max.bytes.
            fetch.size_max = min(fetch.size_max, self.consumers_size_max)
            fetch.size_min = min(fetch.size_min, fetch.size_max)
        if version >= ZSTD_SINCE:
            fetch.format = self.stored
        elif version >= BATCHES_SINCE:
            fetch.format = self.without_zstd
        else:
            fetch.format = self.message_sets
            share_conversion(fetch.items)
        return fetch

    cdef Reader reader_of(self, Fetch fetch):
        # As in Kafka, replica id -2 counts as a consumer: kafka-replica-verification uses it to
        # compare all replicas.
        if fetch.replica_id >= 0:
            return self.replica
        if fetch.version < ANY_REPLICA_SINCE:
            return self.consumer
        if not self.redirects or fetch.rack is None or fetch.rack == self.rack:
            return self.any_replica             # no reason to send the consumer elsewhere
        return self.in_rack

    # -- sessions --------------------------------------------------------------------------------

    cdef int begin(self, Fetch fetch, double now) except -1:
        """Find or create the session of this request; an error applies to the whole reply."""
        cdef FetchSession session
        if fetch.error != 0:
            return 0
        if fetch.session_epoch == FINAL_EPOCH or fetch.session_epoch == INITIAL_EPOCH:
            if fetch.session_id != NO_SESSION:
                self.sessions.remove(fetch.session_id)
            if fetch.session_epoch == INITIAL_EPOCH:
                session = self.sessions.create(
                    len(fetch.items), fetch.version >= 13, now, fetch.replica_id)
                if session is not None and self.put(fetch, session):
                    fetch.session = session             # otherwise the fetch has no session
                    self.check_reader_of(fetch)
                    session.reports_at_once = self.redirects and fetch.replica_id >= 0
            return 0
        session = self.sessions.get(fetch.session_id)
        if session is None:
            fetch.error = FETCH_SESSION_ID_NOT_FOUND
        elif (session.epoch != fetch.session_epoch or session.wait is not None
                or session.replica_id != max(fetch.replica_id, CONSUMER)):
            fetch.error = INVALID_FETCH_SESSION_EPOCH
        elif session.by_id != (fetch.version >= 13):
            fetch.error = FETCH_SESSION_TOPIC_ID_ERROR
        else:
            session.advance_epoch()
            session.used_by(fetch.replica_epoch, now)
            if fetch.forgotten is not None:
                for key in fetch.forgotten:
                    session.forget(key)
            if not self.put(fetch, session):
                fetch.error = FETCH_SESSION_ID_NOT_FOUND
                return 0
            if not session.items and fetch.reader.consumer:
                self.sessions.remove(session.id)        # as in Kafka: nothing is left to report
                return 0
            fetch.session, fetch.incremental = session, True
            self.check_reader_of(fetch)
        return 0

    cdef int check_reader_of(self, Fetch fetch) except -1:
        if self.authorizer is not None:
            fetch.session.read_by(fetch.client, self.authorizer.known)
        return 0

    cdef bint put(self, Fetch fetch, FetchSession session) except -1:
        """Add the request's items to a session. Returns False if the session got too many items
        and was removed.

        A session may have as many items as partitions exist, plus ABSENT_MAX that are missing here.
        """
        for item in fetch.items:
            self.find(<FetchItem>item)
            session.put(<FetchItem>item)
            if session.absent > ABSENT_MAX:
                self.sessions.remove(session.id)
                return False
        return True

    # -- looking ---------------------------------------------------------------------------------

    cdef bint look(self, Fetch fetch, bint final) except -1:
        """Find the records to send; True if the reply is due, False if it should wait.

        As in Kafka, if a partition is unknown or refused when a consumer's request arrives, the
        request still waits for the other partitions. The reply also reports that partition. If
        there are no other partitions, the reply is due at once.
        """
        cdef FetchItem item
        cdef int64_t got
        fetch.begin_look(final)
        if fetch.error != 0:
            if fetch.error == UNKNOWN_SERVER_ERROR:
                self.refuse_all(fetch)
            return True
        items = list(fetch.session.changed.values()) if fetch.incremental else fetch.items
        fetch.began = self.broker.clock.monotonic() if len(items) > LOOKS_UNTIMED_MAX else 0.0
        for each in items:
            item = <FetchItem>each
            if fetch.incremental and fetch.total > 0 and (
                    fetch.room <= 0 or fetch.unfit >= UNFIT_MAX):
                fetch.due = True                # full: the other items come first next time
                break
            if fetch.looked and item.absent:
                fetch.in_reply.append(item)
                continue
            got = self.look_at(fetch, item)
            if fetch.converting is not None or fetch.waits:
                return False
            self.add(fetch, item, got)
            fetch.due |= self.ends_wait(fetch, item)
            if got > 0 or not fetch.incremental or self.has_news(fetch, item):
                fetch.in_reply.append(item)
        if not fetch.looked and fetch.reader.consumer:
            fetch.due |= fetch.absent == len(
                fetch.session.items if fetch.incremental else fetch.items)
        fetch.looked = True
        fetch.due |= fetch.total >= fetch.size_min or not (fetch.incremental or fetch.items)
        if not fetch.due:
            fetch.format.forget(fetch)          # the next look converts again
        return fetch.due

    cdef int add(self, Fetch fetch, FetchItem item, int64_t got) except -1:
        """Add the size of the records that were found in one partition to the size of the reply."""
        fetch.room, fetch.total = max(fetch.room, 0), fetch.total + got
        if got == 0:
            if fetch.total > 0 and item.fetch_offset < fetch.reader.end_found(fetch, item):
                fetch.unfit += 1
            return 0
        fetch.served += 1
        if item.aborted is not None:
            fetch.listed += LISTED_SIZE * len(item.aborted)
        fetch.room = max(fetch.size_max - fetch.total - fetch.listed, 0)
        if fetch.served % LOOKS_UNTIMED_MAX == 0 and fetch.room > 0 and (
                self.broker.clock.monotonic() - fetch.began > LOOK_SECONDS_MAX):
            # Other clients have to be served now. The other partitions follow in the next fetch.
            fetch.room = 0
        return 0

    cdef bint ends_wait(self, Fetch fetch, FetchItem item) except -1:
        """Whether the result for this partition has to be reported at once."""
        item.absent = not fetch.looked and fetch.reader.consumer and item.error in UNKNOWN
        if item.absent:
            fetch.absent += 1
            return False
        if item.error != 0 or item.diverging_epoch >= 0 or item.preferred >= 0:
            return True
        # A read stays in one segment: at the segment's end, a longer wait would add no records.
        return fetch.reader.has_new_offsets(fetch, item) or (
            item.slice is not None and item.slice.ends_segment)

    cdef bint has_news(self, Fetch fetch, FetchItem item) except -1:
        """Whether an item without records tells the session's client something new. If not, the
        item leaves the session's list of changed items until its partition changes. There are two
        exceptions. If the item's records did not fit, it stays on the list. It also stays if this
        broker is a follower that has received nothing from the leader yet: at the end of the wait,
        the reply then has an error."""
        cdef Partition partition = item.partition
        if not (item.error == 0 and item.diverging_epoch < 0 and item.preferred < 0
                and item.high_watermark == item.sent_high_watermark
                and item.log_start == item.sent_log_start):
            return True
        if partition is not None and (partition.role.in_step or partition.led_here) and (
                item.fetch_offset >= fetch.reader.end_found(fetch, item)):
            fetch.session.changed.pop((item.topic, item.index), None)
        return False

    cdef int refuse_all(self, Fetch fetch) except -1:
        """Put a request's error into every item: clients below version 13 look for it there."""
        cdef FetchItem item
        if fetch.version >= 13:
            return 0
        for each in fetch.items:
            item = <FetchItem>each
            item.high_watermark = item.last_stable_offset = item.log_start = -1
            item.diverging_epoch = -1
            self.refuse(fetch, item, fetch.error)
            item.aborted = []
        fetch.in_reply = fetch.items
        return 0

    cdef int64_t look_at(self, Fetch fetch, FetchItem item) except -1:
        """Find the records to send from one partition; returns their size in bytes."""
        cdef int admitted
        item.error, item.slice, item.aborted, item.diverging_epoch = 0, None, None, -1
        item.converted, item.preferred = None, -1
        item.high_watermark = item.last_stable_offset = item.log_start = -1
        try:
            if self.authorizer is not None:
                self.need_read(fetch, item)
            if item.partition is None or not (
                    item.partition.led_here or item.partition.role.following):
                self.find_again(fetch, item)
            if item.partition is None:
                if fetch.version >= 13 and item.topic not in self.by_id:
                    raise UnknownTopicId("topic id not found")
                raise absent(self.topic_of(item), item.index)
            admitted = fetch.reader.admit(fetch, item)
            if admitted == REDIRECTED:
                return 0
            self.find_records(fetch, item, admitted == MAY_READ)
            if fetch.converting is not None or fetch.waits:
                return 0
        except ProtocolError as error:
            self.refuse(fetch, item, int(error.code))
            if item.partition is not None:
                self.broker.doubted.doubt(item.partition, error, item.fetch_offset)
        except OSError as error:
            self.refuse(fetch, item, STORAGE_ERROR)
            log.error("%r could not be read: %s", item.partition, error)
            self.broker.doubted.doubt(item.partition, error, item.fetch_offset)
        except Exception:
            self.refuse(fetch, item, UNKNOWN_SERVER_ERROR)
            log.exception("fetch from %r failed", item.partition)
        if item.converted is not None:
            fetch.conversion_left -= len(item.converted)
            return len(item.converted)
        return 0 if item.slice is None else item.slice.size

    cdef int find_records(self, Fetch fetch, FetchItem item, bint may_read) except -1:
        """Read from the log; sets `fetch.waits` if an index has to be rebuilt first."""
        try:
            if may_read:
                self.read_records(fetch, item, fetch.room, fetch.total == 0)
            else:
                self.read_records(fetch, item, 0, False)
        except RebuildNeeded as needed:
            needed.rebuild.check_new(fetch.rebuild)
            fetch.rebuild, fetch.waits = needed.rebuild, True

    cdef int read_records(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one
    ) except -1:
        cdef Partition partition = item.partition
        check_divergence(item)
        if item.size_max < 0 or room < 0:
            raise ProtocolError(
                "max_bytes or partition_max_bytes of the Fetch request is negative",
                ErrorCode.UNKNOWN_SERVER_ERROR)
        fetch.format.read(fetch, item, room, at_least_one)
        fetch.converting = unfinished(item)
        item.high_watermark = partition.high_watermark
        item.last_stable_offset = partition.readable_end(True)
        item.log_start = partition.log.log_start_offset
        if fetch.committed_only and fetch.converting is None:
            item.aborted = [] if item.slice is None or item.slice.size == 0 else (
                partition.log.aborted_transactions(
                    item.fetch_offset,
                    item.slice.segment.offset_after(
                        item.slice.position + item.slice.size, True), True))
        return 0

    cdef int need_read(self, Fetch fetch, FetchItem item) except -1:
        """Raise TopicRefused (replicas: ClusterRefused) if the client may not read the topic."""
        topic, rules = fetch.reader.topic_to_check(item), self.authorizer.known
        if fetch.client.allowed(rules, False, topic):
            return 0
        access = access_of(self.broker, fetch.client, FETCH_KEY)
        if topic is None:                               # a replica, which reads all topics
            access.need_cluster(Operation.CLUSTER_ACTION)
        elif not access.need_topic_of(Operation.READ, topic):
            # `access` finds the name only in the image, which gets a new topic after its replicas.
            raise UnknownTopicId("topic id not found")
        fetch.client.allow(rules, False, topic)
        return 0

    cdef int refuse(self, Fetch fetch, FetchItem item, int16_t code) except -1:
        fetch.refuse(item, code)
        self.broker.counts.failed(FETCH_KEY, item.error)
        return 0

    cdef int find_again(self, Fetch fetch, FetchItem item) except -1:
        """Look up a partition that was missing or moved away, or whose topic was created again."""
        cdef Partition before = item.partition
        if fetch.session is not None:
            fetch.session.release(item)
        self.find(item)
        if fetch.session is not None:
            fetch.session.watch(item)
        elif fetch.watching and item.partition is not before:
            # The long poll does not watch the partition that was just found: answer at once.
            fetch.size_min = 0
        return 0

    cdef object topic_of(self, FetchItem item):
        return (self.by_id if isinstance(item.topic, bytes) else self.by_name).get(item.topic)

    cdef int find(self, FetchItem item) except -1:
        cdef list partitions
        item.partition = None
        of_topic = self.topic_of(item)
        if of_topic is not None:
            partitions = <list>of_topic
            if 0 <= item.index < len(partitions):
                item.partition = <Partition>partitions[item.index]
        return 0
