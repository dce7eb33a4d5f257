"""The state of a partition's idempotent and transactional producers (KIP-98, KIP-360).

The last five batches of each producer are remembered. A batch that repeats one of them is
acknowledged with the offset of the first copy; any other batch must have the next sequence number.
Offsets below the first open transaction are stable: read_committed consumers may read them.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memmove

from ottla.log.files.control_batches cimport Marker, read_marker
cimport ottla.wire.batch as fields
from ottla.wire.marks cimport reached
from ottla.wire.errors import (
    DuplicateSequence, ErrorCode, InvalidProducerEpoch, OutOfOrderSequence, ProtocolError,
)

cdef int32_t SEQUENCE_MAX = 0x7fffffff
cdef int UNREPLICATED_MAX = 1000
cdef int UNWRITTEN_MAX = 1000


cdef inline int32_t sequence_after(int32_t sequence, int32_t steps) noexcept:
    """The sequence number that is `steps` later; numbers wrap from 2^31 - 1 to 0."""
    return <int32_t>((<int64_t>sequence + steps) & SEQUENCE_MAX)


cdef inline bint follows_or_is(int32_t sequence, int32_t other) noexcept:
    """Whether `sequence` equals `other` or comes after it, also if the numbers wrap in between."""
    return ((<int64_t>sequence - other) & SEQUENCE_MAX) < SEQUENCE_MAX // 2


cdef class ProducerState:
    """One producer's last batches, the newest last."""

    def __init__(self, producer_id, epoch=-1, coordinator_epoch=-1, last_timestamp=-1,
                 transaction_start=-1):
        self.producer_id, self.epoch, self.coordinator_epoch = producer_id, epoch, coordinator_epoch
        self.last_timestamp, self.transaction_start = last_timestamp, transaction_start
        self.marked_at = -1

    cdef void push(self, int32_t last_sequence, int64_t last_offset, int32_t offset_delta,
                   int64_t timestamp) noexcept:
        if self.kept == WINDOW:
            memmove(&self.last_sequences[0], &self.last_sequences[1], (WINDOW - 1) * 4)
            memmove(&self.last_offsets[0], &self.last_offsets[1], (WINDOW - 1) * 8)
            memmove(&self.offset_deltas[0], &self.offset_deltas[1], (WINDOW - 1) * 4)
            memmove(&self.timestamps[0], &self.timestamps[1], (WINDOW - 1) * 8)
            self.kept -= 1
        self.last_sequences[self.kept] = last_sequence
        self.last_offsets[self.kept] = last_offset
        self.offset_deltas[self.kept] = offset_delta
        self.timestamps[self.kept] = timestamp
        self.kept += 1
        self.last_timestamp = timestamp

    def remember(self, last_sequence, last_offset, offset_delta, timestamp):
        """Adds a batch from a snapshot to the window; a snapshot has only the last batch."""
        self.restored = True
        self.push(last_sequence, last_offset, offset_delta, timestamp)

    @property
    def last_sequence(self):
        """The newest sequence number, -1 when no batch is known."""
        return self.last_sequences[self.kept - 1] if self.kept else -1

    @property
    def last_offset(self):
        """The newest batch's last offset, -1 when no batch is known."""
        return self.last_offsets[self.kept - 1] if self.kept else -1

    @property
    def offset_delta(self):
        """The newest batch's last offset minus its first, 0 when no batch is known."""
        return self.offset_deltas[self.kept - 1] if self.kept else 0


