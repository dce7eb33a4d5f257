"""The only file IO of the log: reads and writes at a position, and directory operations.

All code that uses files takes a Disk as an argument, so that a test can pass one that loses, tears
and refuses writes.
"""

import base64
import errno as errors
import fcntl
import math
import os
import shutil
import threading
import time
from contextlib import suppress

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t c_pwrite "pwrite"(int fd, const void *data, size_t size, int64_t position)
    Py_ssize_t c_pread "pread"(int fd, void *into, size_t size, int64_t position) noexcept
    int c_close "close"(int fd)

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <unistd.h>
    #if defined(__linux__)
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #endif

    #if defined(__APPLE__)
    static int ottla_sync(int fd) { return fcntl(fd, F_FULLFSYNC); }
    #else
    static int ottla_sync(int fd) { return fdatasync(fd); }
    #endif

    static int ottla_sync_file_system(int fd) {
    #if defined(__linux__)
        return syscall(SYS_syncfs, fd);
    #else
        (void)fd; sync();
        return 0;
    #endif
    }

    /* Pages that were in the page cache before stay there; pages read by this call are dropped. */
    static ssize_t ottla_read_in_passing(int fd, void *into, size_t size, int64_t position) {
        ssize_t done;
    #if defined(__linux__)
        enum { PAGES = 1024 };
        unsigned char there[PAGES];
        long page = sysconf(_SC_PAGESIZE);
        long long first = position / page * page;
        size_t count, at, from;
        int known;
        void *mapped;
        if ((position - first + size + page - 1) / page > PAGES)
            size = PAGES * page - (position - first);
        count = (position - first + size + page - 1) / page;
        mapped = mmap(NULL, count * page, PROT_READ, MAP_SHARED, fd, first);
        known = mapped != MAP_FAILED && mincore(mapped, count * page, there) == 0;
        if (mapped != MAP_FAILED) munmap(mapped, count * page);
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);         /* nothing is read ahead */
    #endif
        done = pread(fd, into, size, position);
    #if defined(__linux__)
        for (at = 0; known && done > 0 && at < count; at = from + 1) {
            for (from = at; from < count && !(there[from] & 1); from++) {}
            if (from > at)
                posix_fadvise(fd, first + at * page, (from - at) * page, POSIX_FADV_DONTNEED);
        }
    #endif
        return done;
    }

    /* Reserves space after the end without changing the size, so that a scan never meets zeros. */
    static int ottla_reserve(int fd, long long size) {
    #if defined(__linux__)
        return syscall(SYS_fallocate, fd, 1 /* FALLOC_FL_KEEP_SIZE */, 0LL, size);
    #else
        (void)fd; (void)size;
        return 0;
    #endif
    }
    """
    int ottla_sync(int fd) nogil
    Py_ssize_t ottla_read_in_passing(
        int fd, void *into, size_t size, int64_t position) noexcept nogil
    int ottla_sync_file_system(int fd) nogil
    int ottla_reserve(int fd, long long size) nogil


cdef int sync_descriptor(int fd) noexcept nogil:
    return errno if ottla_sync(fd) else 0


PASSING = frozenset({
    errors.ENOSPC, errors.EDQUOT, errors.EMFILE, errors.ENFILE, errors.ENOMEM, errors.EAGAIN,
    errors.EINTR,
})


def is_passing(error):
    """Whether the error is temporary: space, descriptors or memory ran out, and the operation may
    succeed later."""
    return isinstance(error, OSError) and error.errno in PASSING


def sync_directory(path):
    """Makes creations, renames and removals in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


