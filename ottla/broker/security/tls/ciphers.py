"""Translates Java's names of cipher suites, used in Kafka's settings, to OpenSSL's."""

from __future__ import annotations

import re

from ottla.broker.settings.declaration import SettingsError

OF_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
SUITE = re.compile(r"TLS_(?:((?:(?!_WITH_)\w)+)_)?WITH_(\w+)")


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a TLS 1.2 suite; OpenSSL's own names are kept. Raises SettingsError."""
    match = SUITE.fullmatch(suite)
    if match is None:
        if suite.startswith("TLS_"):
            raise SettingsError(
                "ssl.cipher.suites", f"{suite} is not a cipher suite of TLS 1.2 or 1.3"
            )
        return suite
    exchange, cipher = match.groups()
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256")
    cipher = cipher.replace("_CBC", "").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    parts = [] if exchange == "RSA" else [exchange or ""]
    return "_".join([*parts, cipher]).replace("_", "-")
