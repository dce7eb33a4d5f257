"""The client's side of SCRAM: whatever a broker answers, the client raises no other error than
ClientError."""

from __future__ import annotations

import pytest

from ottla.client.errors import ClientError
from ottla.client.sasl import ITERATIONS_MAX, ScramClient

SALT = b"c2FsdA=="


def client() -> ScramClient:
    made = ScramClient("SCRAM-SHA-256", "alice", "secret", {})
    made.nonce = "mine"
    return made


@pytest.mark.parametrize(
    "token",
    [
        b"", b"\xff", b"e=other-error", b"r=mineX,s=" + SALT, b"r=mineX,s=,i=4096",
        b"r=mineX,s=!!!!,i=4096", b"r=mineX,s=c2F,i=4096", b"r=mineX,s=" + SALT + b",i=0",
        b"r=mineX,s=" + SALT + b",i=-1", b"r=mineX,s=" + SALT + b",i=99999999999",
        b"r=mineX,s=" + SALT + b",i=4x", b"r=yours,s=" + SALT + b",i=4096",
        b"r=mineX,s=" + SALT + b",i=%d" % (ITERATIONS_MAX + 1),
    ],
)  # fmt: skip
def test_a_first_answer_that_is_none_is_an_error_of_the_broker(token: bytes) -> None:
    with pytest.raises(ClientError):
        client().answer(token)


@pytest.mark.parametrize("token", [b"", b"v=", b"v=AAAA", b"v=%%%%", b"e=invalid-proof", b"\xff"])
def test_a_broker_that_does_not_know_the_password_is_not_believed(token: bytes) -> None:
    logging_in = client()
    assert logging_in.answer(b"r=mineX,s=" + SALT + b",i=4096,x=later") is not None
    with pytest.raises(ClientError):
        logging_in.answer(token)
