"""Sets the throttle_time_ms field of every response (KIP-219).

In the response to a forwarded request, the field is set twice: first by the controller, then by the
client's broker. The client's broker never lowers the controller's value.

Handlers leave the field 0. It is set in the encoded reply, since replies may be shared between
clients and are mostly encoded before the throttle time is known. In nearly all responses it is the
first field; in Produce it is the last before the tagged fields.
"""

from libc.stdint cimport int32_t

from ottla.wire.byteorder cimport store_int32
from ottla.wire.codec cimport Writer
from ottla.wire.plan cimport Layout

from ottla.wire.apis import APIS

FIELD = "throttle_time_ms"
FIXED = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "float64": 8, "uuid": 16,
}

cdef enum:
    ABSENT = -1                 # the version has no such field
    LAST = -2                   # before the tagged fields, which are always empty
    ELSEWHERE = -3              # after fields of variable size
    PRODUCE = 0

places = {}


cdef int set_throttle_time(
    Writer reply, Py_ssize_t body_at, int key, int version, int32_t throttle_ms
) except -1:
    """Set the field of the last reply in a writer; the reply's body begins at `body_at`."""
    cdef int place = place_of(key, version)
    if place >= 0:
        store_int32(reply.data + body_at + place, throttle_ms)
    elif place == LAST:
        store_int32(
            reply.data + reply.size - 4 - (1 if is_flexible(key, version) else 0), throttle_ms)
    elif place == ELSEWHERE:
        body = <bytes>(<const char *>reply.data + body_at)[:reply.size - body_at]
        response = APIS[key].response.decode(body, version)
        response.throttle_time_ms = throttle_ms
        body = response.encode(version)
        reply.size = body_at
        reply.write_raw(<const char *><bytes>body, len(body))
    return 0


def throttle_time_of(bytes body, int key, int version):
    """The throttle time in another broker's reply; 0 if the version has no such field."""
    cdef int place = place_of(key, version)
    if place >= 0:
        return int.from_bytes(body[place:place + 4], "big")
    return 0 if place == ABSENT else APIS[key].response.decode(body, version).throttle_time_ms


cdef bint is_flexible(int key, int version) except -1:
    first = APIS[key].flexible_from
    return first is not None and version >= first


cdef int place_of(int key, int version) except -4:
    """The position of the field in the body; or ABSENT, LAST or ELSEWHERE."""
    place = places.get((key, version))
    if place is None:
        place = places[key, version] = find_place(key, version)
    return place


cdef int find_place(int key, int version) except -4:
    cdef Layout layout = APIS[key].response.LAYOUT
    cdef int distance = 0
    for each in layout.fields:
        if version not in each.versions or each.tag is not None:
            continue
        if each.name == FIELD:
            return distance
        if each.array or each.type not in FIXED:
            break
        distance += FIXED[each.type]
    if not any(each.name == FIELD and version in each.versions for each in layout.fields):
        return ABSENT
    return LAST if key == PRODUCE else ELSEWHERE
