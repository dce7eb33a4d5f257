# The state of one segment's transaction index; `transaction_index` reads and writes the file.

from libc.stdint cimport int64_t


cdef class AbortedIndex:
    cdef readonly int64_t size          # bytes of the file, 0 without a file
    cdef readonly bint distrusted       # the index has to be rebuilt before it is used
    cdef readonly bint unsynced         # the file has changed since its last sync
    cdef readonly object entries        # AbortedTransactions, None until they are read
