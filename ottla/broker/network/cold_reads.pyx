"""Disk reads that must not block the loop.

`read` and `sendfile` of bytes outside the page cache wait for the disk and would block all clients.
So a connection sends only ranges that are in the page cache. A thread first reads a missing
range into the cache, with some readahead, while the loop serves other connections.
"""

from concurrent.futures import ThreadPoolExecutor

import os

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport int64_t, uint8_t

from ottla.log.files.disk cimport File

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <sys/types.h>
    #include <unistd.h>
    #if defined(__linux__)
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #ifndef SYS_cachestat
    #define SYS_cachestat 451
    #endif
    #ifndef RWF_NOWAIT
    #define RWF_NOWAIT 8
    #endif
    #endif

    /* 1: every page is in memory; 0: some are not; -1: this kernel cannot tell (before 6.5). */
    static int ottla_cached(int fd, int64_t position, int64_t size) {
    #if defined(__linux__)
        struct { uint64_t offset, length; } range = { (uint64_t)position, (uint64_t)size };
        struct { uint64_t cached, dirty, writeback, evicted, recently_evicted; } found = { 0 };
        int64_t page = sysconf(_SC_PAGESIZE);
        if (syscall(SYS_cachestat, fd, &range, &found, 0) != 0) return -1;
        return (int64_t)found.cached >= (position + size - 1) / page - position / page + 1;
    #else
        (void)fd; (void)position; (void)size;
        return -1;
    #endif
    }

    /* Whether one byte can be read without waiting; 1 also if the file system cannot tell. */
    static int ottla_readable_now(int fd, int64_t position) {
    #if defined(__linux__)
        char byte;
        struct iovec vector = { &byte, 1 };
        return preadv2(fd, &vector, 1, position, RWF_NOWAIT) >= 0 || errno != EAGAIN;
    #else
        (void)fd; (void)position;
        return 1;
    #endif
    }

    /* Reads the part that needs no waiting; the whole range if the file system cannot tell. */
    static ssize_t ottla_read_now(int fd, void *into, size_t size, int64_t position) {
    #if defined(__linux__)
        struct iovec vector = { into, size };
        ssize_t got = preadv2(fd, &vector, 1, position, RWF_NOWAIT);
        if (got < 0 && errno == EAGAIN) return 0;
        if (got >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS)) return got;
    #endif
        return pread(fd, into, size, position);
    }

    static void ottla_will_need(int fd, int64_t position, int64_t size) {
    #if defined(POSIX_FADV_WILLNEED)
        posix_fadvise(fd, position, size, POSIX_FADV_WILLNEED);
    #endif
    }
    """
    int ottla_cached(int fd, int64_t position, int64_t size) noexcept nogil
    int ottla_readable_now(int fd, int64_t position) noexcept nogil
    Py_ssize_t ottla_read_now(int fd, void *into, size_t size, int64_t position) noexcept nogil
    void ottla_will_need(int fd, int64_t position, int64_t size) noexcept nogil

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t c_pread "pread"(int fd, void *into, size_t size, int64_t position)

cdef enum:
    PROBE_STEP = 1 << 16                # a thread reads one byte in each step of this size
    AHEAD_SIZE = 2 << 20                # bytes of readahead, which the next fetch is likely to want
    THREADS_MAX = 4                     # a few readers keep a disk busy


cdef bint is_resident(File file, int64_t position, Py_ssize_t size) except -1:
    """Whether the page cache holds this range, as far as the kernel reports it."""
    cdef int cached, fd = file.fd
    if size <= 0:
        return True
    if fd < 0:
        return file.resident(position, size)
    cached = ottla_cached(fd, position, size)
    if cached < 0:
        # Pages are evicted in the order of their use: the ends are a good sample of the range.
        return ottla_readable_now(fd, position) and ottla_readable_now(fd, position + size - 1)
    if cached == 0:
        return False
    # Pages that are still being read are counted too; a non-blocking read detects them.
    while size > 0:
        if not ottla_readable_now(fd, position):
            return False
        position += min(size, PROBE_STEP)
        size -= min(size, PROBE_STEP)
    return ottla_readable_now(fd, position - 1)


def resident(File file not None, int64_t position, Py_ssize_t size):
    """Whether a range of a file is in memory."""
    return is_resident(file, position, size)


cdef Py_ssize_t read_now(
    File file, uint8_t *into, Py_ssize_t size, int64_t position
) except -1:
    """Read the part of a range that the page cache holds: from 0 bytes to all."""
    cdef Py_ssize_t got
    if file.fd < 0:
        return file.read_at(into, size, position) if file.resident(position, size) else 0
    got = ottla_read_now(file.fd, into, size, position)
    if got < 0:
        raise OSError(errno, os.strerror(errno), file.path)
    return got


cdef int bring(int fd, int64_t position, Py_ssize_t size) noexcept nogil:
    """Read a range into the page cache, wait for it, and start readahead; returns 0 or an errno.

    It reads only one byte in each PROBE_STEP bytes. This suffices, since the disk reads the pages
    in order, many at a time. Copying all bytes would cost CPU time.
    """
    cdef char byte
    cdef Py_ssize_t got
    cdef int64_t end = position + size
    ottla_will_need(fd, position, size)
    while position < end:
        got = c_pread(fd, &byte, 1, position)
        if got < 0:
            return errno
        if got == 0:
            return 0
        position = max(position + 1, min(position + PROBE_STEP, end - 1))
    ottla_will_need(fd, end, AHEAD_SIZE)
    return 0


def read(File file not None, int64_t position, Py_ssize_t size):
    """Read a range into memory; returns the error or None. Runs in a thread, without the
    interpreter lock."""
    cdef int code, fd = file.fd
    if fd < 0:
        try:
            file.pread(1, position)
        except OSError as error:
            return error
        return None
    with nogil:
        code = bring(fd, position, size)
    return OSError(code, os.strerror(code), file.path) if code else None


class ColdReads:
    def __init__(self, loop):
        self.loop = loop
        self.begun = 0
        self.threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="ottla-read")

    def begin(self, file, position, size, done):
        """Read a range into memory, then call `done(error or None)` on the loop.

        Each connection has at most one range in progress, which bounds the queue.
        """
        self.begun += 1
        future = self.loop.run_in_executor(self.threads, read, file, position, size)
        future.add_done_callback(lambda ended: ended.cancelled() or done(ended.result()))

    def close(self):
        """Wait for reads in progress; queued reads never start."""
        self.threads.shutdown(wait=True, cancel_futures=True)