cdef class File:
    """One open file, read and written at positions. The descriptor closes with the last reference.

    Raises OSError with the path, as the functions of `os` do.
    """

    def __init__(self, int fd, str path):
        self.fd = fd
        self.path = path

    def __dealloc__(self):
        if self.fd > 2:
            # Without the GIL: ext4 flushes a file on close if it had been truncated to 0, and
            # recovery closes many such files.
            with nogil:
                c_close(self.fd)

    cdef int write_at(self, const uint8_t *data, Py_ssize_t size, int64_t position) except -1:
        cdef Py_ssize_t done
        while size:
            done = c_pwrite(self.fd, data, size, position)
            if done < 0:
                if errno == EINTR:
                    continue
                raise OSError(errno, os.strerror(errno), self.path)
            if done == 0:
                raise OSError(errors.ENOSPC, "the disk accepts no more bytes", self.path)
            data += done
            size -= done
            position += done
        return 0

    cdef Py_ssize_t read_at(self, uint8_t *into, Py_ssize_t size, int64_t position) except -1:
        cdef Py_ssize_t done, total = 0
        while total < size:
            done = c_pread(self.fd, into + total, size - total, position + total)
            if done < 0:
                if errno == EINTR:
                    continue
                raise OSError(errno, os.strerror(errno), self.path)
            if done == 0:
                break
            total += done
        return total

    cdef Py_ssize_t read_aside(self, uint8_t *into, Py_ssize_t size, int64_t position) except -1:
        return self.read_without_gil(into, size, position, c_pread)

    cdef Py_ssize_t read_in_passing(
        self, uint8_t *into, Py_ssize_t size, int64_t position
    ) except -1:
        return self.read_without_gil(into, size, position, ottla_read_in_passing)

    cdef Py_ssize_t read_without_gil(
        self, uint8_t *into, Py_ssize_t size, int64_t position, Reading read
    ) except -1:
        cdef Py_ssize_t done, total = 0
        cdef int code = 0
        while total < size:
            with nogil:
                done = read(self.fd, into + total, size - total, position + total)
                if done < 0:
                    code = errno
            if done < 0 and code != EINTR:
                raise OSError(code, os.strerror(code), self.path)
            if done == 0:
                break
            total += max(done, 0)
        return total

    def pwrite(self, data, position):
        """Write all of `data` at `position`."""
        cdef const uint8_t[::1] view = data
        if view.shape[0]:
            self.write_at(&view[0], view.shape[0], position)

    def pread(self, Py_ssize_t size, int64_t position):
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        cdef bytes data = PyBytes_FromStringAndSize(NULL, size)
        cdef Py_ssize_t got = self.read_at(<uint8_t *>PyBytes_AS_STRING(data), size, position)
        return data if got == size else data[:got]

    def size(self):
        """The file's size in bytes."""
        return os.fstat(self.fd).st_size

    def sync(self):
        """Returns once the bytes are durable. Releases the GIL: a thread may call it."""
        cdef int code
        with nogil:
            code = sync_descriptor(self.fd)
        if code:
            raise OSError(code, os.strerror(code), self.path)

    def evict(self):
        """Drops the file from the page cache if possible, so that the next read uses the medium."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def truncate(self, size):
        """Cut the file to `size` bytes."""
        if self.size() != size:
            self.separate()
        os.ftruncate(self.fd, size)

    def separate(self):
        """If the file is linked at another path too, continues with a copy, so that a change here
        does not change the other file. `ottla log import --link` makes such links. Raises OSError.
        """
        if os.fstat(self.fd).st_nlink < 2:
            return
        temporary = self.path + ".tmp"
        own = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            shutil.copyfile(self.path, temporary)
            os.fsync(own)
            os.rename(temporary, self.path)
            os.dup2(own, self.fd, inheritable=False)    # whoever uses the descriptor keeps it
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        finally:
            os.close(own)
        sync_directory(os.path.dirname(self.path))

    def reserve(self, size):
        """Reserves disk space up to `size` bytes without changing the file's size."""
        if ottla_reserve(self.fd, size) and errno != errors.EOPNOTSUPP:
            raise OSError(errno, os.strerror(errno), self.path)

    def close(self):
        """Close the descriptor now; a second call does nothing."""
        if self.fd > 2:
            fd, self.fd = self.fd, -1
            os.close(fd)


