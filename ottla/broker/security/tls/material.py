"""Keys, certificate chains and trusted certificates: PEM text, PEM files, PKCS12 files.

OpenSSL reads keys only from files; keys from elsewhere go through a file in memory, so that no key
is written to a disk.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.broker.settings.declaration import SettingsError
from ottla.wire.environment import pip_install

PEM_KIND = re.compile("BEGIN ([A-Z0-9 ]+)")
PEM_CONTENT = re.compile(r"\s*+((?:[A-Za-z-]++: [^\n]*+\n)*+)([A-Za-z0-9+/=\s]++)")
JKS_START = b"\xfe\xed\xfe\xed"
SIZE_MAX = 4 << 20
TYPES = ("JKS", "PKCS12", "PEM")


def read_store(setting: str, path: str) -> bytes:
    """The content of a key store or trust store. Raises SettingsError."""
    try:
        # The path may lead to anything: opening a pipe would block the broker, and reading a device
        # might never end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SettingsError(setting, f"{path} is not a file")
            data = file.read(SIZE_MAX + 1)
    except ValueError as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(setting, f"{path!r} is not a path: {error}") from error
    except OSError as error:
        raise SettingsError(setting, f"{path} cannot be read: {error.strerror}") from error
    if len(data) > SIZE_MAX:
        raise SettingsError(setting, f"{path} has more than {SIZE_MAX} bytes")
    if data.startswith(JKS_START):
        raise SettingsError(
            setting,
            f"{path} is a JKS store, which Ottla does not read. Convert the store to PKCS12, and"
            " set the path and the type of the new store:"
            f" keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12"
            " -deststoretype PKCS12",
        )
    return data


def is_pem(data: bytes) -> bool:
    """Whether a store is text that contains PEM blocks."""
    return b"-----BEGIN " in data


def blocks(text: str) -> Iterator[tuple[str, str, str]]:
    """The kind, the headers and the base64 of each PEM block."""
    parts = text.split("-----")
    for begin, content, end in zip(parts, parts[1:], parts[2:], strict=False):
        kind = PEM_KIND.fullmatch(begin)
        matched = PEM_CONTENT.fullmatch(content) if kind and end == f"END {kind[1]}" else None
        if kind and matched:
            yield kind[1], matched[1], matched[2]


def pem_blocks(setting: str, text: str) -> str:
    """The PEM blocks of a text, with line breaks restored.

    In a properties file they are often one long line. Raises SettingsError if the text has none.
    """
    normalized = []
    for kind, headers, body in blocks(text):
        packed = "".join(body.split())
        lines = [packed[at : at + 64] for at in range(0, len(packed), 64)]
        head = f"{headers}\n" if headers else ""
        begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
        normalized.append("\n".join([begin, head + lines[0], *lines[1:], end]))
    if not normalized:
        raise SettingsError(
            setting,
            "contains no PEM block, which is base64 text between the lines -----BEGIN …----- and"
            " -----END …-----",
        )
    return "\n".join(normalized) + "\n"


def from_pkcs12(setting: str, data: bytes, password: str | None) -> str:
    """Key, chain and trusted certificates of a PKCS12 store as PEM. Raises SettingsError."""
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError as error:
        raise SettingsError(
            setting,
            "a PKCS12 store needs the package cryptography. Install the package"
            f" ({pip_install('cryptography')}), or convert the store (openssl pkcs12 -in store.p12"
            " -out store.pem) and set the type PEM",
        ) from error
    try:
        store = load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise SettingsError(
            setting, f"is not a PKCS12 store, or the password is wrong: {error}"
        ) from error
    parts = []
    if store.key is not None:
        parts.append(store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    certificates = [each for each in (store.cert, *store.additional_certs) if each is not None]
    parts += [each.certificate.public_bytes(Encoding.PEM) for each in certificates]
    return b"".join(parts).decode()


@contextmanager
def file_in_memory(text: str) -> Iterator[str]:
    """The path of a file with this text. The file is in memory, and the path is valid in this
    process only."""
    descriptor = os.memfd_create("ottla-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def load_key(context: ssl.SSLContext, setting: str, pem: str, password: str | None) -> None:
    """Load the certificate chain and the key of a PEM text into a context. Raises
    SettingsError."""

    def ask() -> str:
        if password is None:
            raise SettingsError(setting, "the key is encrypted: set ssl.key.password")
        return password

    with file_in_memory(pem) as path:
        try:
            context.load_cert_chain(path, password=ask)
        except ssl.SSLError as error:
            raise SettingsError(
                setting,
                "the certificate and the key cannot be loaded: the key does not belong to the"
                " certificate, one of them is missing, or the password is wrong"
                f" ({error.reason or error})",
            ) from error


def load_trust(context: ssl.SSLContext, setting: str, pem: str) -> None:
    """Make a context trust the certificates of a PEM text. Raises SettingsError."""
    certificates = "".join(
        f"-----BEGIN {kind}-----\n{headers}{body.strip()}\n-----END {kind}-----\n"
        for kind, headers, body in blocks(pem) if "CERTIFICATE" in kind
    )
    if not certificates:
        raise SettingsError(setting, "the trust store contains no certificate")
    try:
        context.load_verify_locations(cadata=certificates)
    except ssl.SSLError as error:
        raise SettingsError(
            setting, f"the certificates cannot be loaded: {error.reason}"
        ) from error
