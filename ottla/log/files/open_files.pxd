# A bound on open descriptors: which may be closed and reopened, and which is next to be closed.


cdef class Openable:
    cdef bint used                      # set by every use, cleared when the hand passes

    cdef int close_files(self) except -1


cdef class OpenFiles:
    cdef readonly Py_ssize_t limit
    cdef list members
    cdef Py_ssize_t hand
    cdef public object rebuilds         # IndexRebuilds of a broker; None: bad indexes are rebuilt
                                        #   where they are found

    cdef int add(self, Openable member) except -1
    cdef int remove(self, Openable member) except -1
