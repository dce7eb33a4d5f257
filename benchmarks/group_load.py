"""Members of groups as raw connections, each with one request in flight, in one Python process."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from ottla.wire.apis import APIS
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader, response_header_size
from ottla.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

SUBSCRIPTION = b"\0\1" + struct.pack(">ih5sii", 1, 5, b"bench", -1, 0)
JOIN, SYNC, HEARTBEAT, COMMIT, CONSUMER_HEARTBEAT = 7, 5, 4, 8, 0
"""Versions that both brokers serve and that are common among clients."""


def frame(request: Any, version: int) -> bytes:
    """A request with its length and header."""
    body = RequestHeader(request.API_KEY, version, 1, "bench").encode() + request.encode(version)
    return struct.pack(">i", len(body)) + body


class Member:
    """A member of a classic group, on a connection of its own."""

    def __init__(self, address: tuple[str, int], group: str) -> None:
        self.socket = socket.create_connection(address, 20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.buffer = b""
        self.leads = False

    def send(self, request: Any, version: int) -> None:
        self.socket.sendall(frame(request, version))

    def receive(self, key: int, version: int) -> Any:
        """The next answer, decoded."""
        return self.decode(key, version, self.next_frame())

    def next_frame(self) -> bytes:
        while len(self.buffer) < 4 or len(self.buffer) < 4 + self._size():
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self.buffer += data
        size = 4 + self._size()
        whole, self.buffer = self.buffer[4:size], self.buffer[size:]
        return whole

    def _size(self) -> int:
        size: int = struct.unpack(">i", self.buffer[:4])[0]
        return size

    @staticmethod
    def decode(key: int, version: int, whole: bytes) -> Any:
        body = whole[response_header_size(key, version, whole) :]
        return APIS[key].response.decode(body, version)

    def join_request(self) -> Any:
        return JoinGroupRequest(
            group_id=self.group, session_timeout_ms=45_000, rebalance_timeout_ms=60_000,
            member_id=self.member_id, protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=SUBSCRIPTION)],
        )

    def find_coordinator(self) -> None:
        """Waits until a coordinator serves the group. The first request creates the internal topic.
        """
        deadline = time.monotonic() + 30
        while True:
            self.send(FindCoordinatorRequest(key=self.group), 3)
            if self.receive(10, 3).error_code == 0:
                # Kafka names a coordinator some seconds before this coordinator serves the group.
                # A coordinator that serves it refuses a heartbeat of an unknown member.
                self.socket.sendall(self.heartbeat())
                if self.receive(12, HEARTBEAT).error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                    return
            assert time.monotonic() < deadline, "no coordinator"
            time.sleep(0.1)

    def heartbeat(self) -> bytes:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        return frame(request, HEARTBEAT)

    def check(self, whole: bytes) -> None:
        """Fails if a heartbeat or a commit was refused (ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID),
        because the figure would then mean nothing."""
        assert b"\0\x16" not in whole[-5:] and b"\0\x19" not in whole[-5:], whole

    def commit(self, topic: str, partition: int) -> bytes:
        made = OffsetCommitRequest.Topic
        offsets = made.Partition(
            partition_index=partition, committed_offset=1, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group, generation_id_or_member_epoch=self.generation,
            member_id=self.member_id, topics=[made(name=topic, partitions=[offsets])],
        )
        return frame(request, COMMIT)


class ConsumerMember(Member):
    """A member of a KIP-848 group."""

    def __init__(self, address: tuple[str, int], group: str) -> None:
        super().__init__(address, group)
        self.epoch = 0
        self.owned: list[Any] = []

    def beat(self, topics: list[str] | None = None) -> Any:
        """Send a heartbeat, and take over the assignment in the answer; returns the answer. With
        `topics`, the heartbeat joins the group and subscribes to them."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch,
            rebalance_timeout_ms=60_000 if topics else -1, subscribed_topic_names=topics,
            topic_partitions=self.owned,
        )
        self.send(request, CONSUMER_HEARTBEAT)
        answer = self.receive(68, CONSUMER_HEARTBEAT)
        assert answer.error_code == 0, answer
        self.member_id, self.epoch = answer.member_id, answer.member_epoch
        if answer.assignment is not None:
            made = ConsumerGroupHeartbeatRequest.TopicPartition
            self.owned = [
                made(topic_id=each.topic_id, partitions=each.partitions)
                for each in answer.assignment.topic_partitions
            ]
        return answer

    def heartbeat(self) -> bytes:
        """The request that a member sends while nothing changes."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch
        )
        return frame(request, CONSUMER_HEARTBEAT)

    def check(self, whole: bytes) -> None:
        """Fails if the answer has an error. The error code follows the correlation id, an empty
        list of tags, and the throttle time."""
        assert whole[9:11] == b"\0\0", whole


def settle_consumers(members: Sequence[ConsumerMember], topic: str) -> None:
    """Let all members of one KIP-848 group join, and send heartbeats until their assignments and
    epochs no longer change."""
    for member in members:
        member.beat([topic])
    quiet = 0
    while quiet < 4:
        before = [member.epoch for member in members]
        changed = [member.beat().assignment is not None for member in members]
        at_rest = not any(changed) and before == [member.epoch for member in members]
        quiet = quiet + 1 if at_rest else 0
        time.sleep(0.5)  # Kafka assigns once a second, not at every heartbeat


def settle(members: Sequence[Member]) -> float:
    """Let all members join, the leaders assign partitions, and all members get their assignments;
    returns the seconds that this took."""
    start = time.monotonic()
    # A rebalance begins when a leader joins again. If a follower joined again before that, it would
    # get an answer with the current generation at once.
    leaders = [member for member in members if member.leads]
    for member in leaders:
        member.send(member.join_request(), JOIN)
    if leaders:
        time.sleep(0.1)
    for member in members:
        if not member.leads:
            member.send(member.join_request(), JOIN)
    waiting = []
    for member in members:
        if member.member_id:
            waiting.append(member)
            continue
        answer = member.receive(11, JOIN)
        member.member_id = answer.member_id
        member.send(member.join_request(), JOIN)
        waiting.append(member)
    assignments: dict[str, list[Any]] = {}
    for member in waiting:
        answer = member.receive(11, JOIN)
        assert answer.error_code == 0, answer
        member.generation = answer.generation_id
        member.leads = answer.leader == answer.member_id
        if member.leads:
            made = SyncGroupRequest.Assignment
            assignments[member.member_id] = [
                made(member_id=each.member_id, assignment=SUBSCRIPTION) for each in answer.members
            ]
    for member in members:
        request = SyncGroupRequest(
            group_id=member.group, generation_id=member.generation, member_id=member.member_id,
            protocol_type="consumer", protocol_name="range",
        )
        if member.member_id in assignments:
            request.assignments = assignments[member.member_id]
        member.send(request, SYNC)
    for member in members:
        assert member.receive(14, SYNC).error_code == 0
    return time.monotonic() - start


def closed_loop(
    members: Sequence[Member], request_of: Callable[[Member], bytes], seconds: float
) -> int:
    """Every member sends its request again as soon as the answer arrives; returns the number of
    answers."""
    poller = select.epoll()
    by_number = {member.socket.fileno(): (member, request_of(member)) for member in members}
    for number, (member, request) in by_number.items():
        poller.register(number, select.EPOLLIN)
        member.socket.sendall(request)
    count, under_way, deadline = 0, len(members), time.monotonic() + seconds
    while under_way:
        going_on = time.monotonic() < deadline
        for number, _ in poller.poll(5):
            member, request = by_number[number]
            member.check(member.next_frame())
            count += 1
            if going_on:
                member.socket.sendall(request)
            else:
                under_way -= 1
    poller.close()
    return count


def paced(members: Sequence[Member], interval: float, seconds: float) -> int:
    """Every member sends a heartbeat in each interval; the heartbeats are spread evenly. Returns
    the number of answers."""
    frames = [(member, member.heartbeat()) for member in members]
    step, start, count = interval / len(members), time.monotonic(), 0
    while (elapsed := time.monotonic() - start) < seconds:
        due = int(elapsed / step)
        while count < due:
            member, request = frames[count % len(frames)]
            member.socket.sendall(request)
            member.check(member.next_frame())
            count += 1
        time.sleep(max(step, 0.002))
    return count
