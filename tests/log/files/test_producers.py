"""Idempotence: windows of five, epochs, wrap-around, transactions, snapshots (KIP-98, KIP-360)."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.files import snapshots
from ottla.log.files.producers import Producers
from ottla.log.partition.config import LogConfig
from ottla.log.partition.partition_log import PartitionLog
from ottla.wire.errors import (
    DuplicateSequence,
    ErrorCode,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    ProtocolError,
    StorageFailed,
)
from ottla.wire.records import ControlType, build_marker
from tests.fakes import FakeClock
from tests.log.batches import NOW_MS, batch, values_of
from tests.log.faulty_disk import FaultyDisk

SEQUENCE_MAX = 2**31 - 1


def new_log(disk: FaultyDisk | None = None, **options: object) -> PartitionLog:
    return PartitionLog.open(
        disk or FaultyDisk(), FakeClock(), "/data/t-0", **options  # type: ignore[arg-type]
    )


def send(log: PartitionLog, sequence: int, count: int = 1, epoch: int = 0, **more: object) -> int:
    values = [b"%d" % sequence] * count
    data = batch(*values, producer_id=5, epoch=epoch, sequence=sequence, **more)  # type: ignore
    return log.append_bytes(data, 0)


def end(log: PartitionLog, kind: ControlType, epoch: int = 0, producer_id: int = 5) -> int:
    marker = build_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=epoch,
        coordinator_epoch=1,
        timestamp=NOW_MS,
    )
    return log.append_bytes(marker, 0)


class Model:
    """A slow implementation of the rules: the outcome of a batch, given all batches before it."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.sent: list[tuple[int, int, int]] = []
        self.end = 0

    def append(self, epoch: int, first: int, count: int) -> int | type[ProtocolError]:
        last = (first + count - 1) % 2**31
        if self.epoch is not None:
            if epoch < self.epoch:
                return InvalidProducerEpoch
            if epoch > self.epoch and first != 0:
                return OutOfOrderSequence
            if epoch == self.epoch:
                for known_first, known_last, offset in self.sent[-5:]:
                    if (known_first, known_last) == (first, last):
                        return offset
                if first != (self.sent[-1][1] + 1) % 2**31:
                    return OutOfOrderSequence
        if epoch != self.epoch:
            self.epoch, self.sent = epoch, []
        self.sent.append((first, last, self.end))
        self.end += count
        return self.sent[-1][2]


STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 0, 1, -1]),
        st.one_of(st.just(0), st.integers(-7, 2)),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(start=st.sampled_from([0, 1, SEQUENCE_MAX - 6, SEQUENCE_MAX]), steps=STEPS)
def test_the_window_does_what_the_rules_say(
    start: int, steps: list[tuple[int, int, int, bool]]
) -> None:
    model, log = Model(), new_log()
    epoch, following = 3, start
    for epoch_step, back, count, repeat in steps:
        used_epoch = max(0, epoch + epoch_step)
        first = (following + back) % 2**31
        if repeat and model.sent:
            at = min(-1, max(-len(model.sent), back - 1))
            first, last, _ = model.sent[at]
            count, used_epoch = (last - first) % 2**31 + 1, model.epoch or 0
        elif epoch_step == 1 and back == 0:
            first = 0
        expected = model.append(used_epoch, first, count)
        before = log.log_end_offset
        if isinstance(expected, int):
            assert send(log, first, count, used_epoch) == expected
            assert log.duplicate == (expected < before)
            epoch = used_epoch
            following = (model.sent[-1][1] + 1) % 2**31
        else:
            with pytest.raises(expected):
                send(log, first, count, used_epoch)
            assert log.log_end_offset == before
    assert log.log_end_offset == model.end


def test_an_unknown_producer_may_begin_anywhere() -> None:
    log = new_log()
    assert send(log, 4711) == 0
    assert send(log, 4712) == 1


def test_after_a_restart_the_last_batch_of_a_producer_is_known() -> None:
    for clean in (True, False):
        disk = FaultyDisk()
        log = new_log(disk)
        for sequence in range(7):
            send(log, sequence)
        log.close()
        log = new_log(disk, clean=clean)
        assert send(log, 6) == 6 and log.duplicate
        with pytest.raises(OutOfOrderSequence, match="sent sequence 9, expected 7"):
            send(log, 9)
        # The snapshot has only the last batch. Clients treat DuplicateSequence as success.
        for sequence in (2, 5):
            if clean:
                with pytest.raises(DuplicateSequence):
                    send(log, sequence)
        assert send(log, 7) == 7 and not log.duplicate


def test_a_snapshot_holds_the_state_and_no_damaged_one_is_read() -> None:
    log = new_log()
    send(log, 0, 3)
    send(log, 3, 2, transactional=True)
    data = snapshots.encode(log.producers)
    assert len(data) == 10 + 46
    again = snapshots.decode(data)
    state, copy = log.producers.get(5), again.get(5)
    assert state is not None and copy is not None
    for name in ("epoch", "last_sequence", "last_offset", "offset_delta", "last_timestamp",
                 "coordinator_epoch", "transaction_start"):  # fmt: skip
        assert getattr(copy, name) == getattr(state, name)
    assert copy.transaction_start == 3
    for at in range(len(data)):
        with pytest.raises(ValueError):
            snapshots.decode(data[:at])
        with pytest.raises(ValueError):
            snapshots.decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert len(snapshots.decode(snapshots.encode(Producers()))) == 0


def test_an_idle_producer_is_forgotten_unless_its_transaction_is_open() -> None:
    log = new_log(config=LogConfig(producer_id_expiration_ms=1000))
    send(log, 0)
    log.append_bytes(batch(b"x", producer_id=6, epoch=0, sequence=0, transactional=True), 0)
    assert isinstance(log.clock, FakeClock)
    log.clock.advance(999)
    assert log.remove_expired_producers() == 0
    log.clock.advance(1)
    assert log.remove_expired_producers() == 1
    assert [state.producer_id for state in log.active_producers()] == [6]


