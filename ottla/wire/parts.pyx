# cython: boundscheck=False, wraparound=False
"""Encodes and decodes long messages a part at a time. Otherwise a long message would block the
event loop: a response about 1,000 topics takes 8 ms."""

from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject

from ottla.wire.codec cimport Cursor, Writer
from ottla.wire.plan cimport ARRAY, STRUCT, Layout, Op, Plan
from ottla.wire.structs cimport (
    Message, array_list, empty_struct, put, reach, read_rest, read_struct, read_value, slot, where,
    write_rest, write_struct, write_value,
)

from ottla.wire.errors import MalformedMessage, UnencodableMessage, located

cdef enum:
    LONG_COUNT = 4000                   # structs that are encoded in about half a millisecond


def is_long(message, int version):
    """Whether a message has so many structs that it should be encoded in parts."""
    cdef Layout layout = getattr(type(message), "LAYOUT", None)
    return layout is not None and count_structs(layout.plan(version), message, 0) > LONG_COUNT


cdef Py_ssize_t count_structs(Plan plan, object struct, Py_ssize_t count) except -1:
    """`count` plus the number of structs in the arrays of `struct`; may stop above LONG_COUNT."""
    cdef Op *op = plan.ops
    cdef Op *end = op + plan.plain
    cdef PyObject *value
    if not plan.nested:
        return count
    while op < end and count <= LONG_COUNT:
        value = slot(struct, op.offset)[0]
        if op.code == ARRAY and op.element == STRUCT and value is not NULL:
            if isinstance(<object>value, list):
                count += PyList_GET_SIZE(<object>value)
                if (<Plan>op.plan).nested:
                    for element in <list>value:
                        if count > LONG_COUNT:
                            break
                        if type(element) is (<Plan>op.plan).struct_class:
                            count = count_structs(<Plan>op.plan, element, count)
        op += 1
    return count


cdef class Level:
    """A struct that is partly encoded: some of its fields, and perhaps some elements of the next
    field."""


cdef Level level_of(Plan plan, object struct):
    cdef Level level = Level.__new__(Level)
    if not isinstance(struct, plan.struct_class):
        name = plan.struct_class.__qualname__
        raise UnencodableMessage(f"a {name} is required, not {struct!r}")
    level.plan, level.struct = plan, struct
    return level


cdef class EncodedInParts(Message):
    """A long message that is encoded a part at a time: other requests are served in between.

    The message must not change meanwhile. Once all is encoded, this object is sent like an
    EncodedMessage.
    """

    def __init__(self, Message message not None, int version):
        self.message, self.version, self.writer = message, version, Writer()
        self.levels = [level_of((<Layout>type(message).LAYOUT).plan(version), message)]

    def __repr__(self):
        return f"EncodedInParts of {self.writer.size} bytes"

    def encode_part(self, Py_ssize_t size):
        """Encode about `size` more bytes; returns whether the message is complete."""
        reach(NULL)
        try:
            return self.encode_until(self.writer.size + size)
        except (TypeError, ValueError, OverflowError) as error:
            raise located(error, where(self.message, self.version)) from error

    cdef bint encode_until(self, Py_ssize_t size) except -1:
        cdef Level level
        cdef Op *op
        while self.levels:
            if self.writer.size >= size:
                return False
            level = <Level>self.levels[len(self.levels) - 1]
            assert level.field <= level.plan.plain, "the field comes after the untagged fields"
            if level.field == level.plan.plain:
                write_rest(self.writer, level.plan, level.struct)
                self.levels.pop()
                continue
            op = &level.plan.ops[level.field]
            reach(op)
            if level.values is not None:
                self.write_elements(level, op, size)
                continue
            if slot(level.struct, op.offset)[0] is NULL:
                raise UnencodableMessage("the attribute was deleted")
            value = <object>slot(level.struct, op.offset)[0]
            if op.code == ARRAY and op.element == STRUCT and value is not None:
                level.values = value if isinstance(value, list) else array_list(value)
                level.element = 0
                self.writer.write_count(len(level.values), level.plan.flexible)
                continue
            write_value(self.writer, op.code, op, value, level.plan.flexible)
            level.field += 1
        return True

    cdef int write_elements(self, Level level, Op *op, Py_ssize_t size) except -1:
        """Write elements of an array; an element that has arrays itself becomes the next level."""
        cdef Plan plan = <Plan>op.plan
        while level.element < len(level.values):
            element = level.values[level.element]
            if element is None:
                raise UnencodableMessage(f"element {level.element} is null")
            level.element += 1
            if plan.nested:
                self.levels.append(level_of(plan, element))
                return 0
            write_struct(self.writer, plan, element)
            if self.writer.size >= size:
                return 0
        level.values = None
        level.field += 1
        return 0

    cdef int encode_into(self, Writer writer, int version) except -1:
        if self.levels:
            raise AssertionError("the message is not encoded completely yet")
        return writer.write_raw(self.writer.data, self.writer.size)


cdef class DecodedInParts:
    """A long message, of which one array is decoded one element at a time.

    `path` names the array, for example ("results", "topics"). Iteration is possible once. It yields
    each element together with the struct that has the array; the fields of this struct after the
    array are not decoded yet. At the end, `message` is complete except for the elements, which are
    not stored. Raises MalformedMessage, UnsupportedVersion.
    """

    def __init__(self, type message_class not None, data, int version, *path):
        self.plan = (<Layout>message_class.LAYOUT).plan(version)
        self.cursor, self.version, self.path = Cursor(data), version, path
        self.message = empty_struct(self.plan)

    def __iter__(self):
        reach(NULL)
        try:
            yield from self.walked(self.plan, self.message, 0)
        except MalformedMessage as error:
            what = where(type(self.message), self.version)
            raise MalformedMessage(f"{what}: {error}") from None

    def walked(self, Plan plan, object struct, int depth):
        """Decode a struct on the path; yield the elements."""
        cdef Op *op
        cdef int place
        cdef Py_ssize_t left
        for place in range(plan.plain):
            op = &plan.ops[place]
            reach(op)
            if (<str>op.name).rpartition(".")[2] != self.path[depth]:
                put(struct, op.offset, read_value(self.cursor, op.code, op, plan.flexible))
                continue
            left = self.cursor.read_count(plan.flexible, op.element_size_min)
            if left < 0 and not op.nullable:
                raise MalformedMessage("the value is null, which the protocol forbids here")
            kept = [] if left >= 0 else None
            put(struct, op.offset, kept)
            while left > 0:
                left -= 1
                if depth + 1 == len(self.path):
                    yield struct, read_struct(self.cursor, <Plan>op.plan)
                else:
                    inner = empty_struct(<Plan>op.plan)
                    kept.append(inner)
                    yield from self.walked(<Plan>op.plan, inner, depth + 1)
        read_rest(self.cursor, plan, struct)
