# Limits open descriptors: closes the segments that were not used recently.


cdef class Openable:
    cdef bint used                      # set by every use, cleared when the clock algorithm's hand
                                        #   passes

    cdef int close_files(self) except -1


cdef class OpenFiles:
    cdef readonly Py_ssize_t limit
    cdef list members
    cdef Py_ssize_t hand
    cdef public object rebuilds         # the broker's IndexRebuilds; if None, the caller that finds
                                        #   a bad index rebuilds it

    cdef int add(self, Openable member) except -1
    cdef int remove(self, Openable member) except -1
