"""Makes glibc keep freed request buffers for reuse."""

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
    BLOCK_MAX = 2 << 20                 # bytes: about twice the default of max.message.bytes
    KEPT_MAX = 8 << 20


def keep_freed_memory():
    """Make malloc keep up to KEPT_MAX bytes of freed memory, and serve blocks of up to BLOCK_MAX
    bytes from it.

    By default, glibc returns free memory at the heap's end to the kernel and requests it again. If
    the buffers of a compressed batch are at the heap's end, each batch costs twenty page faults.
    These take as much CPU time as the rest of the batch's processing.
    """
    ottla_keep_freed(BLOCK_MAX, KEPT_MAX)
