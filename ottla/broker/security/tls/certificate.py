"""What a broker has to know about its own certificates: the subject, the names and the expiry."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ottla.broker.security.tls.material import blocks
from ottla.broker.security.tls.names import elements, subject_of
from ottla.wire.wording import counted

SOON = timedelta(days=30)
"""How long before a certificate's expiry the broker warns."""
EXTENSIONS = 0xA3
ALTERNATIVE_NAMES = b"\x55\x1d\x11"
"""The object identifier 2.5.29.17 of the subject alternative names."""
NAME_KINDS = {0x81: "email", 0x82: "DNS", 0x86: "URI"}
ADDRESS = 0x87
UTC_TIME = 0x17


@dataclass(frozen=True)
class Certificate:
    """One X.509 certificate."""

    subject: str
    names: frozenset[str]
    """The subject alternative names, such as `DNS:example.org` or `IP:192.0.2.1`."""
    ends: datetime

    @classmethod
    def parse(cls, der: bytes) -> Certificate:
        """Read a certificate in DER. Raises ValueError."""
        try:
            _, body, _ = next(elements(der))
            _, signed, _ = next(elements(body))
            fields = [each for each in elements(signed) if each[0] != 0xA0]
            _, (tag, end, _) = elements(fields[3][1])
            extensions = [content for tag, content, _ in fields if tag == EXTENSIONS]
            names = frozenset(name for each in extensions for name in _names(each))
            return cls(subject_of(der), names, _time(tag, end.decode("ascii")))
        except (StopIteration, IndexError) as error:
            raise ValueError("a field of the certificate is missing") from error

    def warning(self, now: datetime) -> str | None:
        """A warning if the certificate has expired or will expire soon; otherwise None."""
        left = self.ends - now
        if left > SOON:
            return None
        when = self.ends.strftime("%Y-%m-%d %H:%M UTC")
        if left <= timedelta(0):
            return f"the certificate {self.subject} has expired on {when}: clients refuse it"
        return f"the certificate {self.subject} expires in {counted(left.days, 'day')}, on {when}"

    def __str__(self) -> str:
        return f"{self.subject}, valid until {self.ends:%Y-%m-%d %H:%M} UTC"


def chain_of(pem: str) -> list[Certificate]:
    """The certificates of a PEM text in their order. Raises ValueError."""
    return [
        Certificate.parse(base64.b64decode(body))
        for kind, _, body in blocks(pem) if "CERTIFICATE" in kind
    ]


def _time(tag: int, text: str) -> datetime:
    if tag == UTC_TIME:                     # a year of two digits is between 1950 and 2049
        text = ("19" if int(text[:2]) >= 50 else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _names(extensions: bytes) -> Iterator[str]:
    for _, listed, _ in elements(extensions):
        for _, extension, _ in elements(listed):
            parts = list(elements(extension))
            if parts[0][1] != ALTERNATIVE_NAMES:
                continue
            for _, names, _ in elements(parts[-1][1]):
                for tag, value, _ in elements(names):
                    yield _name(tag, value)


def _name(tag: int, value: bytes) -> str:
    if tag == ADDRESS and len(value) in (4, 16):
        return f"IP:{ipaddress.ip_address(value)}"
    if tag in NAME_KINDS:
        return f"{NAME_KINDS[tag]}:{value.decode('latin-1')}"
    return f"{tag:x}:{value.hex()}"
