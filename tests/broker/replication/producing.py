"""A producer's connection to one of the nodes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from ottla.broker.api.records.produce import ProduceHandler
from ottla.broker.api.records.transaction_gate import TransactionGate
from ottla.wire.errors import ErrorCode
from ottla.wire.headers import RequestHeader, response_header_size
from ottla.wire.messages import ProduceRequest, ProduceResponse
from tests.broker.produce_fetch import batch, produce_request
from tests.broker.replication.nodes import TOPIC, Node, connected

PRODUCER_ID, VERSION, LENGTH_SIZE = 5, 9, 4


class Sender:
    """An idempotent producer with acks=all, or a transactional producer if it has a transactional
    id. `check` takes the place of the transaction coordinator: it gets the first batch of a
    transaction in the partition, and raises an error to refuse the batch."""

    def __init__(
        self, node: Node, transactional_id: str | None = None,
        check: Callable[..., None] = lambda *_: None,
    ) -> None:
        self.node, self.held, self.transactional_id = node, b"", transactional_id
        node.broker.flusher = SimpleNamespace(loop=node.loop, want=lambda partition: None)
        node.broker.coordinators = SimpleNamespace(check_batch=check, verifier=None)
        gate = TransactionGate(node.broker)
        node.listener.produce_handler = ProduceHandler(node.broker, gate)
        self.near, self.connection = connected(node, "sender")
        node.links.append(self)

    def ask(self, sequence: int) -> None:
        """Send a batch of one record."""
        records = batch(
            b"%d" % sequence, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence,
            transactional=self.transactional_id is not None,
        )
        request = produce_request(TOPIC, records, transactional_id=self.transactional_id)
        header = RequestHeader(ProduceRequest.API_KEY, VERSION, 1, "sender").encode()
        body = header + request.encode(VERSION)
        self.near.send(len(body).to_bytes(LENGTH_SIZE, "big") + body)
        self.node.turn()

    def answer(self) -> tuple[ErrorCode, int] | None:
        """The code and the base offset of the next answer; None if there is none yet."""
        self.node.turn()
        try:
            self.held += self.near.recv(1 << 20)
        except BlockingIOError:
            pass
        if len(self.held) < LENGTH_SIZE:
            return None
        end = LENGTH_SIZE + int.from_bytes(self.held[:LENGTH_SIZE], "big")
        frame, self.held = self.held[LENGTH_SIZE:end], self.held[end:]
        head = response_header_size(ProduceRequest.API_KEY, VERSION, frame)
        told = ProduceResponse.decode(frame[head:], VERSION)
        found = told.responses[0].partition_responses[0]
        return ErrorCode(found.error_code), found.base_offset

    def send(self, sequence: int) -> ErrorCode:
        """Send a batch that is answered at once; returns the error code."""
        self.ask(sequence)
        answer = self.answer()
        assert answer is not None, "no answer yet"
        return answer[0]

    def close(self) -> None:
        self.near.close()
