"""Errors between a client and its brokers, each as one line of text for users."""

from __future__ import annotations

import re
from shlex import quote
from typing import TypeVar

from ottla.wire.errors import ErrorCode, ProtocolError

E = TypeVar("E", bound=BaseException)


class ClientError(Exception):
    """The common base class: `str(error)` is one sentence for users."""


class Unreachable(ClientError, ConnectionError):
    """A broker could not be reached, or the connection to it broke."""


class NoBroker(Unreachable):
    """The client could not connect to any known broker."""

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused
        """Whether every address refused the connection: no process listens there."""


class NotConnected(Unreachable):
    """The client could not connect to the broker that a request is for. Nothing was sent to that
    broker. A retry may succeed: another broker may have become the leader or the controller."""


class TimedOut(ClientError, TimeoutError):
    """A broker did not answer in time."""

    def __init__(self, text: str, key: int | None = None, *, dry_run: bool = False) -> None:
        super().__init__(text)
        self.key, self.dry_run = key, dry_run
        """The API of the request that was not answered, if it is known, and whether that request
        asked the broker to change nothing."""


class LoginFailed(ClientError):
    """The broker refused the user or the password of this client."""

    def __init__(self, text: str, mechanism: str, user: str, *, token: bool = False) -> None:
        super().__init__(text)
        self.mechanism, self.user, self.token = mechanism, user, token


def cause_of(failed: BaseException, kind: type[E]) -> E | None:
    """The first error of a class among an error and its causes; None if there is none. If a
    callback runs after a fatal error of librdkafka, confluent-kafka raises a SystemError whose
    cause is that fatal error."""
    cause: BaseException | None = failed
    while cause is not None and not isinstance(cause, kind):
        cause = cause.__cause__ or cause.__context__
    return cause


class NotSupported(ClientError):
    """The broker does not support an API, or supports only versions that this client does not."""


class Refused(ClientError, ProtocolError):
    """The broker answered with an error code. Without a message from the broker, the text is the
    name of the code."""

    def __init__(self, code: int, message: str | None = None, what: str = "") -> None:
        known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode(-1)
        text = message or known.name.replace("_", " ").lower()
        if known is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and what.startswith("topic '"):
            # Kafka's message does not name the topic.
            text = text if what in text else f"{what} not found"
        elif known is ErrorCode.INVALID_TOPIC_EXCEPTION and not message and (
            what.startswith(("topic '", 'topic "'))
        ):
            text = why_illegal(what, what[len("topic '"):-1])
        ProtocolError.__init__(self, text if what in text else f"{what}: {text}", known)
        self.number, self.what = code, what
        self.said = message
        """The broker's own message, None if there was none."""
        self.user: str | None = None
        """The user who was refused, "" if its name is not known; None until the client adds it."""


def why_illegal(what: str, name: str) -> str:
    """Why no topic can have this name. Brokers send no reason with metadata."""
    if strange := "".join(dict.fromkeys(re.sub(r"[a-zA-Z0-9._-]", "", name))):
        return (f"{what} cannot exist, because of {strange!r}: names of topics have only ASCII"
                " letters, digits, '.', '_' and '-'")
    return f"{what} cannot exist: names of topics have 1 to 249 characters, and are not '.' or '..'"


def no_partition(topic: str, index: int, count: int) -> str:
    """The text about a partition that a topic with `count` partitions does not have."""
    return f"{topic} has no partition {index}, only 0{f' to {count - 1}' if count > 1 else ''}"


class NotAllowed(ClientError):
    """A client of librdkafka lacks a right. The text is librdkafka's; `sentence` says which right,
    and how to get it."""

    def __init__(
        self, text: str, code: ErrorCode, user: str, operation: str, resource: str
    ) -> None:
        super().__init__(text)
        who = f"User:{user}" if user else "this client"
        self.sentence = (
            f"{who} may not {operation} {resource.replace('/', ' ', 1)} ({code.name}); "
            f"{allowed_by(resource, operation, user)}"
        )


def allowed_by(resource: str, operation: str = "OPERATION", user: str = "") -> str:
    """The next step after a refusal: the command that gives the right."""
    principal = quote(f"User:{user or 'NAME'}")
    return f"an administrator can allow it: ottla acl add {principal} {operation} {quote(resource)}"


def check(code: int, message: str | None = None, what: str = "") -> None:
    """Raises Refused unless `code` is NONE. `what` names the item that was refused."""
    if code != ErrorCode.NONE:
        raise Refused(code, message, what)


def login_step(failed: LoginFailed) -> str:
    """The next step after a refused login: what to check, and who can set another password."""
    if failed.token:
        return ("check the delegation token's id and HMAC, and whether it has expired: "
                "ottla kafka-delegation-tokens --describe --bootstrap-server HOST:PORT"
                " --command-config FILE")
    check_both = "check the user's name and password in the client's settings"
    if failed.mechanism == "PLAIN":
        return (f"{check_both}; an administrator sets PLAIN's passwords in the broker's "
                "listener.name.LISTENER.plain.sasl.jaas.config")
    return (f"{check_both}; an administrator can set a new password: ottla user set "
            f"{quote(failed.user or 'NAME')} --mechanism {failed.mechanism}")


def is_running_there(flags: str = "") -> str:
    """The next step after refused connections. `flags` are the command's flags for the address."""
    another = f"; give another address with {flags}" if flags else ""
    return f"is a broker running there? `ottla server start` starts one{another}"


def reason_of(error: BaseException) -> str:
    """An error's text; for an OSError `PATH: no such file or directory`, without the number."""
    if not isinstance(error, OSError) or error.strerror is None or error.errno is None:
        return str(error)
    text = error.strerror[:1].lower() + error.strerror[1:]
    return text if error.filename is None else f"{error.filename}: {text}"
