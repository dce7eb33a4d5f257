"""Rebuilds the indexes of a segment, in new files beside the ones that turned out to be wrong.

A segment may have a gigabyte, so `IndexRebuild.run` reads it in a thread. Then `advance`, on the
event loop, replaces the old files by the new ones. The log stays in use. Batches that are appended
meanwhile are indexed at the end. Any other change of the segment's files abandons the rebuild: a
truncation, compaction, a move or a deletion (`IndexedSegment.forget_rebuild`).

A `patient` caller gets RebuildNeeded, waits, and repeats its call. For any other caller, such as a
truncation, the rebuild is done at once.
"""

from libc.stdint cimport int64_t

from ottla.log.files.batch_scan import SegmentDamaged, replay
from ottla.log.files.index_file import RebuildNeeded
from ottla.log.files.open_files cimport OpenFiles
from ottla.log.files.producers cimport Producers
from ottla.log.files.transaction_index import ENTRY
from ottla.log.partition.indexed_segment cimport IndexedSegment
from ottla.wire.errors import CorruptMessage

cdef enum:
    CATCH_UP_SIZE = 1 << 18             # appended bytes that `advance` may index on the loop

SUFFIXES = (".index", ".timeindex", ".txnindex")


cdef class AsideSegment(IndexedSegment):
    """The batches of a segment, with indexes that are not in use yet."""

    cdef public Py_ssize_t number

    def path(self, suffix):
        """The path of the batches, or the temporary path of an index, unique to this rebuild."""
        path = f"{self.directory}/{self.base_offset:020d}{suffix}"
        return path if suffix == ".log" else f"{path}.{self.number}.tmp"

    cdef int begin(self, IndexedSegment segment) except -1:
        """Opens and creates every file now: the thread must not use paths, because a path may soon
        belong to another file."""
        self.file = segment.opened()
        self.reset_indexes()
        self.index.write(True)
        self.times.write(True)
        return 0

    cdef int sync(self) except -1:
        for file in self.index.files_to_sync() + self.times.files_to_sync():
            file.sync()
        return 0


