"""Makes the standard library's `ssl` contexts from a listener's `ssl.…` settings, for both sides of
a connection.
"""

from __future__ import annotations

import hashlib
import logging
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.broker.security.tls.certificate import Certificate, chain_of
from ottla.broker.security.tls.ciphers import OF_TLS_1_3, openssl_name
from ottla.broker.security.tls.material import (
    TYPES,
    from_pkcs12,
    is_pem,
    load_key,
    load_trust,
    pem_blocks,
    read_store,
)
from ottla.broker.security.tls.names import PrincipalRules, subject_of
from ottla.broker.settings.declaration import SettingsError

if TYPE_CHECKING:
    from ottla.broker.settings.listener_settings import ListenerSettings

log = logging.getLogger("ottla.tls")

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
VERIFY = {
    "required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE,
}

HANDSHAKE_FLIGHTS = 3
"""A handshake is complete after each side has had at most this many turns to send."""


class TlsSettings:
    """TLS of one listener, with its current settings and files. Raises SettingsError."""

    def __init__(self, settings: ListenerSettings) -> None:
        self.rules = PrincipalRules(settings.ssl_principal_mapping_rules)
        trust = _trust(settings)
        key_setting, key = _key(settings)
        self.digest = hashlib.sha256(f"{key}\0{trust}".encode()).digest()
        """The digest of the key, the chain and the trusted certificates."""
        password = settings.ssl_key_password
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (self.server, self.client):
            _restrict(context, settings)
            load_key(context, key_setting, key, password)
            if trust is not None:
                load_trust(context, *trust)
        self.client.check_hostname = settings.ssl_endpoint_identification_algorithm != ""
        if trust is None:
            self.client.load_default_certs()
        self.server.verify_mode = VERIFY[settings.ssl_client_auth]
        if self.server.verify_mode != ssl.CERT_NONE and trust is None:
            raise SettingsError(
                "ssl.client.auth",
                f"with {settings.ssl_client_auth!r}, the broker needs the certificates of the"
                " authorities that sign clients' certificates: set ssl.truststore.location or"
                " ssl.truststore.certificates",
            )

        self.key_setting = key_setting
        self.chain = _chain(key_setting, key)
        self.allow_dn_changes = settings.ssl_allow_dn_changes
        self.allow_san_changes = settings.ssl_allow_san_changes

    @property
    def certificate(self) -> Certificate:
        """The listener's own certificate."""
        return self.chain[0]

    def check_identity(self, former: Certificate) -> None:
        """Raise SettingsError if clients that accepted the former certificate might refuse this
        certificate, since it has another subject or lacks names."""
        mine = self.certificate
        if not self.allow_dn_changes and mine.subject.lower() != former.subject.lower():
            raise SettingsError(
                self.key_setting,
                f"the certificate's distinguished name would change from {former.subject} to"
                f" {mine.subject}; to allow this, set ssl.allow.dn.changes=true",
            )
        lost = former.names - mine.names
        if not self.allow_san_changes and lost:
            raise SettingsError(
                self.key_setting,
                "the new certificate lacks these subject alternative names of the previous one:"
                f" {', '.join(sorted(lost))}; to allow this, set ssl.allow.san.changes=true",
            )

    def accept(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        """The TLS object for the server's side of a connection."""
        return self.server.wrap_bio(incoming, outgoing, server_side=True)

    def connect(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, host: str
    ) -> ssl.SSLObject:
        """The TLS object for the client's side of a connection to `host`."""
        return self.client.wrap_bio(incoming, outgoing, server_hostname=host)

    def check_own_certificate(self, listener: str) -> None:
        """Raise SettingsError if two brokers with these settings would refuse each other. For
        example, the certificate has expired, or no authority in the trust store has signed it."""
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = self.accept(to_server, to_client)
        context, before = self.client, self.client.check_hostname
        context.check_hostname = False      # each broker's certificate names its own host
        try:
            client = context.wrap_bio(to_client, to_server)
            for _ in range(HANDSHAKE_FLIGHTS):
                for side in (client, server):
                    with suppress(ssl.SSLWantReadError):
                        side.do_handshake()
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", "") or error.reason
            raise SettingsError(
                "ssl.truststore.location",
                f"brokers would refuse each other's certificates on listener {listener}:"
                f" {reason}. The trust store must contain the authority that signed the"
                " certificate in ssl.keystore.…",
            ) from error
        finally:
            context.check_hostname = before

    def principal(self, tls: ssl.SSLObject) -> str | None:
        """The principal of the client's certificate; None if there is none. Raises LookupError."""
        certificate = tls.getpeercert(binary_form=True)
        return None if certificate is None else "User:" + self.rules.name(subject_of(certificate))


def context_of_client(settings: ListenerSettings) -> ssl.SSLContext:
    """The context of a client with these settings; without a key store it presents no certificate.
    Raises SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, settings)
    if settings.ssl_keystore_location is not None or settings.ssl_keystore_key is not None:
        load_key(context, *_key(settings), settings.ssl_key_password)
    trust = _trust(settings)
    if trust is None:
        context.load_default_certs()
    else:
        load_trust(context, *trust)
    context.check_hostname = settings.ssl_endpoint_identification_algorithm != ""
    return context


def chain_of_client(settings: ListenerSettings) -> list[Certificate]:
    """The certificates that a client with these settings presents, its own first. Raises
    SettingsError."""
    if settings.ssl_keystore_location is None and settings.ssl_keystore_key is None:
        return []
    return _chain(*_key(settings))


def _restrict(context: ssl.SSLContext, settings: ListenerSettings) -> None:
    versions = settings.ssl_enabled_protocols
    if unknown := [each for each in versions if each not in VERSIONS]:
        raise SettingsError(
            "ssl.enabled.protocols", f"{unknown[0]} is not supported, only TLSv1.2 and TLSv1.3 are"
        )
    if not versions:
        raise SettingsError("ssl.enabled.protocols", "names no protocol")
    enabled = {VERSIONS[each] for each in versions}
    suites = settings.ssl_cipher_suites
    if suites:
        newer = [each for each in suites if each in OF_TLS_1_3]
        older = [each for each in suites if each not in OF_TLS_1_3]
        try:
            context.set_ciphers(":".join(map(openssl_name, older)) if older else "DEFAULT")
        except ssl.SSLError as error:
            raise SettingsError(
                "ssl.cipher.suites", f"OpenSSL knows none of {', '.join(older)}"
            ) from error
        if not newer:
            enabled.discard(ssl.TLSVersion.TLSv1_3)
        elif len(newer) < len(OF_TLS_1_3):
            log.warning("ssl.cipher.suites: all suites of TLS 1.3 stay enabled, not only the listed"
                        " suites")
        if not older:
            enabled.discard(ssl.TLSVersion.TLSv1_2)
        if not enabled:
            raise SettingsError(
                "ssl.cipher.suites", "no suite belongs to a protocol in ssl.enabled.protocols"
            )
    context.minimum_version, context.maximum_version = min(enabled), max(enabled)
    # With renegotiation a client could make the broker repeat the expensive half of a handshake
    # again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION


def _key(settings: ListenerSettings) -> tuple[str, str]:
    """The name of the setting that has the key, and the key with its chain as PEM."""
    inline = settings.ssl_keystore_key
    if inline is not None:
        if settings.ssl_keystore_certificate_chain is None:
            raise SettingsError(
                "ssl.keystore.certificate.chain", "has to be set together with ssl.keystore.key"
            )
        chain_setting = "ssl.keystore.certificate.chain"
        chain = pem_blocks(chain_setting, settings.ssl_keystore_certificate_chain)
        return "ssl.keystore.key", pem_blocks("ssl.keystore.key", inline) + chain
    setting = "ssl.keystore.location"
    if settings.ssl_keystore_location is None:
        raise SettingsError(
            setting, "has to be set: a listener with SSL or SASL_SSL needs a certificate"
        )
    return setting, _store(
        setting, settings.ssl_keystore_location, settings.ssl_keystore_type,
        settings.ssl_keystore_password,
    )


def _chain(setting: str, key: str) -> list[Certificate]:
    try:
        return chain_of(key)
    except ValueError as error:
        raise SettingsError(setting, f"the certificate cannot be read: {error}") from error


def _trust(settings: ListenerSettings) -> tuple[str, str] | None:
    """The name of the setting that has the trusted certificates, and the certificates as PEM."""
    inline = settings.ssl_truststore_certificates
    if inline is not None:
        setting = "ssl.truststore.certificates"
        return setting, pem_blocks(setting, inline)
    location = settings.ssl_truststore_location
    if location is None:
        return None
    setting = "ssl.truststore.location"
    return setting, _store(
        setting, location, settings.ssl_truststore_type, settings.ssl_truststore_password
    )


def _store(setting: str, path: str, kind: str, password: str | None) -> str:
    """A store as PEM. As in Java, a PKCS12 file is accepted if the type is JKS."""
    if kind.upper() not in TYPES:
        name = setting.replace("location", "type")
        raise SettingsError(name, f"{kind!r} is not supported, only {', '.join(TYPES)} are")
    data = read_store(setting, path)
    if is_pem(data):
        return pem_blocks(setting, data.decode("latin-1"))
    if kind.upper() == "PEM":
        raise SettingsError(setting, f"{path} is not a PEM file, but the store's type is PEM")
    return from_pkcs12(setting, data, password)
