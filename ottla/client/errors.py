"""What can go wrong between a client and its brokers, each as one line for a person."""

from __future__ import annotations

from ottla.wire.errors import ErrorCode, ProtocolError


class ClientError(Exception):
    """The common base: `str(error)` is one sentence for a person."""


class Unreachable(ClientError, ConnectionError):
    """No broker could be connected to, or the connection broke and could not be made again."""


class TimedOut(ClientError, TimeoutError):
    """A broker did not answer in time."""


class NotSupported(ClientError):
    """The broker does not serve an API, or none of the versions of it that this client speaks."""


class Refused(ClientError, ProtocolError):
    """The broker answered with an error code. `message` is the broker's own text, or Kafka's."""

    def __init__(self, code: int, message: str | None = None, what: str = "") -> None:
        known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode(-1)
        text = message or known.name.replace("_", " ").lower()
        ProtocolError.__init__(self, f"{what}: {text}" if what else text, known)
        self.number = code
        self.said = message
        """The broker's own words, None where it said nothing."""


def check(code: int, message: str | None = None, what: str = "") -> None:
    """Raise Refused unless `code` is NONE. `what` names the item that was refused."""
    if code != ErrorCode.NONE:
        raise Refused(code, message, what)