def test_offsets_are_stable_below_the_first_open_transaction() -> None:
    log = new_log()
    log.append_bytes(batch(b"plain"), 0)
    assert log.last_stable_offset == 1
    send(log, 0, 2, transactional=True)
    log.append_bytes(batch(b"x", producer_id=6, epoch=0, sequence=0, transactional=True), 0)
    assert log.last_stable_offset == 1
    end(log, ControlType.COMMIT)
    assert log.last_stable_offset == 3
    end(log, ControlType.ABORT, producer_id=6)
    assert log.last_stable_offset == log.log_end_offset == 6
    # Markers that are not replicated may be lost with this leader.
    assert [log.stable_offset(mark) for mark in (0, 1, 4, 5, 6)] == [0, 1, 1, 3, 6]


def test_aborted_transactions_are_found_by_the_offsets_they_touch() -> None:
    disk = FaultyDisk()
    log = new_log(disk, config=LogConfig(segment_bytes=400))
    for round_number in range(6):
        send(log, 2 * round_number, 2, transactional=True)
        end(log, ControlType.ABORT if round_number % 2 else ControlType.COMMIT)
    spans = [(3, 5), (9, 11), (15, 17)]
    for clean in (None, True, False):
        if clean is not None:
            log.close()
            log = new_log(disk, config=log.config, clean=clean)
        for start in range(18):
            for stop in range(start + 1, 19):
                found = log.aborted_transactions(start, stop)
                assert [(entry.first_offset, entry.last_offset) for entry in found] == [
                    (first, last) for first, last in spans if last >= start and first < stop
                ]
    log.truncate_to(9)
    assert [entry.last_offset for entry in log.aborted_transactions(0, 99)] == [5]


def test_a_segment_without_aborted_transactions_is_looked_at_once() -> None:
    disk = FaultyDisk()
    log = new_log(disk, config=LogConfig(segment_bytes=400))
    for number in range(12):
        send(log, number, 1, transactional=False)
    assert log.aborted_transactions(0, 99) == []
    disk.read_bytes = lambda path: pytest.fail(f"{path} was read again")  # type: ignore
    assert log.aborted_transactions(0, 99) == []
    del disk.read_bytes
    send(log, 12, 1, transactional=True)
    end(log, ControlType.ABORT)
    assert [entry.first_offset for entry in log.aborted_transactions(0, 99)] == [12]


def test_a_write_outside_of_the_open_transaction_is_refused() -> None:
    log = new_log()
    send(log, 0, transactional=True)
    with pytest.raises(ProtocolError) as caught:
        send(log, 1)
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_old_epoch_or_coordinator_is_known_as_such() -> None:
    log = new_log()
    send(log, 0, epoch=2, transactional=True)
    end(log, ControlType.COMMIT, epoch=2)
    old = build_marker(0, producer_id=5, producer_epoch=1, coordinator_epoch=1, timestamp=NOW_MS)
    with pytest.raises(InvalidProducerEpoch):
        log.producers.check_marker(old)
    zombie = build_marker(0, producer_id=5, producer_epoch=2, coordinator_epoch=0, timestamp=NOW_MS)
    with pytest.raises(ProtocolError) as caught:
        log.producers.check_marker(zombie)
    assert caught.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_failed_write_leaves_the_producer_as_it_was(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = new_log(disk)
    send(log, 0)
    disk.free = 10
    with pytest.raises(ProtocolError):
        send(log, 1)
    disk.free = 1 << 20
    assert send(log, 1) == 1 and not log.duplicate
    assert values_of(log) == [b"0", b"1"]


def test_no_batch_overtakes_the_first_of_an_unknown_producer_whose_write_failed() -> None:
    disk = FaultyDisk()
    log = new_log(disk)
    for sequence, free in ((4, 10), (3, 10)):
        disk.free = free
        with pytest.raises(StorageFailed):
            send(log, sequence)
    disk.free = 1 << 20
    # These batches were sent at the same time. There is room for them now, but neither may become
    # the producer's first batch.
    for sequence in (4, 5):
        with pytest.raises(OutOfOrderSequence, match="sequence 3 could not be written"):
            send(log, sequence)
    assert log.log_end_offset == 0
    assert [send(log, sequence) for sequence in (3, 4, 5)] == [0, 1, 2]
    assert send(log, 4) == 1 and log.duplicate


def test_a_first_batch_that_failed_holds_up_its_epoch_only_and_is_forgotten() -> None:
    for epoch, later_ms in ((1, 0), (0, 86_400_001)):
        disk = FaultyDisk()
        log = new_log(disk)
        disk.free = 10
        with pytest.raises(StorageFailed):
            send(log, 0)
        disk.free = 1 << 20
        with pytest.raises(OutOfOrderSequence):
            send(log, 7)
        assert isinstance(log.clock, FakeClock)
        log.clock.advance(later_ms)
        log.remove_expired_producers()
        assert send(log, 7, epoch=epoch) == 0


def test_a_coordinators_own_batches_are_fenced_by_epochs_but_have_no_sequence() -> None:
    log = new_log()
    assert [send(log, -1, epoch=epoch, transactional=True) for epoch in (3, 3, 3)] == [0, 1, 2]
    end(log, ControlType.COMMIT, epoch=4)
    with pytest.raises(InvalidProducerEpoch):
        send(log, -1, epoch=3, transactional=True)
    assert [send(log, -1, epoch=epoch, transactional=True) for epoch in (4, 5)] == [4, 5]
