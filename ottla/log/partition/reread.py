"""Reads a log's producers and leader epochs again from its batches.

A clean stop writes both to files. If a file is missing or wrong, the batches are read. These may be
many gigabytes. So a patient caller lets a thread read them and then repeats its call, as for a
rebuild of an index (`index_rebuilds`).
"""

from __future__ import annotations

from ottla.log.files.batch_scan import BatchScan, note_epochs, replay
from ottla.log.files.disk import Disk
from ottla.log.files.epochs import LeaderEpochs
from ottla.log.files.producers import Producers
from ottla.log.partition.segment import Segment
from ottla.wire.errors import CorruptMessage, StorageFailed


class Reread:
    """One reading of a log's batches; `over` is true once `run` and then `advance` were called."""

    def __init__(
        self, disk: Disk, directory: str, producers: Producers, known: int,
        scans: list[BatchScan],
    ) -> None:
        """`producers` is the state before the offset `known`; `scans` read the batches from there
        on."""
        self.disk, self.path, self.lock = disk, directory, disk.new_lock()
        self.producers, self.known, self.scans = producers, known, scans
        self.epochs = LeaderEpochs()
        self.files: list[tuple[str, int]] = []
        self.size = sum(scan.end - scan.position for scan in scans)
        """The approximate number of bytes to be read."""
        self.over = self.ran = False
        self.error: Exception | None = None

    def add_epochs(self, segments: list[Segment]) -> None:
        """Makes `run` read the leader epochs, too, from the headers of all batches."""
        self.files = [(segment.path(".log"), segment.size) for segment in segments]
        self.size += sum(size for _, size in self.files)

    def run(self) -> None:
        """Reads everything, in any thread. A further call does nothing."""
        with self.lock:
            if self.ran:
                return
            try:
                self._read()
            except EOFError as error:
                # Callers handle CorruptMessage already, as the error of an index rebuild.
                self.error = CorruptMessage(str(error))
            except Exception as error:
                self.error = error
            self.ran = True

    def _read(self) -> None:
        for scan in self.scans:
            replay(scan, self.producers, self.known)
        self.scans.clear()
        for path, size in self.files:
            file = self.disk.open(path)
            note_epochs(file, size, self.epochs)
            file.close()

    def advance(self) -> None:
        """Completes the reading after `run`, on the loop."""
        self.over = self.ran

    def check_new(self, previous: object) -> None:
        """Raises StorageFailed or CorruptMessage if `previous` has just failed to read the same
        log: another attempt would not help."""
        if not isinstance(previous, Reread) or previous.path != self.path:
            return
        if isinstance(previous.error, OSError):
            raise StorageFailed(f"{self.path} could not be opened: {previous.error}")
        if previous.error is not None:
            raise previous.error

    def finish(self) -> None:
        """Do the whole reading at once. Raises OSError, CorruptMessage."""
        self.run()
        self.advance()
        if self.error is not None:
            raise self.error