cdef class IndexRebuild:
    """One segment's rebuild. `run` and `advance` are called in turns until it is `over`."""

    cdef readonly str path              # of the segment's log file
    cdef readonly bint over
    cdef readonly object error          # why the rebuild failed: OSError, CorruptMessage; or None
    cdef readonly list aborted          # aborted transactions, as `Producers.update` returns them
    cdef readonly object log            # the ReadableLog if the transaction index is rebuilt too,
                                        #   or None
    cdef IndexedSegment segment
    cdef AsideSegment built
    cdef IndexRebuilds owner
    cdef Producers producers            # None if the transaction index is not rebuilt
    cdef int64_t known                  # `producers` has the state before this offset
    cdef list before                    # scans of the batches from `known` to the segment
    cdef object fault                   # the SegmentDamaged at which the new indexes end, or None
    cdef object entries                 # File of the transaction index
    cdef Py_ssize_t written             # aborted transactions in that file
    cdef int64_t size                   # bytes of the segment to be read
    cdef object lock
    cdef bint ran                       # `run` has done its work, `advance` is due
    cdef bint placed                    # the new files have replaced the old ones

    def __init__(self, IndexRebuilds owner not None, IndexedSegment segment not None, log, number):
        self.owner, self.segment, self.log = owner, segment, log
        self.path, self.size, self.lock = segment.path(".log"), segment.size, (
            segment.disk.new_lock())
        self.aborted, self.before = [], []
        self.built = AsideSegment(
            segment.disk, OpenFiles(4), segment.directory, segment.base_offset,
            index_interval=segment.index_interval)
        self.built.number = number
        if log is not None:
            self.producers, self.known, self.before = log.producers_before(segment)
        self.owner.running[self.path] = self
        try:
            self.built.begin(segment)
            if log is not None:
                self.entries = segment.disk.open(self.built.path(".txnindex"), create=True)
        except OSError:
            self.end()
            raise

    def run(self):
        """Does the slow part, in any thread. The first calls read the segment and write the new
        files. Once these are in place, a call makes their names durable. After each call, further
        calls do nothing until `advance` has run."""
        self.work(True)

    cdef int work(self, bint sync) except -1:
        with self.lock:
            if self.ran or self.over:
                return 0
            try:
                if self.placed:
                    self.entries.sync()
                    self.built.disk.sync_directory(self.built.directory)
                else:
                    self.read_on(sync)
            except EOFError as error:
                self.error = CorruptMessage(str(error))
            except (OSError, CorruptMessage) as error:
                self.error = error
            self.ran = True
        return 0

    cdef int read_on(self, bint sync) except -1:
        for scan in self.before:
            replay(scan, self.producers, self.known)
        self.before = []
        self.index_upto(self.size)
        if self.fault is not None and self.log is not None:
            raise self.fault            # aborted transactions may be missing
        if sync:
            self.built.sync()
        self.write_aborted()
        if self.entries is not None:
            self.entries.sync()
        return 0

    cdef int index_upto(self, int64_t size) except -1:
        """Indexes the batches up to a position of the file.

        Verifies checksums only if the transaction index is rebuilt too. The other two indexes may
        lead to a damaged batch, because each reader verifies the batch that it reads. If checksums
        were verified here, these indexes would end at a damaged batch, and hide the batches after
        it.
        """
        problem = self.built.take_in(
            self.built.size, size, self.producers, None, self.aborted.append, self.log is not None)
        if problem is not None:
            self.fault = SegmentDamaged(f"{self.path}: {problem[1]}", problem[0])
        elif self.segment.base_offset < self.segment.end_offset < self.built.end_offset:
            self.fault = SegmentDamaged(
                f"{self.path} ends with offset {self.built.end_offset - 1}, "
                f"but offset {self.segment.end_offset} belongs to the next segment",
                self.built.size)
        self.built.seal()

    cdef int write_aborted(self) except -1:
        if self.entries is not None and self.written < len(self.aborted):
            self.entries.pwrite(
                b"".join(ENTRY.pack(0, *each) for each in self.aborted[self.written:]),
                self.written * ENTRY.size)
            self.written = len(self.aborted)
        return 0

    def advance(self):
        """The step after `run`, on the loop: puts the new files in place, leaves more work for the
        next `run`, or ends the rebuild."""
        if self.over or not self.ran:
            return
        self.ran = False
        if self.error is None and not self.placed:
            if self.fault is None and self.segment.size - self.built.size > CATCH_UP_SIZE:
                self.size = self.segment.size
                return
            try:
                self.put_in_place()
            except OSError as error:
                self.error = error
            else:
                if self.log is not None:
                    return              # the next `run` makes the names durable
        elif self.placed and self.error is None:
            self.segment.aborted.named()
        self.end()

    cdef int put_in_place(self) except -1:
        cdef IndexedSegment segment = self.segment
        cdef AsideSegment built = self.built
        cdef bint grown = segment.size > built.size and self.fault is None
        assert not self.placed and built.size <= segment.size
        if grown:
            self.index_upto(segment.size)
            self.write_aborted()
        try:
            for suffix in SUFFIXES[:2]:
                segment.disk.rename(built.path(suffix), segment.path(suffix))
            if self.log is not None:
                if self.aborted:
                    segment.disk.rename(built.path(".txnindex"), segment.path(".txnindex"))
                else:
                    segment.disk.unlink(segment.path(".txnindex"))
        finally:
            segment.adopt(built, self.fault)
        if self.log is not None:
            self.log.adopt_aborted(segment, self.aborted, grown)
        self.placed = True
        return 0

    def check_new(self, before):
        """Ends this rebuild and raises an exception if `before` is a completed or failed rebuild of
        the same indexes: another rebuild would not help. Raises the error of `before`;
        CorruptMessage if `before` had no error."""
        cdef IndexRebuild previous
        if not isinstance(before, IndexRebuild):
            return
        previous = before
        if (previous is self or previous.path != self.path
                or (previous.log is None) != (self.log is None)
                or not previous.placed and previous.error is None):
            return
        self.end()
        raise previous.error or CorruptMessage(
            f"{self.path}: its indexes do not match it, although they were rebuilt")

    def finish(self):
        """Do the whole rebuild at once. Raises OSError, CorruptMessage."""
        while not self.over:
            self.work(self.log is not None)
            self.advance()
        if self.error is not None:
            raise self.error

    def end(self):
        """Ends the rebuild, complete or not; removes new files that are not in place."""
        if self.over:
            return
        self.over = True
        self.owner.forget(self.path)
        for suffix in SUFFIXES:
            try:
                self.segment.disk.unlink(self.built.path(suffix))
            except OSError:
                pass                    # the next start removes the file


cdef class IndexRebuilds:
    """The rebuilds of all logs that share an OpenFiles."""

    cdef readonly dict running          # path of a log file to its IndexRebuild
    cdef Py_ssize_t number

    def __init__(self):
        self.running = {}

    def renew(self, IndexedSegment segment not None, bint patient, log=None):
        """Rebuilds a segment's indexes and, if `log` is given, its transaction index; returns the
        aborted transactions.

        Raises RebuildNeeded if the caller is `patient`; OSError, CorruptMessage.
        """
        cdef IndexRebuild rebuild = self.running.get(segment.path(".log"))
        if rebuild is None or (not patient and log is not None and rebuild.log is None):
            if rebuild is not None:
                rebuild.finish()
            self.number += 1
            rebuild = IndexRebuild(self, segment, log, self.number)
        if patient:
            raise RebuildNeeded(rebuild)
        rebuild.finish()
        if rebuild.segment is not segment:      # the log was reopened meanwhile
            segment.adopt(rebuild.built, rebuild.fault)
        return rebuild.aborted

    def writes(self, path):
        """Whether a rebuild is writing the file with this path."""
        cdef IndexRebuild rebuild
        for rebuild in self.running.values():
            if path in (rebuild.built.path(suffix) for suffix in SUFFIXES):
                return True
        return False

    def forget(self, path):
        """Abandons the rebuild for a log file, because the file changes in another way than by an
        append."""
        cdef IndexRebuild rebuild = self.running.pop(path, None)
        if rebuild is not None:
            rebuild.end()

    def close(self):
        """Abandons all rebuilds."""
        for path in list(self.running):
            self.forget(path)
