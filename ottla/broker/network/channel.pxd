# The flow of bytes on one socket; see channel.pyx.

from libc.stdint cimport int64_t

from ottla.broker.network.conversation cimport Conversation
from ottla.broker.network.counts cimport Counts
from ottla.broker.network.inbox cimport Inbox
from ottla.broker.network.poller cimport Pollable, Poller
from ottla.broker.network.promises cimport Held
from ottla.broker.network.reply cimport Reply
from ottla.broker.network.reply_queue cimport ReplyQueue
from ottla.broker.network.transport cimport Transport
from ottla.broker.quotas.quotas cimport Quotas


cdef class Channel(Pollable):
    cdef object loop
    cdef object cold_reads              # threads that read file ranges before they are sent
    cdef object doubt_file              # called with the path of a file that could not be read
    cdef Poller poller
    cdef Transport transport
    cdef Counts counts
    cdef Quotas quotas
    cdef Conversation conversation
    cdef Inbox inbox                    # conversation.inbox
    cdef Reply out                      # conversation.out
    cdef ReplyQueue queue               # replies, in order; `out` is the part that may be sent
    cdef readonly int64_t sent          # bytes
    cdef readonly double opened_at
    cdef readonly double active_at      # the loop time since which the broker waits for the client
    # States that keep the channel from receiving, from handling frames, or from sending.
    cdef Held holding                   # the current request; later frames wait
    cdef object muting                  # a timer: the client is throttled until it fires
    cdef bint paused                    # the channel does not receive
    cdef readonly bint writing          # nothing is read until the socket accepts bytes again
    cdef readonly bint warming          # the next bytes to send are being read from disk
    cdef readonly bint ended            # the client sends nothing more
    cdef readonly bint closed
    cdef bint scheduled                 # make_progress is due in the next turn of the loop

    cdef int handle_next(self) except -1
    cdef int watch(self) except -1
    cdef int schedule(self) except -1
    cdef int receive(self) except -1
    cdef int compact(self) except -1
    cdef bint may_handle(self) except -1
    cdef int handle_frames(self) except -1
    cdef int hold(self, Held held) except -1
    cdef int flush(self) except -1
    cdef int wait_for_room(self) except -1
    cdef int warm(self) except -1
    cdef int unreadable(self, error) except -1
    cdef int close_if_done(self) except -1
