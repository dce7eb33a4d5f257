# cython: boundscheck=False, wraparound=False
"""Fetch (key 1), versions 0-18: parsed in one pass, looked up as often as needed, written in one
pass.

`read` parses the request (`fetch_parts`), `begin` finds its session (KIP-227), `look` finds the
records to send and returns whether they are enough, `write` writes the body of the reply: bytes,
and ranges of segment files in between. Versions 0-9 get their records in formats and codecs that
they know, see `legacy_fetch`; what concerns reads from followers is in `follower_reads`.
"""

from libc.stdint cimport int16_t, int32_t, int64_t

from ottla.broker.api.records.current_leader cimport (
    absent, fetch_leader, write_endpoints, write_fetch_tags,
)
from ottla.broker.api.records.fetch_parts cimport (
    CONSUMER, FINAL_EPOCH, NO_SESSION, Fetch, read_fetch,
)
from ottla.broker.api.records.fetch_sessions cimport FetchItem, FetchSession, FetchSessionCache
from ottla.broker.api.records.follower_reads cimport check_reader, redirect
from ottla.broker.api.records.legacy_fetch cimport (
    CONVERSION_SIZE_MAX, LEGACY_BELOW, ZSTD_SINCE, forget_conversions, read_converted,
    read_without_zstd, unfinished,
)
from ottla.broker.api.records.replica_fetch cimport (
    check_divergence, check_replica, count_replica, count_sent,
)
from ottla.broker.network.reply cimport Reply
from ottla.log.partition.chain cimport LogSlice
from ottla.replication.partition cimport Partition
from ottla.wire.codec cimport Cursor, Writer

import logging

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
cdef int16_t NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
cdef int16_t CORRUPT_MESSAGE = ErrorCode.CORRUPT_MESSAGE

UNKNOWN = frozenset({
    int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), int(ErrorCode.UNKNOWN_TOPIC_ID),
    int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
})

cdef enum:
    FETCH_KEY = 1
    INITIAL_EPOCH = 0
    RESPONSE_SIZE_MAX = 1 << 30
    LOOKS_UNTIMED_MAX = 32              # partitions with records between two reads of the clock
    ABSENT_MAX = 1000                   # partitions of a session that are missing on this broker
    LISTED_SIZE = 17                    # bytes of an aborted transaction in a reply
    UNFIT_MAX = 32                      # partitions that are tried for the last bytes of a reply

cdef double LOOK_SECONDS_MAX = 0.005    # time limit of a look, checked now and then


@handles(ApiKey.FETCH, versions=range(0, 19), access=by_item)
def fetch(request, context):
    """Served by the connection, through Fetching; this registers the versions."""
    raise AssertionError("Fetch does not pass through dispatch")