cdef class DelegatingFile(File):
    """A File whose reads and writes call the Python methods `pwrite` and `pread` of a subclass."""

    def resident(self, position, size):
        """Whether a range can be read without waiting for the medium."""
        return True

    cdef int write_at(self, const uint8_t *data, Py_ssize_t size, int64_t position) except -1:
        self.pwrite(PyBytes_FromStringAndSize(<const char *>data, size), position)
        return 0

    cdef Py_ssize_t read_at(self, uint8_t *into, Py_ssize_t size, int64_t position) except -1:
        cdef bytes data = self.pread(size, position)
        cdef const uint8_t *source = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef Py_ssize_t at
        for at in range(len(data)):
            into[at] = source[at]
        return len(data)

    cdef Py_ssize_t read_without_gil(
        self, uint8_t *into, Py_ssize_t size, int64_t position, Reading read
    ) except -1:
        return self.read_at(into, size, position)

    def separate(self):
        pass

    def evict(self):
        pass


class Disk:
    """The directories and files of this machine."""

    def open(self, path, create=False):
        """Open a file for reading and writing. Raises FileNotFoundError unless `create`."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return File(os.open(path, flags, 0o644), path)

    def listdir(self, path):
        """The names in a directory, in arbitrary order."""
        return os.listdir(path)

    def subdirectories(self, path):
        """The names of a directory's subdirectories, in arbitrary order."""
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if entry.is_dir()]

    def exists(self, path):
        """Whether a file or directory has this path."""
        return os.path.exists(path)

    def size(self, path):
        """A file's size in bytes."""
        return os.stat(path).st_size

    def modified_ms(self, path):
        """When a file was last written, in milliseconds since 1970."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def read_bytes(self, path):
        """The whole content of a small file."""
        with open(path, "rb") as file:
            return file.read()

    def makedirs(self, path):
        """Creates a directory with its parents; an existing one is not an error."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source, target):
        """Rename, replacing the target; durable after `sync_directory`."""
        os.rename(source, target)

    def unlink(self, path):
        """Removes a file; a missing one is not an error."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_directory(self, path):
        """Removes an empty directory; a missing one is not an error."""
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass

    def sync_directory(self, path):
        """Makes creations, renames and removals in a directory durable."""
        sync_directory(path)

    def write_atomically(self, path, data):
        """Replaces a file atomically: after a crash it has the old or the new content."""
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.sync()
        file.close()
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def write_and_rename(self, path, data):
        """Replaces a file; a crash before the next sync may leave it empty or damaged."""
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()
        self.rename(temporary, path)

    def sync_file_system(self, path):
        """Returns once everything written to the file system of `path` is durable."""
        cdef int failed, code = 0, fd
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fd = directory
        try:
            with nogil:
                failed = ottla_sync_file_system(fd)
                if failed:
                    code = errno
            if failed:
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(directory)

    def lock(self, path):
        """Locks `path` against other processes until the returned File is closed. Raises
        BlockingIOError."""
        file = self.open(path, create=True)
        fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file

    def new_lock(self):
        """A lock for a file that several threads may write."""
        return threading.Lock()

    def new_id(self):
        """A random id of 22 characters, as Kafka writes its uuids."""
        return base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()

    def boot_id(self):
        """A random id that is new after each boot; empty on systems without one (Linux has one)."""
        try:
            with open("/proc/sys/kernel/random/boot_id") as file:
                return file.read().strip()
        except OSError:
            return ""

    def seconds_since_boot(self):
        """How long the machine has been running; infinite if the system does not say."""
        clock = getattr(time, "CLOCK_BOOTTIME", None)
        return math.inf if clock is None else time.clock_gettime(clock)

    def free_bytes(self, path):
        """Space available to this process on the file system of `path`, and its total size."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
