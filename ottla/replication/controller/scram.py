"""The controller's decisions about SCRAM credentials (KIP-554).

A client sends a salted and iterated hash of its password. The metadata keep only keys that are
derived from this hash by further hashing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from ottla.replication.metadata import Decision, MetadataImage, MetadataRecord
from ottla.replication.principals import ScramCredential, ScramSet
from ottla.wire.errors import ErrorCode, ProtocolError

MECHANISMS = {1: "sha256", 2: "sha512"}
"""Kafka's numbers of SCRAM-SHA-256 and SCRAM-SHA-512, and the hash of each."""
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
SALT_SIZE_MAX = 1024
SALTED_PASSWORD_SIZE_MAX = 1024


@dataclass(frozen=True, slots=True)
class NewCredential:
    """A credential that a client sends; `salted_password` is Hi(password, salt, iterations)."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class UnacceptableCredential(ProtocolError):
    """A credential without a user, or with a number of iterations, a salt or a salted password that
    is outside the limits."""

    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class DuplicateUser(ProtocolError):
    """A request names this user twice."""

    code = ErrorCode.DUPLICATE_RESOURCE


class UnknownCredential(ProtocolError):
    """The credential does not exist."""

    code = ErrorCode.RESOURCE_NOT_FOUND


class UnknownMechanism(ProtocolError):
    """A mechanism that is neither SCRAM-SHA-256 nor SCRAM-SHA-512."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


def alter_credentials(
    image: MetadataImage,
    deletions: Sequence[tuple[str, int]],
    upsertions: Sequence[NewCredential],
) -> Decision[dict[str, ProtocolError | None]]:
    """Remove and set credentials; the result has an error or None for each user.

    A user that the request names twice is not changed, and has an error.
    """
    changes: dict[str, ScramSet | ProtocolError] = {}

    def put(user: str, change: ScramSet | ProtocolError) -> None:
        known = changes.get(user)
        if known is None:
            changes[user] = change
        elif isinstance(known, ScramSet):
            changes[user] = DuplicateUser(
                "A user credential cannot be altered twice in the same request"
            )

    for user, mechanism in deletions:
        put(user, _deletion(image, user, mechanism))
    for wanted in upsertions:
        put(wanted.user, _upsertion(wanted))
    records: list[MetadataRecord] = []
    errors: dict[str, ProtocolError | None] = {}
    for user, change in changes.items():
        if isinstance(change, ScramSet):
            records.append(change)
            errors[user] = None
        else:
            errors[user] = change
    return Decision(records, errors)


def _refusal(user: str, mechanism: int) -> ProtocolError | None:
    if not user:
        return UnacceptableCredential("Username must not be empty")
    if mechanism not in MECHANISMS:
        return UnknownMechanism("Unknown SCRAM mechanism")
    return None


def _deletion(image: MetadataImage, user: str, mechanism: int) -> ScramSet | ProtocolError:
    refusal = _refusal(user, mechanism)
    if refusal is None and (user, mechanism) not in image.credentials:
        refusal = UnknownCredential("Attempt to delete a user credential that does not exist")
    return refusal or ScramSet(user, mechanism, None)


def _upsertion(wanted: NewCredential) -> ScramSet | ProtocolError:
    refusal = _refusal(wanted.user, wanted.mechanism)
    if refusal is not None:
        return refusal
    if wanted.iterations < ITERATIONS_MIN:
        return UnacceptableCredential("Too few iterations")
    if wanted.iterations > ITERATIONS_MAX:
        return UnacceptableCredential("Too many iterations")
    if not 0 < len(wanted.salted_password) <= SALTED_PASSWORD_SIZE_MAX:
        return UnacceptableCredential(
            f"The salted password must have 1 to {SALTED_PASSWORD_SIZE_MAX} bytes"
        )
    if len(wanted.salt) > SALT_SIZE_MAX:
        return UnacceptableCredential(f"The salt must have at most {SALT_SIZE_MAX} bytes")
    return ScramSet(wanted.user, wanted.mechanism, _credential(wanted))


def _credential(wanted: NewCredential) -> ScramCredential:
    """RFC 5802, section 3: StoredKey := H(HMAC(SaltedPassword, "Client Key"))."""
    algorithm = MECHANISMS[wanted.mechanism]
    client_key = hmac.digest(wanted.salted_password, b"Client Key", algorithm)
    return ScramCredential(
        wanted.iterations,
        wanted.salt,
        hashlib.new(algorithm, client_key).digest(),
        hmac.digest(wanted.salted_password, b"Server Key", algorithm),
    )
