# A Plan describes the wire format of one version of a struct. It has a flat array of operations,
# one for each field. An operation says where in the struct's objects the slot of its field is. A
# Layout has the data that all versions of a struct share.

from cpython.object cimport PyObject

cdef enum:                              # types of values, for Op.code
    BOOL, INT8, INT16, UINT16, INT32, UINT32, INT64, FLOAT64, STRING, BYTES, UUID, STRUCT, ARRAY


cdef struct Op:
    int code                            # type of the value
    int element                         # type of an array's elements
    bint nullable
    bint ignorable
    int tag
    Py_ssize_t offset                   # of the slot inside the object
    Py_ssize_t element_size_min         # bytes of an array's smallest element, at least 1
    PyObject *plan                      # Plan of the struct or of the array's structs
    PyObject *default
    PyObject *name                      # "MetadataRequest.Topic.name", for errors


cdef class Plan:
    cdef type struct_class
    cdef bint flexible
    cdef bint nested                    # whether a plain field is an array of structs
    cdef Py_ssize_t size_min            # bytes of the smallest value
    cdef Op *ops                        # plain fields in order, tagged ones by tag, absent ones
    cdef int plain, tagged, absent      # how many `ops` are of each kind
    cdef list kept                      # owns the objects that `ops` point at

    cdef int prepare(self, Op *op, Layout layout, int place, f, int version, bint present) except -1
    cdef Py_ssize_t element_size(self, Op *op) except -1
    cdef Py_ssize_t size_min_of(self, Op *op) except -1


cdef class Layout:
    cdef readonly type struct_class
    cdef readonly object section        # schema_parser.Section
    cdef readonly list fields           # schema_parser.Field, in the order of the slots
    cdef readonly dict classes          # field name: class of its structs
    cdef list plans                     # Plan by version, None until it is used
    cdef tuple names, defaults
    cdef Py_ssize_t *offsets

    cdef Plan plan(self, int version)
