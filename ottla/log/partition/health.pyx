"""What a log does when the disk refuses a write or returns damaged bytes.

If the disk is full, the log attempts every write, and each is refused until there is space again.
Any other failure takes the log offline until a restart, because the content of its files is then
unknown.
"""

import logging

from libc.stdint cimport int64_t

from ottla.log.files.disk import is_passing
from ottla.log.partition.damage import unreadable_files
from ottla.wire.errors import StorageFailed

from ottla.wire.marks cimport reached

log = logging.getLogger("ottla.storage")

cdef int64_t OFFSET_MAX = 0x7fffffffffffffff


cdef class LogHealth:
    """Whether one log accepts writes."""

    def __init__(self, str directory):
        self.directory = directory
        self.readable_end = OFFSET_MAX

    def watch(self, on_failure, on_refusal=None):
        """Sets the callbacks. `on_failure` is called with the reason when a failure, other than
        damage, takes the log offline; `on_refusal` with each temporary error of a write. Either may
        be None."""
        self.on_failure, self.on_refusal = on_failure, on_refusal

    def renamed(self, str directory):
        """Notes that the log is in another directory now."""
        self.directory = directory

    cdef int check(self) except -1:
        """Raise StorageFailed if the log is offline."""
        if self.offline is not None:
            raise StorageFailed(self.offline)
        return 0

    def fail(self, reason):
        """Takes the log offline: reads continue, nothing is written until a restart."""
        if self.offline is None:
            self.offline = f"{self.directory} is offline: {reason}"
            if self.on_failure is not None:
                self.on_failure(reason)

    def refuse(self, what, error):
        """Raises StorageFailed for an OSError; takes the log offline unless the error is temporary.
        """
        if not is_passing(error):
            reached("a write failed for good")
            self.fail(f"{what}: {error}")
        elif self.on_refusal is not None:
            reached("a full disk refused a write")
            self.on_refusal(error)
        raise StorageFailed(self.offline or f"{self.directory}: {what}: {error}") from error

    def fail_with(self, what, error):
        """Takes the log offline for an OSError that leaves the log's state unknown; raises
        StorageFailed."""
        self.fail(f"{what}: {error}")
        raise StorageFailed(self.offline) from error

    def note_damage(self, damage):
        """Notes the damage that was found when the log was opened; None if there was none.

        Permanent damage stops writes.
        """
        self.damage = self.put_aside = None
        if damage is None:
            return
        if damage.permanent:
            self.damage, self.offline = damage, str(damage)
            self.readable_end = min(self.readable_end, <int64_t>damage.end_offset)
            log.error("%s", damage)
        else:
            self.put_aside = damage

    def cannot_open(self, error, int64_t start_offset):
        """Notes that the disk refuses to read the files of a log at rest. Each later access tries
        again. But if another replica has the records, the second refusal makes the whole log count
        as damaged. A temporary error is not counted as a refusal."""
        if self.replaceable and not is_passing(error):
            self.refusals += 1
            if self.refusals > 1:
                self.note_damage(unreadable_files(self.directory, error, start_offset))
                self.readable_end = start_offset

    def repaired(self):
        """Accepts writes again, after the damaged end of the log was put aside."""
        self.damage, self.offline, self.readable_end = None, None, OFFSET_MAX
        self.refusals = 0

    def end_in(self, disk, damage, error):
        """Like `end_before`, for damage found by a truncation. Always raises StorageFailed."""
        try:
            self.end_before(disk, damage)
        except OSError as failed:
            self.fail_with(f"{damage}; its .damaged file could not be written", failed)
        raise StorageFailed(self.offline) from error

    def end_before(self, disk, damage):
        """Notes that a segment is damaged: writes are refused, and reads end before the fault.

        The `.damaged` file beside the segment makes the next start do the same. Raises OSError if
        that file cannot be written. The log directory then goes offline, unless the error is
        temporary, such as a full disk.
        """
        reached("damage was found in a log that serves")
        self.damage, self.readable_end = damage, damage.end_offset
        self.offline = self.offline or str(damage)
        try:
            disk.write_atomically(
                damage.path.removesuffix(".log") + ".damaged",
                f"{damage.position} {damage.reason}\n".encode())
        except OSError as error:
            if self.on_failure is not None and not is_passing(error):
                self.on_failure(f"{damage}; its .damaged file could not be written: {error}")
            raise
