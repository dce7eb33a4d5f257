# A thread without Python: it syncs descriptors and then writes a byte into a pipe.

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass

cdef enum:
    SYNCED_FILES_MAX = 20               # for more files, `log.files.flush` syncs the file system


cdef struct Work:                       # shared with the thread, under `lock`
    pthread_mutex_t lock
    pthread_cond_t changed
    int count                           # descriptors to sync; 0: nothing to do
    int descriptors[SYNCED_FILES_MAX]
    int failures[SYNCED_FILES_MAX]      # errno of each, 0 if it succeeded
    int pipe_in                         # the thread writes a byte here when it is done
    bint over                           # the thread has to end


cdef class SyncThread:
    cdef Work work
    cdef pthread_t thread
    cdef bint started
    cdef list files                     # kept open while they are synced
    cdef readonly int fd                # readable once a sync has ended

    cdef int join(self) noexcept
