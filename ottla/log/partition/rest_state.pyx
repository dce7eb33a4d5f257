"""Logs at rest: the known state of a log whose files have not been read.

A clean stop stores the state of each log as a `ClosedLog`. With it, a start costs a few
microseconds per partition and opens no file. If an operation needs more facts, the log reads its
files, and checks that they match the state.
"""

from libc.stdint cimport int64_t


cdef class RestState:
    """The state of a log at rest. Its offsets and latest epoch are fields of the log itself."""

    def __init__(self, Py_ssize_t segments=0, int64_t size_bytes=0, int64_t first_ms=0,
                 int64_t aborted_bytes=-1, int64_t first_open=-1):
        self.segments, self.size_bytes, self.first_ms = segments, size_bytes, first_ms
        self.aborted_bytes, self.first_open = aborted_bytes, first_open

    cdef bint retention_may_be_due(self, config, int64_t now_ms) except -1:
        """Whether the log has to be opened because something in it may be due for deletion."""
        if not self.segments or not config.deletes:
            return False
        return (self.first_ms < 0
                or 0 <= config.retention_ms < now_ms - self.first_ms
                or 0 <= config.retention_bytes < self.size_bytes)
