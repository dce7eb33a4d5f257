# cython: boundscheck=False, wraparound=False
"""Syncs files in a thread that waits for the medium without the interpreter lock.

Most flushes have only a few files. For such a flush, a Python thread would take the interpreter
lock from the loop four times, which costs more than the flush itself.
"""

import os

from ottla.log.files.disk cimport File, sync_descriptor

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_attr_t:
        pass
    int pthread_create(
        pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *) noexcept nogil,
        void *argument)
    int pthread_join(pthread_t thread, void **result)
    int pthread_mutex_init(pthread_mutex_t *lock, const void *attributes)
    int pthread_mutex_lock(pthread_mutex_t *lock)
    int pthread_mutex_unlock(pthread_mutex_t *lock)
    int pthread_mutex_destroy(pthread_mutex_t *lock)
    int pthread_cond_init(pthread_cond_t *condition, const void *attributes)
    int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock)
    int pthread_cond_signal(pthread_cond_t *condition)
    int pthread_cond_destroy(pthread_cond_t *condition)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    enum:
        SIG_SETMASK
    int sigfillset(sigset_t *signals)
    int pthread_sigmask(int how, const sigset_t *signals, sigset_t *before)

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t c_write "write"(int fd, const void *data, size_t size)
    int c_close "close"(int fd)

FILES_MAX = SYNCED_FILES_MAX


cdef void *run(void *argument) noexcept nogil:
    cdef Work *work = <Work *>argument
    cdef int i
    pthread_mutex_lock(&work.lock)
    while True:
        while work.count == 0 and not work.over:
            pthread_cond_wait(&work.changed, &work.lock)
        if work.count == 0:
            break
        pthread_mutex_unlock(&work.lock)
        # No lock is needed: the loop changes nothing in `work` but `over` before it has read the
        # byte that this sync will write.
        for i in range(work.count):
            work.failures[i] = sync_descriptor(work.descriptors[i])
        pthread_mutex_lock(&work.lock)
        work.count = 0
        pthread_mutex_unlock(&work.lock)
        c_write(work.pipe_in, b"\0", 1)
        pthread_mutex_lock(&work.lock)
    pthread_mutex_unlock(&work.lock)
    return NULL


cdef class SyncThread:
    """Syncs up to FILES_MAX files at a time beside the loop; `fd` is readable when it is done."""

    def __cinit__(self):
        pthread_mutex_init(&self.work.lock, NULL)
        pthread_cond_init(&self.work.changed, NULL)
        self.fd = self.work.pipe_in = -1

    def __init__(self):
        self.fd, self.work.pipe_in = os.pipe()

    def __dealloc__(self):
        self.join()
        if self.fd >= 0:
            c_close(self.fd)
            c_close(self.work.pipe_in)
        pthread_cond_destroy(&self.work.changed)
        pthread_mutex_destroy(&self.work.lock)

    def begin(self, list files not None):
        """Start to sync these files; call `end` before the next `begin`."""
        cdef sigset_t all_signals, before
        cdef int i, failed, count = len(files)
        assert self.files is None and 0 < count <= FILES_MAX, \
            "needs 1 to FILES_MAX files, after the previous group has ended"
        for i in range(count):
            self.work.descriptors[i] = (<File?>files[i]).fd
        if not self.started:
            sigfillset(&all_signals)            # the loop's thread handles signals
            pthread_sigmask(SIG_SETMASK, &all_signals, &before)
            failed = pthread_create(&self.thread, NULL, run, &self.work)
            pthread_sigmask(SIG_SETMASK, &before, NULL)
            if failed:
                raise OSError(failed, f"the flush thread cannot be started: {os.strerror(failed)}")
            self.started = True
        self.files = files
        with nogil:
            pthread_mutex_lock(&self.work.lock)
            self.work.count = count
            pthread_cond_signal(&self.work.changed)
            pthread_mutex_unlock(&self.work.lock)

    def end(self):
        """Wait for the end of the sync; returns the failures, an OSError by file."""
        cdef Py_ssize_t i
        cdef int code
        os.read(self.fd, 1)
        files, self.files = self.files, None
        failures = {}
        for i in range(len(files)):
            code = self.work.failures[i]
            if code:
                failures[files[i]] = OSError(code, os.strerror(code), (<File>files[i]).path)
        return failures

    def close(self):
        """End the thread after its current sync."""
        self.join()
        if self.fd >= 0:
            os.close(self.fd)
            os.close(self.work.pipe_in)
            self.fd = self.work.pipe_in = -1

    cdef int join(self) noexcept:
        if self.started:
            self.started = False
            with nogil:
                pthread_mutex_lock(&self.work.lock)
                self.work.over = True
                pthread_cond_signal(&self.work.changed)
                pthread_mutex_unlock(&self.work.lock)
                pthread_join(self.thread, NULL)
        return 0