cdef class Fetching:
    def __init__(self, broker, choose_session_id):
        self.broker = broker
        self.by_name, self.by_id = broker.replicas.by_name, broker.replicas.by_id
        self.authorizer, self.throttle = broker.authorizer, broker.role.leader_throttle
        # Lengths in a reply have 31 bits, and a reply contains more than records.
        self.response_size_max = min(broker.config.fetch_max_bytes, RESPONSE_SIZE_MAX)
        self.redirects, self.rack = broker.config.redirects_consumers, broker.config.broker_rack
        self.sessions = FetchSessionCache(
            broker.config.max_incremental_fetch_session_cache_slots, choose_session_id)

    cdef Fetch read(self, Cursor request, int version):
        cdef Fetch fetch = read_fetch(request, version, self.response_size_max)
        if not self.redirects or fetch.by_replica or fetch.rack == self.rack:
            fetch.rack = None                   # this broker is as near as any other
        return fetch

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
                    fetch.session = session             # otherwise it is served without one
                    self.check_reader_of(fetch)
                    session.hurries = self.redirects and fetch.by_replica
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
            if not session.items and not fetch.by_replica:
                self.sessions.remove(session.id)        # as in Kafka: nothing is left to tell
                return 0
            fetch.session, fetch.incremental = session, True
            self.check_reader_of(fetch)
        return 0

    cdef int check_reader_of(self, Fetch fetch) except -1:
        if self.authorizer is not None:
            fetch.session.read_by(fetch.client, self.authorizer.known)
        return 0

    cdef bint put(self, Fetch fetch, FetchSession session) except -1:
        """Add the request's items to a session; False ends the session, which has too many.

        A session is bounded by the existing partitions, plus a few that are missing here.
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

        As in Kafka, a partition that is unknown or refused when the request comes does not end the
        wait for the others: it is told with them. Without any others the reply is due at once.
        """
        cdef FetchItem item
        cdef int64_t total = 0, listed = 0, got, room = fetch.size_max
        cdef Py_ssize_t served = 0, unfit = 0, unserved = 0
        cdef double began
        cdef bint due = final or fetch.wait_ms_max <= 0 or fetch.error != 0
        cdef bint hurries = fetch.session is not None and fetch.session.hurries
        cdef list told = []
        fetch.told, fetch.at_once = told, due
        fetch.conversion_left, fetch.converting, fetch.waits = CONVERSION_SIZE_MAX, None, False
        if fetch.error != 0:
            if fetch.error == UNKNOWN_SERVER_ERROR:
                self.refuse_all(fetch)
            return True
        if fetch.session is not None:
            fetch.session.moved_meanwhile = False
        items = list(fetch.session.changed.values()) if fetch.incremental else fetch.items
        began = self.broker.clock.monotonic() if len(items) > LOOKS_UNTIMED_MAX else 0.0
        for found in items:
            item = <FetchItem>found
            if fetch.incremental and total > 0 and (room <= 0 or unfit >= UNFIT_MAX):
                due = True                      # full: the others stay listed and come first
                break
            if fetch.looked and item.unserved:
                told.append(item)
                continue
            got = self.look_at(fetch, item, room, total == 0)
            if fetch.converting is not None or fetch.waits:
                return False
            room, total = max(room, 0), total + got
            unfit += got == 0 and total > 0 and item.fetch_offset < self.readable(fetch, item)
            if got > 0:
                served += 1
                if item.aborted is not None:
                    listed += LISTED_SIZE * len(item.aborted)
                room = max(fetch.size_max - total - listed, 0)
                if served % LOOKS_UNTIMED_MAX == 0 and room > 0 and (
                        self.broker.clock.monotonic() - began > LOOK_SECONDS_MAX):
                    # The others follow in the next fetch; meanwhile other clients are served.
                    room = 0
            item.unserved = item.error in UNKNOWN and not fetch.by_replica and not fetch.looked
            if item.unserved:
                unserved += 1
            elif item.error != 0 or item.diverging_epoch >= 0 or item.preferred >= 0:
                due = True
            elif hurries and item.told_high_watermark < min(
                    item.high_watermark, item.fetch_offset):
                due = True                      # consumers wait for what this replica has
            if item.slice is not None and item.slice.ends_segment:
                due = True                      # waiting adds nothing: a read stays in one segment
            if fetch.incremental and got == 0 and self.as_told(item):
                # No news: listed again when it changes. A partition that waits for room stays, or
                # that does not hear its leader, of which the end of the wait is news.
                if item.partition is not None and item.fetch_offset >= self.readable(
                        fetch, item) and (item.partition.in_step or item.partition.led_here):
                    fetch.session.changed.pop((item.topic, item.index), None)
                continue
            told.append(item)
        if not fetch.looked and not fetch.by_replica:
            due |= unserved == len(fetch.session.items if fetch.incremental else fetch.items)
        fetch.looked = True
        due = due or total >= fetch.size_min or not (fetch.incremental or fetch.items)
        if not due:
            forget_conversions(items)           # the next look finds more
        return due

    cdef int refuse_all(self, Fetch fetch) except -1:
        """Refuse an invalid request: every item has the error, where clients check it."""
        cdef FetchItem item
        if fetch.version >= 13:
            return 0
        for found in fetch.items:
            item = <FetchItem>found
            item.high_watermark = item.last_stable_offset = item.log_start = -1
            item.diverging_epoch = -1
            self.refuse(fetch, item, fetch.error)
            item.aborted = []
        fetch.told = fetch.items
        return 0

    cdef bint as_told(self, FetchItem item) noexcept:
        return (item.error == 0 and item.diverging_epoch < 0 and item.preferred < 0 and
                item.high_watermark == item.told_high_watermark and
                item.log_start == item.told_log_start)

    cdef int64_t readable(self, Fetch fetch, FetchItem item) noexcept:
        if fetch.by_replica and item.partition is not None:
            return item.partition.log.log_end_offset
        return item.last_stable_offset if fetch.committed_only else item.high_watermark

    cdef int64_t look_at(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one
    ) except -1:
        """Find the records to send from one partition; returns their size in bytes."""
        cdef Partition partition
        item.error, item.slice, item.aborted, item.diverging_epoch = 0, None, None, -1
        item.converted, item.preferred = None, -1
        item.high_watermark = item.last_stable_offset = item.log_start = -1
        try:
            if self.authorizer is not None:
                self.need_read(fetch, item)
            if item.partition is None or not (
                    item.partition.led_here or item.partition.following):
                self.find_again(fetch, item)
            if item.partition is None:
                if fetch.version >= 13 and item.topic not in self.by_id:
                    raise UnknownTopicId("topic id not found")
                raise absent(self.topic_of(item), item.index)
            partition = item.partition
            if fetch.from_any and not partition.led_here:
                if check_reader(item, fetch.at_once):
                    room, at_least_one = 0, False
            else:
                partition.check_leader(max(item.current_leader_epoch, -1))
            if fetch.by_replica:
                if check_replica(item, fetch.replica_id, self.throttle):
                    room, at_least_one = 0, False
            elif fetch.rack is not None and redirect(item, fetch.rack, self.broker, fetch.client):
                return 0
            self.find_records(fetch, item, room, at_least_one)
            if fetch.converting is not None or fetch.waits:
                return 0
        except ProtocolError as error:
            self.refuse(fetch, item, int(error.code))
            if item.partition is not None:
                self.broker.doubt(item.partition, error, item.fetch_offset)
        except OSError as error:
            self.refuse(fetch, item, STORAGE_ERROR)
            log.error("%r could not be read: %s", item.partition, error)
            self.broker.doubt(item.partition, error, item.fetch_offset)
        except Exception:
            self.refuse(fetch, item, UNKNOWN_SERVER_ERROR)
            log.exception("fetch from %r failed", item.partition)
        if item.converted is not None:
            fetch.conversion_left -= len(item.converted)
            return len(item.converted)
        return 0 if item.slice is None else item.slice.size

    cdef int find_records(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one
    ) except -1:
        """Look into the log; `fetch.waits` if an index has to be rebuilt first."""
        try:
            self.read_records(fetch, item, room, at_least_one)
        except RebuildNeeded as needed:
            needed.rebuild.check_new(fetch.rebuild)
            fetch.rebuild, fetch.waits = needed.rebuild, True

    cdef int read_records(
        self, Fetch fetch, FetchItem item, int64_t room, bint at_least_one
    ) except -1:
        cdef Partition partition = item.partition
        check_divergence(item)
        if item.size_max < 0 or room < 0:
            raise ProtocolError("a negative number of bytes", ErrorCode.UNKNOWN_SERVER_ERROR)
        if fetch.version < LEGACY_BELOW:
            item.converted = read_converted(partition, item, fetch.version, room, at_least_one)
        elif item.diverging_epoch < 0:
            item.slice = partition.log.read(
                item.fetch_offset, max(min(<int64_t>item.size_max, room), 0), at_least_one,
                partition.log.log_end_offset if fetch.by_replica
                else partition.readable_end(fetch.committed_only), True)
            if item.uncounted and fetch.by_replica:
                count_replica(item, fetch.replica_id, fetch.replica_epoch)
            if fetch.version < ZSTD_SINCE and item.slice.size > 0:
                item.converted = read_without_zstd(item, item.slice, fetch.conversion_left)
                if item.converted is not None and not item.converted:
                    item.converted = item.slice = None      # other requests have their turn
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
        """Raise TopicRefused if this client may not read the topic."""
        topic, rules = None if fetch.by_replica else item.topic, self.authorizer.known
        if fetch.client.allowed(rules, False, topic):
            return 0
        access = access_of(self.broker, fetch.client, FETCH_KEY)
        if topic is None:                               # a replica, of all topics
            access.need_cluster(Operation.CLUSTER_ACTION)
        elif not access.need_topic_of(Operation.READ, topic):
            return 0
        fetch.client.allow(rules, False, topic)
        return 0

    cdef int refuse(self, Fetch fetch, FetchItem item, int16_t code) except -1:
        """Answer an item with an error and no records."""
        if code == CORRUPT_MESSAGE and item.partition is not None and item.partition.following:
            code = STORAGE_ERROR                        # the leader may have it: clients go there
        if code == STORAGE_ERROR and fetch.version <= 5:
            code = NOT_LEADER                           # these clients know it, and retry
        item.error, item.slice, item.converted, item.preferred = code, None, None, -1
        # As in Kafka, where only what is unknown from the beginning does not come from a read.
        item.aborted = [] if code in UNKNOWN and not fetch.looked else None
        if item.partition is not None:
            item.partition.failed_fetches += 1
        self.broker.counts.failed(FETCH_KEY, code)
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
            fetch.size_min = 0                          # the old one is watched: answer now
        return 0

    cdef object topic_of(self, FetchItem item):
        return (self.by_id if isinstance(item.topic, bytes) else self.by_name).get(item.topic)

    cdef int find(self, FetchItem item) except -1:
        cdef list partitions
        item.partition = None
        found = self.topic_of(item)
        if found is not None:
            partitions = <list>found
            if 0 <= item.index < len(partitions):
                item.partition = <Partition>partitions[item.index]
        return 0

    # -- writing ---------------------------------------------------------------------------------

    cdef int write(self, Fetch fetch, Reply reply) except -1:
        """Write the body that `look` found."""
        cdef bint flexible = fetch.version >= 12
        if fetch.version >= 1:
            reply.write_int32(0)                        # throttle_time_ms
        if fetch.version >= 7:
            reply.write_int16(fetch.error)
            if fetch.error == UNKNOWN_SERVER_ERROR:
                reply.write_int32(fetch.session_id)
            else:
                reply.write_int32(NO_SESSION if fetch.session is None else fetch.session.id)
        self.write_items(fetch, reply)
        if fetch.leaders is not None:
            return write_endpoints(reply, self.broker.image, fetch.leaders, fetch.client.listener)
        return reply.write_no_tags(flexible)

    cdef int write_items(self, Fetch fetch, Reply reply) except -1:
        cdef FetchItem item
        cdef bint flexible = fetch.version >= 12
        cdef dict by_topic
        if len(fetch.told) == 1:                        # most fetches: no need to sort by topic
            reply.write_count(1, flexible)
            item = <FetchItem>fetch.told[0]
            return self.write_topic(fetch, item.topic, fetch.told, reply)
        by_topic = {}
        for found in fetch.told:
            item = <FetchItem>found
            by_topic.setdefault(item.topic, []).append(item)
        reply.write_count(len(by_topic), flexible)
        for topic, items in by_topic.items():
            self.write_topic(fetch, topic, <list>items, reply)
        return 0

    cdef int write_topic(self, Fetch fetch, object topic, list items, Reply reply) except -1:
        cdef bint flexible = fetch.version >= 12
        cdef FetchItem item
        if fetch.version >= 13:
            reply.write_raw(<const char *><bytes>topic, 16)
        else:
            reply.write_string(<str>topic, flexible)
        reply.write_count(len(items), flexible)
        for found in items:
            item = <FetchItem>found
            self.write_item(fetch, item, reply)
            if fetch.session is not None:
                self.remember(fetch, item)
        return reply.write_no_tags(flexible)

    cdef int remember(self, Fetch fetch, FetchItem item) except -1:
        """Note what the client knows now: of an error or a divergence, nothing but that."""
        if item.error != 0 or item.diverging_epoch >= 0:
            item.told_high_watermark = item.told_log_start = -1
        else:
            item.told_high_watermark, item.told_log_start = item.high_watermark, item.log_start
        if item.slice is not None and item.slice.size > 0:
            fetch.session.to_the_end(item)
            item.slice = None
        item.conversion = item.converted = None
        return 0

    cdef int write_item(self, Fetch fetch, FetchItem item, Reply reply) except -1:
        cdef Py_ssize_t start = reply.size, ranges = len(reply.ranges)
        try:
            self.write_found(fetch, item, reply)
        except OSError as error:
            log.error("%r could not be read: %s", item.partition, error)
            self.broker.doubt(item.partition, error, item.fetch_offset)
            reply.cut(start, ranges)
            self.refuse(fetch, item, STORAGE_ERROR)
            self.write_found(fetch, item, reply)
        return 0

    cdef int write_found(self, Fetch fetch, FetchItem item, Reply reply) except -1:
        cdef int version = fetch.version
        cdef bint flexible = version >= 12
        cdef Py_ssize_t size = 0 if item.slice is None else item.slice.size
        if item.partition is not None:
            count_sent(item, size, fetch.by_replica, self.throttle)
        reply.write_int32(item.index)
        reply.write_int16(item.error)
        reply.write_int64(item.high_watermark)
        if version < LEGACY_BELOW:
            reply.write_bytes(item.converted or b"", False)
            return 0
        reply.write_int64(item.last_stable_offset)
        if version >= 5:
            reply.write_int64(item.log_start)
        if item.aborted is None:
            reply.write_count(-1, flexible)
        else:
            reply.write_count(len(item.aborted), flexible)
            for aborted in item.aborted:
                reply.write_int64(aborted.producer_id)
                reply.write_int64(aborted.first_offset)
                reply.write_no_tags(flexible)
        if version >= 11:
            reply.write_int32(item.preferred)
        if item.converted is not None:
            reply.write_bytes(item.converted, flexible)
            return 0                                    # versions 4 to 9 have no tagged fields
        reply.write_count(size, flexible)
        if size > 0:
            reply.add_file(item.slice.file, item.slice.position, size)
        if flexible:
            write_fetch_tags(
                reply, self.leader_of(fetch, item), item.diverging_epoch, item.diverging_end)
        return 0

    cdef object leader_of(self, Fetch fetch, FetchItem item):
        leader = None if item.error == 0 or fetch.version < 16 else fetch_leader(
            self.broker.image, item.error, item.topic, item.index)
        if leader is not None:
            fetch.leaders = [*(fetch.leaders or ()), leader[0]]
        return leader
