"""What malloc keeps of the memory that a request gave back, for the next one."""

cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__GLIBC__)
    #include <malloc.h>
    static void ottla_keep_freed(int block_max, int kept_max) {
        mallopt(M_MMAP_THRESHOLD, block_max);
        mallopt(M_TRIM_THRESHOLD, kept_max);
    }
    #else
    static void ottla_keep_freed(int block_max, int kept_max) { (void)block_max; (void)kept_max; }
    #endif
    """
    void ottla_keep_freed(int block_max, int kept_max)

cdef enum:
    BLOCK_MAX = 2 << 20                 # a batch of max.message.bytes, with room
    KEPT_MAX = 8 << 20


def keep_freed_memory():
    """Have glibc's malloc serve blocks of BLOCK_MAX bytes from memory it keeps, KEPT_MAX at most.

    By itself it gives half a megabyte at the heap's end back to the kernel, and takes it again:
    where a compressed batch's buffers happen to lie there, each batch costs twenty page faults, as
    much CPU as everything else that is done for it.
    """
    ottla_keep_freed(BLOCK_MAX, KEPT_MAX)
