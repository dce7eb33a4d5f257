"""SCRAM credentials: stored keys allow no login, and bad ones are refused as by Apache Kafka."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from ottla.replication.controller.scram import (
    SALTED_PASSWORD_SIZE_MAX,
    NewCredential,
    alter_credentials,
)
from ottla.replication.metadata import MetadataImage
from ottla.wire.errors import ErrorCode

SHA_256, SHA_512 = 1, 2


def wanted(user: str = "u", mechanism: int = SHA_256, iterations: int = 4096) -> NewCredential:
    return NewCredential(user, mechanism, iterations, b"salt", b"salted password")


def codes(image: MetadataImage, *new: NewCredential, gone: tuple[str, int] | None = None) -> object:
    decision = alter_credentials(image, [gone] if gone else [], new)
    return {user: error and error.code for user, error in decision.result.items()}


@pytest.fixture
def image() -> MetadataImage:
    """A cluster that has one credential."""
    empty = MetadataImage.empty()
    return empty.apply(alter_credentials(empty, [], [wanted("there")]).records)


def test_the_exchange_of_the_rfc_succeeds_with_the_keys_that_are_kept() -> None:
    """All values are from section 3 of RFC 7677, such as the salt, the proof and the answer."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    decision = alter_credentials(
        MetadataImage.empty(), [], [NewCredential("user", SHA_256, 4096, salt, salted)]
    )
    kept = MetadataImage.empty().apply(decision.records).credentials["user", SHA_256]
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    said = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=%b,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=%b" % (nonce, nonce)
    )
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(kept.stored_key, said, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == kept.stored_key
    answer = base64.b64encode(hmac.digest(kept.server_key, said, "sha256"))
    assert answer == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_the_password_itself_is_not_kept(image: MetadataImage) -> None:
    kept = image.credentials["there", SHA_256]
    assert b"salted password" not in (kept.stored_key, kept.server_key)
    assert (kept.iterations, kept.salt, len(kept.stored_key)) == (4096, b"salt", 32)


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (wanted(iterations=4096), None),
        (wanted(iterations=16384, mechanism=SHA_512), None),
        (wanted(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (wanted(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (wanted(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (wanted(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (wanted(user=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (NewCredential("u", 1, 4096, b"", b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (NewCredential("u", 1, 4096, bytes(1025), b"x"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (NewCredential("u", 1, 4096, bytes(1024), b"x"), None),
        (NewCredential("u", 1, 4096, b"", bytes(SALTED_PASSWORD_SIZE_MAX)), None),
        (NewCredential("u", 1, 4096, b"", bytes(SALTED_PASSWORD_SIZE_MAX + 1)),
         ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_a_credential_that_protects_nobody_is_refused(
    image: MetadataImage, new: NewCredential, code: ErrorCode | None
) -> None:
    assert codes(image, new) == {new.user: code}


def test_a_user_is_changed_once_a_request_or_not_at_all(image: MetadataImage) -> None:
    two = [wanted("u", SHA_256), wanted("u", SHA_512), wanted("v")]
    decision = alter_credentials(image, [], two)
    assert {user: error and error.code for user, error in decision.result.items()} == {
        "u": ErrorCode.DUPLICATE_RESOURCE, "v": None,
    }
    assert image.apply(decision.records).credentials.keys() == {("there", 1), ("v", 1)}
    both = codes(image, wanted("there"), gone=("there", SHA_256))
    assert both == {"there": ErrorCode.DUPLICATE_RESOURCE}


def test_only_what_is_there_can_be_deleted(image: MetadataImage) -> None:
    missing = ErrorCode.RESOURCE_NOT_FOUND
    assert codes(image, gone=("there", SHA_512)) == {"there": missing}
    assert codes(image, gone=("nobody", SHA_256)) == {"nobody": missing}
    assert codes(image, wanted("nobody"), gone=("nobody", SHA_256)) == {"nobody": missing}
    deleted = alter_credentials(image, [("there", SHA_256)], [])
    assert image.apply(deleted.records).credentials == {}
