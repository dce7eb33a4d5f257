"""Certificates for tests: an authority and the certificates that it signs, as PEM or PKCS12
files."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)


class Authority:
    """A certificate authority; its files are in `directory`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = (
            _builder(self.name, self.name, self.key.public_key(), -DAY, DAY)
            .add_extension(x509.BasicConstraints(True, None), True)
            .sign(self.key, hashes.SHA256())
        )
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self.certificate.public_bytes(Encoding.PEM))

    def issue(
        self, name: str, begins: dt.timedelta = -DAY, ends: dt.timedelta = DAY,
        password: str = "", subject: x509.Name | None = None, called: str = "",
        hosts: Sequence[str] = ("localhost",),
    ) -> Path:
        """Issue a certificate for `hosts` and 127.0.0.1; returns the PEM file with it and its key.
        `called` is its common name, by default `name`."""
        key = ec.generate_private_key(ec.SECP256R1())
        who = subject or x509.Name([
            x509.NameAttribute(NameOID.COUNTRY_NAME, "SI"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests, Inc"),
            x509.NameAttribute(NameOID.COMMON_NAME, called or name),
        ])  # fmt: skip
        names = [*map(x509.DNSName, hosts), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        made = (
            _builder(who, self.name, key.public_key(), begins, ends)
            .add_extension(x509.SubjectAlternativeName(names), False)
            .sign(self.key, hashes.SHA256())
        )
        self.newest = key, made
        kept: KeySerializationEncryption = NoEncryption()
        if password:
            kept = BestAvailableEncryption(password.encode())
        path = self.directory / f"{name}.pem"
        path.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, kept)
            + made.public_bytes(Encoding.PEM)
        )
        return path

    def issue_pkcs12(self, name: str, password: str) -> Path:
        """Issue a certificate; returns a PKCS12 file with it, its key, and the authority's
        certificate."""
        self.issue(name)
        key, made = self.newest
        path = self.directory / f"{name}.p12"
        path.write_bytes(serialize_key_and_certificates(
            name.encode(), key, made, [self.certificate],
            BestAvailableEncryption(password.encode()),
        ))  # fmt: skip
        return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey,
    begins: dt.timedelta, ends: dt.timedelta,
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
    )