cdef class Producers:
    """The producers of one partition."""

    def __init__(self):
        self.states, self.open_transactions, self.unreplicated = {}, {}, []
        self.unwritten = {}

    def __len__(self):
        return len(self.states)

    cdef int64_t check(self, const uint8_t *batch) except -2:
        """Checks a client's batch. Returns the base offset of the first copy if the batch is a
        duplicate, -1 if it is new.

        Raises OutOfOrderSequence, DuplicateSequence, InvalidProducerEpoch or ProtocolError if the
        batch must not be appended.
        """
        cdef ProducerState state = self.states.get(fields.producer_id(batch))
        cdef int32_t first = fields.base_sequence(batch)
        cdef int32_t last
        cdef int16_t epoch
        cdef int at
        if fields.attributes(batch) & fields.CONTROL:
            return -1
        epoch = fields.producer_epoch(batch)
        if state is None and epoch >= -1:
            return self.check_unknown(batch)
        if state is None:
            raise InvalidProducerEpoch(
                f"producer epoch {epoch} is less than -1 (-1 means no epoch)")
        if epoch < state.epoch:
            reached("a batch of a fenced producer")
            raise InvalidProducerEpoch(
                f"producer {state.producer_id} now has epoch {state.epoch}: "
                f"the batch has epoch {epoch}, so a fenced instance of the producer sent it")
        if epoch != state.epoch:
            # A new epoch begins at sequence 0, unless the old epoch is unknown.
            if first > 0 and state.epoch != -1:
                reached("a new epoch began in the middle of its sequence")
                raise OutOfOrderSequence(
                    f"producer {state.producer_id} begins epoch {epoch} with sequence {first}, "
                    "expected 0")
            return self.check_transactional(batch, state)
        if first < 0:
            # A coordinator's own batch, such as the offsets of a transaction: only clients have to
            # use sequence numbers.
            return self.check_transactional(batch, state)
        last = sequence_after(first, fields.last_offset_delta(batch))
        for at in range(state.kept - 1, -1, -1):
            if (state.last_sequences[at] == last
                    and sequence_after(first, state.offset_deltas[at]) == last):
                if at < state.kept - 1:
                    reached("a producer repeated a batch before its last one")
                self.repeated_timestamp = state.timestamps[at]
                return state.last_offsets[at] - state.offset_deltas[at]
        if state.kept and epoch != -1:
            if first != sequence_after(state.last_sequences[state.kept - 1], 1):
                if (state.restored and state.kept < WINDOW
                        and follows_or_is(state.last_sequences[state.kept - 1], last)):
                    # After a restart a client may repeat a batch that is older than the batch in
                    # the snapshot. Clients treat DUPLICATE_SEQUENCE_NUMBER as success. Kafka
                    # answers OUT_OF_ORDER_SEQUENCE_NUMBER, after which clients get a new producer
                    # id and write the records a second time.
                    reached("a batch was repeated whose offset is not known any more")
                    raise DuplicateSequence(
                        f"producer {state.producer_id} has already sent the batch that ends with "
                        f"sequence {last}; the batch's offset is no longer known")
                reached("a batch came out of order")
                raise OutOfOrderSequence(
                    f"producer {state.producer_id} sent sequence {first}, expected "
                    f"{sequence_after(state.last_sequences[state.kept - 1], 1)}")
        elif first != 0 and epoch != -1:
            raise OutOfOrderSequence(
                f"producer {state.producer_id} begins epoch {epoch} with sequence {first}, "
                "expected 0")
        return self.check_transactional(batch, state)

    cdef int64_t check_unknown(self, const uint8_t *batch) except -2:
        """Refuses a batch of an unknown producer if the producer's previous batch could not be
        written.

        The client sends the unwritten batch again. That batch must be appended before any later
        batch. If a later batch came first, the unwritten batch would be taken for a duplicate, or
        it would be appended in the wrong order under a new epoch. Apart from that, an unknown
        producer may begin at any sequence.
        """
        cdef int32_t first = fields.base_sequence(batch)
        unwritten = self.unwritten.get(fields.producer_id(batch))
        if (unwritten is not None and unwritten[0] == fields.producer_epoch(batch)
                and first != unwritten[1] and follows_or_is(first, unwritten[1])):
            reached("a batch came after one that could not be written")
            raise OutOfOrderSequence(
                f"producer {fields.producer_id(batch)} sent sequence {first}, but its sequence "
                f"{unwritten[1]} could not be written and has to be sent again first")
        return -1

    cdef int note_unwritten(self, const uint8_t *batch) except -1:
        """Remembers a batch that was refused with a retriable error, if its producer is unknown. Of
        several refused batches of an epoch, the one with the lowest sequence is remembered."""
        cdef int64_t producer_id = fields.producer_id(batch)
        cdef int32_t first = fields.base_sequence(batch)
        cdef int16_t epoch = fields.producer_epoch(batch)
        if producer_id < 0 or producer_id in self.states or first < 0:
            return 0
        known = self.unwritten.get(producer_id)
        if known is not None and (
                known[0] > epoch or known[0] == epoch and follows_or_is(first, known[1])):
            return 0
        if known is None and len(self.unwritten) >= UNWRITTEN_MAX:
            del self.unwritten[next(iter(self.unwritten))]
        self.unwritten[producer_id] = epoch, first, fields.max_timestamp(batch)
        return 0

    cdef int take_unwritten(self, Producers other) except -1:
        """Takes over the notes about refused batches, except those of producers known here."""
        for producer_id, unwritten in other.unwritten.items():
            if producer_id not in self.states:
                self.unwritten[producer_id] = unwritten
        return 0

    cdef int64_t check_transactional(self, const uint8_t *batch, ProducerState state) except -2:
        if state.transaction_start >= 0 and not fields.attributes(batch) & fields.TRANSACTIONAL:
            reached("a batch outside of the open transaction")
            raise ProtocolError(
                f"producer {state.producer_id} has an open transaction, which began at offset "
                f"{state.transaction_start}: batches outside of the transaction are not allowed",
                ErrorCode.INVALID_TXN_STATE)
        return -1

    cdef tuple update(self, const uint8_t *batch, Py_ssize_t size):
        """Notes a batch that is in the log now, whether or not `check` has seen it.

        If the batch aborts a transaction, returns (producer id, first offset, last offset, last
        stable offset) of the transaction, otherwise None.
        """
        cdef int64_t producer_id = fields.producer_id(batch)
        cdef int32_t sequence = fields.base_sequence(batch)
        cdef ProducerState state = self.states.get(producer_id)
        if state is None:
            state = ProducerState(producer_id)
            self.states[producer_id] = state
            self.unwritten.pop(producer_id, None)
        if fields.attributes(batch) & fields.CONTROL:
            return self.end_transaction(batch, size, state)
        if fields.producer_epoch(batch) != state.epoch:
            state.epoch, state.kept, state.restored = fields.producer_epoch(batch), 0, False
        state.push(sequence_after(sequence, fields.last_offset_delta(batch)),
                   fields.last_offset(batch), fields.last_offset_delta(batch),
                   fields.max_timestamp(batch))
        if fields.attributes(batch) & fields.TRANSACTIONAL and state.transaction_start < 0:
            state.transaction_start = fields.base_offset(batch)
            self.open_transactions[producer_id] = state.transaction_start
        return None

    cdef tuple end_transaction(self, const uint8_t *batch, Py_ssize_t size, ProducerState state):
        cdef Marker marker = read_marker(batch, size)
        cdef int64_t first = state.transaction_start
        cdef int64_t last = fields.last_offset(batch)
        cdef int64_t stable
        if not marker.valid:
            return None
        if fields.producer_epoch(batch) != state.epoch:
            state.epoch, state.kept, state.restored = fields.producer_epoch(batch), 0, False
        state.coordinator_epoch = marker.coordinator_epoch
        state.last_timestamp = fields.max_timestamp(batch)
        state.marked_at = last
        if first < 0:
            return None
        state.transaction_start = -1
        del self.open_transactions[state.producer_id]
        if len(self.unreplicated) >= UNREPLICATED_MAX:
            # Only `first_unstable` shortens the list, and it was not called for a long time. One
            # pair that covers all these transactions is less precise, but safe.
            self.unreplicated = [(min(pair[0] for pair in self.unreplicated), last)]
        self.unreplicated.append((first, last))
        assert len(self.unreplicated) <= UNREPLICATED_MAX
        if marker.commits:
            return None
        # Transactions are kept in the order of their first offsets.
        if self.open_transactions and next(iter(self.open_transactions.values())) < first:
            reached("a transaction was aborted while an earlier one is open")
        stable = next(iter(self.open_transactions.values()), last + 1)
        return state.producer_id, first, last, stable

    cdef int64_t first_unstable(self, int64_t high_watermark) except -2:
        """The lowest first offset of the transactions that are open, or whose markers may still be
        lost because they are not below `high_watermark`; -1 if there are none."""
        cdef int64_t lowest = -1
        if self.unreplicated:
            self.unreplicated = [pair for pair in self.unreplicated if pair[1] >= high_watermark]
            for pair in self.unreplicated:
                if lowest < 0 or pair[0] < lowest:
                    lowest = pair[0]
        for first in self.open_transactions.values():
            return first if lowest < 0 or first < lowest else lowest
        return lowest

    cdef int64_t first_open(self) except -2:
        """The first offset of the oldest open transaction, -1 if there is none."""
        for first in self.open_transactions.values():
            return first
        return -1

    cdef int64_t first_known(self, int64_t producer_id) except -2:
        """The first offset of a producer's oldest batch in the window, -1 if there is none."""
        cdef ProducerState state = self.states.get(producer_id)
        if state is None or not state.kept:
            return -1
        return state.last_offsets[0] - state.offset_deltas[0]

    def check_marker(self, bytes batch):
        """Checks a coordinator's transaction marker against the known epochs.

        Raises InvalidProducerEpoch and ProtocolError(TRANSACTION_COORDINATOR_FENCED).
        """
        cdef const uint8_t *at = <const uint8_t *>batch
        cdef Marker marker = read_marker(at, len(batch))
        cdef ProducerState state = self.states.get(fields.producer_id(at))
        if state is None or not marker.valid:
            return
        if fields.producer_epoch(at) < state.epoch:
            reached("a marker of an old producer epoch")
            raise InvalidProducerEpoch(
                f"producer {state.producer_id} now has epoch {state.epoch}, "
                f"but the marker has the older epoch {fields.producer_epoch(at)}")
        if marker.coordinator_epoch < state.coordinator_epoch:
            reached("a marker of an old coordinator")
            raise ProtocolError(
                f"the marker comes from coordinator epoch {marker.coordinator_epoch}, which is "
                f"older than the known epoch {state.coordinator_epoch}",
                ErrorCode.TRANSACTION_COORDINATOR_FENCED)

    def add(self, ProducerState state):
        """Adds a state from a snapshot. States must come in the order of `transaction_start`."""
        self.states[state.producer_id] = state
        if state.transaction_start >= 0:
            self.open_transactions[state.producer_id] = state.transaction_start

    def replay(self, bytes batch):
        """Notes a batch that is in the log; returns what `update` returns."""
        return self.update(<const uint8_t *>batch, len(batch))

    def values(self):
        """Every ProducerState."""
        return list(self.states.values())

    def get(self, producer_id):
        """One producer's state, or None."""
        return self.states.get(producer_id)

    def remove_expired(self, now_ms, expiration_ms):
        """Forgets producers without recent writes and without an open transaction."""
        cdef ProducerState state
        expired = [
            state.producer_id for state in self.states.values()
            if state.transaction_start < 0 and now_ms - state.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.states[producer_id]
            reached("a producer expired")
        assert self.open_transactions.keys() <= self.states.keys(), "an open transaction was lost"
        self.unwritten = {
            producer_id: unwritten for producer_id, unwritten in self.unwritten.items()
            if now_ms - unwritten[2] < expiration_ms
        }
        return len(expired)
