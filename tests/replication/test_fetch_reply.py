"""Fetch replies as a follower reads them: no length in a reply makes it read beyond the reply."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.replication.fetch_reply import MalformedReply
from ottla.replication.fetch_settings import FetchSettings
from ottla.replication.fetcher import Fetcher
from ottla.replication.partition import Partition
from ottla.replication.roles.assignment import assume
from ottla.wire.errors import MalformedMessage
from ottla.wire.messages import FetchResponse
from tests.fakes import FakeClock
from tests.log.faulty_disk import FaultyDisk
from tests.replication.fakes import TOPIC_ID, FakeClusterSide, batch, make_partition

HERE, LEADER, EPOCH, VERSION = 2, 1, 5, 17
TAGS = 3
"""The bytes after the records: no tagged fields of the partition, the topic and the reply."""


def following(partition: Partition) -> Partition:
    """Let the partition follow node 1; returns it."""
    assume(partition, LEADER, EPOCH, HERE, (1, 2), (1, 2), 10)
    return partition


@pytest.fixture
def followed(tmp_path: Path) -> Partition:
    return following(make_partition(tmp_path, FakeClock(), FakeClusterSide()))


def fetching(partition: Partition) -> Fetcher:
    """A fetcher that has asked for the records of a partition."""
    fetcher = Fetcher(HERE, LEADER, FakeClock(), FetchSettings(), {})
    fetcher.plan.follow(partition)
    assert fetcher.plan.request() is not None
    return fetcher


def reply(records: bytes, claimed: int) -> bytes:
    """The reply to the first request; its length field says that `claimed` bytes are records."""
    made = FetchResponse.Response
    body = FetchResponse(session_id=1, responses=[made(topic_id=TOPIC_ID, partitions=[
        made.Partition(partition_index=0, high_watermark=0, log_start_offset=0, records=records),
    ])]).encode(VERSION)
    at = body.index(records)
    assert body[at - 1] == len(records) + 1 and len(body) == at + len(records) + TAGS
    body = (1).to_bytes(4, "big") + b"\0" + body[: at - 1] + bytes([claimed + 1]) + body[at:]
    return len(body).to_bytes(4, "big") + body


def test_records_of_a_reply_are_appended(followed: Partition) -> None:
    fetcher, sent = fetching(followed), reply(batch(), len(batch()))
    assert fetcher.feed(sent) == len(sent)
    assert followed.log.log_end_offset == 1


def test_records_beyond_the_end_of_their_reply_are_refused_before_any_is_taken(
    followed: Partition,
) -> None:
    """They are refused even if a second reply has arrived too. Its first bytes could be taken for
    the rest of the records."""
    fetcher, claimed = fetching(followed), len(batch()) + TAGS + 1
    with pytest.raises(
        MalformedReply, match=rf"{claimed} bytes of records, but only {claimed - 1} bytes remain"
    ):
        fetcher.feed(reply(batch(), claimed) * 2)
    assert followed.log.log_end_offset == 0


def test_a_reply_that_is_too_short_or_that_nobody_waits_for_is_refused(
    followed: Partition,
) -> None:
    fetcher, sent = fetching(followed), reply(batch(), len(batch()))
    with pytest.raises(MalformedReply, match="of 15 bytes, expected at least 16"):
        fetcher.feed((15).to_bytes(4, "big") + sent[4:])
    fetcher = fetching(followed)
    with pytest.raises(MalformedReply, match="but every request has been answered"):
        fetcher.feed(sent * 2)


def test_records_may_claim_all_of_their_reply_but_nothing_of_the_next(followed: Partition) -> None:
    """The records are appended to the log. Then the fields that should follow them are missing."""
    fetcher = fetching(followed)
    with pytest.raises(MalformedMessage):
        fetcher.feed(reply(batch(), len(batch()) + TAGS) * 2)
    assert followed.log.log_end_offset == 1
    assert fetcher.plan.outstanding == 1, "the reply has not ended"


def test_a_link_that_ends_amid_a_reply_has_no_more_of_it_parsed() -> None:
    """If a log directory fails during an append, the fetches of its partitions end. This may end
    the link whose reply is being parsed."""
    disk = FaultyDisk()
    followed = following(make_partition(Path("/"), FakeClock(), FakeClusterSide(), disk=disk))
    fetcher, sent = fetching(followed), reply(batch(), len(batch()))
    followed.log.health.watch(lambda reason: fetcher.reset())
    disk.errors["write"] = errno.EIO
    assert fetcher.feed(sent * 2) == len(sent) - TAGS, "the records are the last that was parsed"
    assert followed.log.offline is not None and fetcher.plan.outstanding == 0
    assert fetcher.feed(b"") == 0 and fetcher.parser.wanted == 4, "it awaits another reply"
