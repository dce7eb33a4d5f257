# cython: boundscheck=False, wraparound=False
"""Messages, and the interpreter that executes the plan of a version to encode and decode them.

A message class has an ordinary Python slot for each field, so that handlers read and write
attributes at full speed. The plan knows the offset of each slot and moves values directly between
slot and buffer. In a slot, null is None, an array is a list, and `bytes`, `records` and uuids are
bytes. Lengths and counts from outside are checked before anything is allocated; schemas do not
recurse, so depth is bounded too.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.exc cimport PyErr_Clear, PyErr_Occurred
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New, PyList_SET_ITEM
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport (
    INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t,
    uint32_t,
)
from libc.string cimport memcpy, memmove

from ottla.wire.byteorder cimport (
    load_int16, load_int32, load_int64, store_int16, store_int32, store_int64,
)
from ottla.wire.plan cimport (
    ARRAY, BOOL, BYTES, INT8, INT16, INT32, INT64, STRING, STRUCT, UINT16, UINT32, UUID,
)

from ottla.wire.errors import (
    MalformedMessage,
    NotInThisVersion,
    NumberOutOfRange,
    UnencodableMessage,
    located,
)

ctypedef int64_t (*Conversion)(object) noexcept

cdef tuple NO_ARGUMENTS = ()
cdef Op *walking = NULL                 # the field being encoded or decoded, for errors


# Decoding

cdef inline const uint8_t *take(Cursor cursor, Py_ssize_t size) except NULL:
    if cursor.end - cursor.at < size:
        return cursor.take(size, "value")       # raises
    cursor.at += size
    return cursor.at - size


cdef object read_value(Cursor cursor, int code, Op *op, bint compact):
    if code == INT32:
        return load_int32(take(cursor, 4))
    if code == STRING:
        text = cursor.read_string(compact)
        return text if text is not None else null(op)
    if code == INT16:
        return load_int16(take(cursor, 2))
    if code == ARRAY:
        return read_array(cursor, op, compact)
    if code == INT64:
        return load_int64(take(cursor, 8))
    if code == BOOL:
        return take(cursor, 1)[0] != 0
    if code == INT8:
        return cursor.read_int8()
    if code == UUID:
        return cursor.read_uuid()
    if code == BYTES:
        data = cursor.read_bytes(compact)
        return data if data is not None else null(op)
    if code == STRUCT:
        if op.nullable and is_null_struct(cursor, op):
            return None
        return read_struct(cursor, <Plan>op.plan)
    if code == UINT16:
        return cursor.read_uint16()
    if code == UINT32:
        return cursor.read_uint32()
    return cursor.read_float64()


cdef object null(Op *op):
    """None if the field is nullable; raises otherwise."""
    if not op.nullable:
        raise MalformedMessage("the value is null, which the protocol forbids here")
    return None


cdef bint is_null_struct(Cursor cursor, Op *op) except -1:
    # One byte says whether a nullable struct follows: -1 means null; in a tagged field, 0 means
    # null.
    if op.tag >= 0:
        return cursor.read_unsigned_varint() == 0
    return cursor.read_int8() < 0


cdef object read_array(Cursor cursor, Op *op, bint compact):
    cdef Py_ssize_t i
    cdef Py_ssize_t count = cursor.read_count(compact, op.element_size_min)
    cdef int element = op.element
    cdef list values
    cdef object value
    if count < 0:
        if not op.nullable:
            raise MalformedMessage("the value is null, which the protocol forbids here")
        return None
    assert count <= cursor.end - cursor.at, "the array has more elements than bytes remain"
    values = PyList_New(count)          # bounded: read_count compared it with the bytes left
    for i in range(count):
        if element == STRUCT:
            value = read_struct(cursor, <Plan>op.plan)
        elif element == INT32:
            value = load_int32(take(cursor, 4))
        elif element == STRING:
            value = cursor.read_string(compact)
            if value is None:
                raise MalformedMessage("an array of strings contains null")
        else:
            value = read_value(cursor, element, op, compact)
        Py_INCREF(value)
        PyList_SET_ITEM(values, i, value)
    return values


cdef object read_struct(Cursor cursor, Plan plan):
    global walking
    cdef object struct = empty_struct(plan)
    cdef Op *op = plan.ops
    cdef Op *end = op + plan.plain
    cdef object value
    while op < end:
        walking = op
        value = read_value(cursor, op.code, op, plan.flexible)
        Py_INCREF(value)
        slot(struct, op.offset)[0] = <PyObject *>value
        op += 1
    read_rest(cursor, plan, struct)
    return struct


cdef int read_rest(Cursor cursor, Plan plan, object struct) except -1:
    """Read the tagged fields, after the plain ones. Fields that are not read get their defaults."""
    cdef Op *op = plan.ops + plan.plain
    cdef Op *end = op + plan.tagged + plan.absent
    while op < end:
        put(struct, op.offset, default_of(op))
        op += 1
    if plan.flexible:
        read_tags(cursor, plan, struct)
    return 0


cdef object empty_struct(Plan plan):
    """A struct whose slots are NULL: the same as `__new__`, without the lookup."""
    return (<PyTypeObject *>plan.struct_class).tp_new(
        plan.struct_class, <PyObject *>NO_ARGUMENTS, NULL
    )


cdef inline object default_of(Op *op):
    cdef object value = <object>op.default
    if op.code == ARRAY and value is not None:
        return []
    if op.code == STRUCT and value is not None:
        return type(value)()
    return value


cdef int read_tags(Cursor cursor, Plan plan, object struct) except -1:
    """Stores the tagged fields of this version in their slots and skips all others (KIP-482)."""
    global walking
    cdef uint32_t left, tag
    cdef Py_ssize_t size
    cdef const uint8_t *end
    cdef const uint8_t *end_of_all = cursor.end
    cdef Op *op
    cdef int i
    if cursor.at < cursor.end and cursor.at[0] == 0:
        cursor.at += 1
        return 0
    left = cursor.read_tag_count()
    while left:
        left -= 1
        tag = cursor.read_unsigned_varint()
        size = cursor.read_unsigned_varint()
        end = cursor.take(size, "tagged field") + size
        for i in range(plan.plain, plan.plain + plan.tagged):
            op = &plan.ops[i]
            if <uint32_t>op.tag == tag:
                walking = op
                cursor.at, cursor.end = end - size, end
                try:
                    put(struct, op.offset, read_value(cursor, op.code, op, True))
                finally:
                    cursor.end = end_of_all
                if cursor.at != end:
                    raise MalformedMessage(
                        f"a tagged field declares {size} bytes, but its value has another size")
    return 0


# Encoding

cdef inline uint8_t *room(Writer writer, Py_ssize_t size) except NULL:
    if writer.size + size > writer.room:
        return writer.more(size)
    writer.size += size
    return writer.data + writer.size - size


cdef inline int64_t converted(object value) except? -1:
    return value


cdef inline int64_t checked(object value, int64_t low, int64_t high) except? -1:
    cdef int64_t number
    if not isinstance(value, int):
        raise UnencodableMessage(f"an integer is required, not {value!r}")
    # Cython does not check this call for an exception; the next line does. `try` would be slower.
    number = (<Conversion>converted)(value)
    if number < low or number > high or number == -1 and PyErr_Occurred() is not NULL:
        return refuse(value, low, high)
    return number


cdef int64_t refuse(object value, int64_t low, int64_t high) except? -1:
    if PyErr_Occurred() is not NULL:
        PyErr_Clear()               # an OverflowError: the number has more than 64 bits
        value = None
    raise NumberOutOfRange(value, low, high)


cdef int write_value(Writer writer, int code, Op *op, object value, bint compact) except -1:
    if code == INT32:
        store_int32(room(writer, 4), <int32_t>checked(value, INT32_MIN, INT32_MAX))
    elif code == STRING:
        if not isinstance(value, str) and not (value is None and op.nullable):
            raise UnencodableMessage(f"a string is required, not {value!r}")
        writer.write_string(<str>value, compact)
    elif code == INT16:
        store_int16(room(writer, 2), checked(value, INT16_MIN, INT16_MAX))
    elif code == ARRAY:
        write_array(writer, op, value, compact)
    elif code == INT64:
        store_int64(room(writer, 8), checked(value, INT64_MIN, INT64_MAX))
    elif code == BOOL:
        room(writer, 1)[0] = 1 if value else 0
    elif code == INT8:
        room(writer, 1)[0] = <uint8_t>checked(value, -128, 127)
    elif code == UUID:
        if not isinstance(value, bytes) or PyBytes_GET_SIZE(value) != 16:
            raise UnencodableMessage(f"a uuid must be 16 bytes, not {value!r}")
        memcpy(room(writer, 16), PyBytes_AS_STRING(value), 16)
    elif code == BYTES:
        if value is None and not op.nullable:
            raise UnencodableMessage("bytes are required, not None")
        writer.write_bytes(value, compact)
    elif code == STRUCT:
        if op.nullable:
            if value is None:
                return writer.write_int8(0 if op.tag >= 0 else -1)
            writer.write_int8(1)
        write_struct(writer, <Plan>op.plan, value)
    elif code == UINT16:
        store_int16(room(writer, 2), checked(value, 0, 0xffff))
    elif code == UINT32:
        store_int32(room(writer, 4), <int32_t>checked(value, 0, 0xffffffff))
    else:
        writer.write_float64(value)
    return 0


cdef int write_array(Writer writer, Op *op, object value, bint compact) except -1:
    cdef Py_ssize_t i
    cdef list values
    if value is None:
        if not op.nullable:
            raise UnencodableMessage("a list is required, not None")
        return writer.write_unsigned_varint(0) if compact else writer.write_int32(-1)
    values = value if isinstance(value, list) else array_list(value)
    writer.write_count(PyList_GET_SIZE(values), compact)
    # The size is read again for each element: Python code of an element may change the list.
    i = 0
    while i < PyList_GET_SIZE(values):
        element = <object>PyList_GET_ITEM(values, i)
        if element is None:
            raise UnencodableMessage(f"element {i} is null")
        if op.element == STRUCT:
            write_struct(writer, <Plan>op.plan, element)
        elif op.element == INT32:
            store_int32(room(writer, 4), <int32_t>checked(element, INT32_MIN, INT32_MAX))
        else:
            write_value(writer, op.element, op, element, compact)
        i += 1
    return 0


cdef list array_list(object value):
    """A tuple or other iterable as a list; str, bytes and dict are rejected, though iterable."""
    if isinstance(value, (str, bytes, bytearray, memoryview, dict)):
        raise UnencodableMessage(f"an array must be a list, not {type(value).__name__}")
    return list(value)


cdef inline object get(object struct, Op *op):
    cdef PyObject *value = slot(struct, op.offset)[0]
    if value is NULL:
        raise UnencodableMessage("the attribute was deleted")
    return <object>value


cdef int write_struct(Writer writer, Plan plan, object struct) except -1:
    global walking
    cdef Op *op = plan.ops
    cdef Op *end = op + plan.plain
    if not isinstance(struct, plan.struct_class):
        name = plan.struct_class.__qualname__
        raise UnencodableMessage(f"a {name} is required, not {struct!r}")
    while op < end:
        walking = op
        write_value(writer, op.code, op, get(struct, op), plan.flexible)
        op += 1
    return write_rest(writer, plan, struct)


cdef int write_rest(Writer writer, Plan plan, object struct) except -1:
    """Write the tagged fields, which follow the plain ones. Raise NotInThisVersion if the
    version lacks a field that is set and must not be dropped."""
    global walking
    cdef Op *op = plan.ops + plan.plain
    cdef Op *end = op + plan.tagged
    if plan.flexible:
        write_tags(writer, op, end, struct)
    op, end = end, end + plan.absent
    while op < end:
        walking = op
        if not op.ignorable and not is_default(op, get(struct, op)):
            raise NotInThisVersion(
                f"this version lacks the field, so {get(struct, op)!r} cannot be sent")
        op += 1
    return 0


cdef inline bint is_default(Op *op, object value) except -1:
    cdef object default = <object>op.default
    if value is default:
        return True
    if value is None or default is None:
        return False
    if op.code == ARRAY:
        return len(value) == 0
    return value == default


cdef int write_tags(Writer writer, Op *first, Op *end, object struct) except -1:
    """Writes the tagged fields that differ from their default, each after its tag and size."""
    global walking
    cdef Op *op
    cdef Py_ssize_t start, size
    cdef int count = 0
    cdef Py_ssize_t i
    for i in range(end - first):
        walking = first + i
        count += not is_default(first + i, get(struct, first + i))
    writer.write_unsigned_varint(count)
    for i in range(end - first):
        walking = op = first + i
        value = get(struct, op)
        if is_default(op, value):
            continue
        writer.write_unsigned_varint(op.tag)
        start = writer.size
        write_value(writer, op.code, op, value, True)
        # The size precedes the value but is known only once the value is written: write the size
        # after the value, then swap the two.
        size = writer.size - start
        writer.write_unsigned_varint(size)
        swap(writer.data + start, size, writer.size - start - size)
    return 0


cdef int swap(uint8_t *at, Py_ssize_t size, Py_ssize_t size_behind) except -1:
    """Exchanges a run of bytes with the few bytes (of a varint) directly after it."""
    cdef uint8_t behind[10]
    assert 0 <= size and 0 < size_behind <= 10, "the bytes to move are not a varint"
    memcpy(behind, at + size, size_behind)
    memmove(at + size_behind, at, size)
    memcpy(at, behind, size_behind)
    return 0


# Classes

cdef class Struct:
    """A struct of the protocol: keyword arguments set fields, the others get their defaults."""

    __hash__ = None

    def __init__(self, **values):
        fill(type(self).LAYOUT, self, values)

    def __eq__(self, other):
        cdef Layout layout = type(self).LAYOUT
        if type(self) is not type(other):
            return NotImplemented
        for name in layout.names:
            if getattr(self, name) != getattr(other, name):
                return False
        return True

    def __repr__(self):
        """The fields that differ from their default; long bytes are shortened."""
        cdef Layout layout = type(self).LAYOUT
        told = []
        for name, default in zip(layout.names, layout.defaults):
            value = getattr(self, name, "(deleted)")
            if value != default:
                told.append(f"{name}={short_repr(value)}")
        return f"{type(self).__qualname__}({', '.join(told)})"


    def __reduce__(self):
        # Copy and pickle use this, because they do not find the slots.
        cdef Layout layout = type(self).LAYOUT
        return rebuilt, (type(self), {name: getattr(self, name) for name in layout.names})


cdef int fill(Layout layout, object struct, dict values) except -1:
    """Sets every slot, to the given value or to its default."""
    cdef Py_ssize_t i, given_count = 0
    cdef PyObject *given
    cdef object value
    for i in range(len(layout.names)):
        given = PyDict_GetItemWithError(values, layout.names[i])
        if given is not NULL:
            given_count += 1
            value = <object>given
        else:
            value = layout.defaults[i]
            if type(value) is list:
                value = []
            elif isinstance(value, Struct):
                value = type(value)()
        put(struct, layout.offsets[i], value)
    if given_count != len(values):
        unknown = ", ".join(sorted(values.keys() - set(layout.names)))
        raise TypeError(f"{layout.struct_class.__qualname__} has no field {unknown}")
    return 0


def rebuilt(struct_class, values):
    """Creates a struct from its class and the values of its fields."""
    return struct_class(**values)


cdef str short_repr(value):
    if isinstance(value, (bytes, bytearray)) and len(value) > 64:
        return f"<{len(value)} bytes {bytes(value[:16])!r}…>"
    return repr(value)


cdef class Message(Struct):
    """A whole request, response, record key or value, which can be encoded and decoded."""

    cdef int encode_into(self, Writer writer, int version) except -1:
        """Appends this message; after an error the writer is unchanged."""
        global walking
        cdef Py_ssize_t start = writer.size
        cdef Plan plan = (<Layout>type(self).LAYOUT).plan(version)
        walking = NULL
        try:
            return write_struct(writer, plan, self)
        except (TypeError, ValueError, OverflowError) as error:
            writer.size = start
            raise located(error, where(self, version)) from error

    def encode(self, int version):
        """The bytes of this message in one version.

        Raises NotInThisVersion if the version lacks a field that is set and must not be dropped;
        UnencodableMessage if a field cannot hold its value; UnsupportedVersion if the message has
        no such version.
        """
        cdef Writer writer = Writer()
        self.encode_into(writer, version)
        return writer.getvalue()

    @classmethod
    def decode(cls, data, int version):
        """The message in `data`, bytes or a Cursor; bytes after its end are ignored.

        Raises MalformedMessage if the bytes are not a message of this class, UnsupportedVersion if
        the message has no such version.
        """
        return decode_from(cls, data if type(data) is Cursor else Cursor(data), version)


cdef class EncodedMessage(Message):
    """A message that exists as bytes only, such as a response received from another broker.

    The bytes are sent unchanged, whatever version is requested: the creator of this object has
    chosen the version.
    """

    def __init__(self, bytes data not None):
        self.data = data

    def __repr__(self):
        return f"EncodedMessage({short_repr(self.data)})"

    cdef int encode_into(self, Writer writer, int version) except -1:
        return writer.write_raw(PyBytes_AS_STRING(self.data), PyBytes_GET_SIZE(self.data))


cdef object decode_from(type message_class, Cursor cursor, int version):
    """Reads the message and leaves the cursor after it."""
    global walking
    cdef Plan plan = (<Layout>message_class.LAYOUT).plan(version)
    walking = NULL
    try:
        return read_struct(cursor, plan)
    except MalformedMessage as error:
        raise MalformedMessage(f"{where(message_class, version)}: {error}") from None


cdef int reach(Op *field) except -1:
    """Notes which field another module encodes or decodes next, for error messages."""
    global walking
    walking = field
    return 0


cdef str where(message, int version):
    """The version and the field at which encoding or decoding failed, as text."""
    name = message.__qualname__ if isinstance(message, type) else type(message).__qualname__
    return f"{<object>walking.name if walking is not NULL else name} in version {version}"
