"""The wire format of one version of a struct, flattened from the schema at the first use.

A Layout belongs to a class and knows the offset of each field's slot in the class's objects. A Plan
belongs to a class and a version. `structs` executes plans.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject

from ottla.wire.errors import UnsupportedVersion
from ottla.wire.schema_parser import EMPTY, format_versions

cdef extern from *:
    """
    #include <structmember.h>
    /* The offset of a slot in its objects; -1 if the descriptor is not one of __slots__. */
    static Py_ssize_t ottla_slot_offset(PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    """
    Py_ssize_t ottla_slot_offset(object descriptor)

CODES = {
    "bool": BOOL, "int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32, "uint32": UINT32,
    "int64": INT64, "float64": FLOAT64, "string": STRING, "bytes": BYTES, "records": BYTES,
    "uuid": UUID,
}
SIZES = {
    BOOL: 1, INT8: 1, INT16: 2, UINT16: 2, INT32: 4, UINT32: 4, INT64: 8, FLOAT64: 8, UUID: 16,
}


cdef class Plan:
    """The wire format of one version of a struct."""

    def __cinit__(self, Layout layout, int version):
        cdef int i = 0
        section = layout.section
        fields = [(f, offset_at) for offset_at, f in enumerate(layout.fields)]
        plain = [p for p in fields if version in p[0].versions and p[0].tag is None]
        tagged = [p for p in fields if version in p[0].versions and p[0].tag is not None]
        absent = [p for p in fields if version not in p[0].versions]
        tagged.sort(key=lambda pair: pair[0].tag)
        assert len(set([p[0].tag for p in tagged])) == len(tagged), "two fields have the same tag"
        self.struct_class = layout.struct_class
        self.flexible = section.flexible_from is not None and version >= section.flexible_from
        self.plain, self.tagged, self.absent = len(plain), len(tagged), len(absent)
        self.kept = []
        self.size_min = 1 if self.flexible else 0
        self.ops = <Op *>PyMem_Calloc(len(fields) + 1, sizeof(Op))
        if self.ops is NULL:
            raise MemoryError("out of memory for a message plan")
        assert self.plain + self.tagged + self.absent == len(fields), "a field was miscounted"
        for i, (f, place) in enumerate(plain + tagged + absent):
            self.prepare(&self.ops[i], layout, place, f, version, i < self.plain + self.tagged)
            if i < self.plain:
                self.nested |= self.ops[i].code == ARRAY and self.ops[i].element == STRUCT
                self.size_min += self.size_min_of(&self.ops[i])

    def __dealloc__(self):
        PyMem_Free(self.ops)

    cdef int prepare(
        self, Op *op, Layout layout, int place, f, int version, bint present
    ) except -1:
        cdef object name = f"{layout.struct_class.__qualname__}.{f.name}"
        cdef object default = layout.defaults[place]
        cdef object inner = None
        op.code = ARRAY if f.array else CODES.get(f.type, STRUCT)
        op.element = CODES.get(f.type, STRUCT)
        op.nullable, op.ignorable = version in f.nullable, f.ignorable
        op.tag = -1 if f.tag is None else f.tag
        op.offset = layout.offsets[place]
        if op.element == STRUCT and present:
            inner = (<Layout>layout.classes[f.name].LAYOUT).plan(version)
        op.plan, op.default, op.name = <PyObject *>inner, <PyObject *>default, <PyObject *>name
        self.kept += [inner, default, name]
        if op.code == ARRAY and present:
            # An element may have no bytes. It counts as one byte here, so that a short message
            # cannot claim any number of elements.
            op.element_size_min = max(1, self.element_size(op))
        assert op.element != STRUCT or inner is not None or not present, "a struct has no plan"
        return 0

    cdef Py_ssize_t element_size(self, Op *op) except -1:
        if op.element == STRUCT:
            return (<Plan>op.plan).size_min
        if op.element == STRING:
            return 1 if self.flexible else 2
        if op.element == BYTES:
            return 1 if self.flexible else 4
        return SIZES[op.element]

    cdef Py_ssize_t size_min_of(self, Op *op) except -1:
        if op.code == ARRAY:
            return 1 if self.flexible else 4
        if op.code == STRUCT and op.nullable:
            return 1
        return self.element_size(op)


cdef class Layout:
    """The data of a struct's class besides its slots: fields, defaults, nested classes, plans."""

    def __init__(self, type struct_class, section, list fields, dict classes):
        cdef int i
        self.struct_class, self.section = struct_class, section
        self.fields, self.classes = fields, classes
        self.plans = [None] * section.versions.stop
        self.names = tuple([f.name for f in fields])
        self.defaults = tuple(
            [classes[f.name]() if f.default is EMPTY else f.default for f in fields]
        )
        self.offsets = <Py_ssize_t *>PyMem_Calloc(len(fields) + 1, sizeof(Py_ssize_t))
        if self.offsets is NULL:
            raise MemoryError("out of memory for a message class")
        for i in range(len(fields)):
            self.offsets[i] = ottla_slot_offset(struct_class.__dict__[self.names[i]])
            if self.offsets[i] <= 0:
                raise TypeError(f"{struct_class.__qualname__} has no slot {self.names[i]}")

    def __dealloc__(self):
        PyMem_Free(self.offsets)

    cdef Plan plan(self, int version):
        if 0 <= version < len(self.plans) and self.plans[version] is not None:
            return <Plan>self.plans[version]
        if version not in self.section.versions:
            versions = format_versions(self.section.versions)
            raise UnsupportedVersion(
                f"{self.section.class_name} exists in versions {versions}, not in {version}"
            )
        self.plans[version] = Plan(self, version)
        return self.plans[version]
