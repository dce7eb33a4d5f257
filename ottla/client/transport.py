"""Makes connections: TCP, then TLS, then the SASL login.

`Security` holds a client's security settings, which it reads from Kafka's client properties.
`open_transport` returns a connected socket, encrypted and logged in as these settings require.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.client.addresses import Address, show_address
from ottla.client.errors import ClientError, TimedOut, Unreachable, reason_of

if TYPE_CHECKING:
    import ssl

    from ottla.client.sasl import ClientMechanism

RETRY_SECONDS = 0.1
"""How long to wait after a refused connection: a broker that is starting listens soon."""
HTTP_SECONDS = 1.0
"""How long an HTTP server has for its answer."""
CLOSED = select.POLLHUP | select.POLLERR | select.POLLNVAL | getattr(select, "POLLRDHUP", 0)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
UNNAMED = ("", "none")
"""Values of ssl.endpoint.identification.algorithm that disable the check of the host name, in Java
and in librdkafka."""
UNTRUSTED = (7, 18, 19, 20, 21)
"""OpenSSL's codes for an untrusted issuer. Code 7, a wrong signature, occurs if the untrusted
issuer has the same name as a trusted one."""
PEM_ONLY = (
    "only PEM files can be read; to convert a PKCS #12 file: openssl pkcs12 -in store.p12"
    " -out store.pem"
)


@dataclass(frozen=True)
class Security:
    """How to protect connections: the protocol, the login, the TLS certificates."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Security:
        """Read `security.protocol` and the related settings, under Java's names or librdkafka's.

        Raises ClientError.
        """
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise ClientError(
                f"security.protocol={protocol} is not one of {', '.join(PROTOCOLS)}"
            )
        tls = _context(properties) if protocol.endswith("SSL") else None
        if not protocol.startswith("SASL"):
            return cls(protocol, tls=tls)
        from ottla.client.jaas import JaasError, parse_jaas
        from ottla.client.sasl import client_mechanism

        mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI"))
        if "sasl.username" in properties and "sasl.jaas.config" not in properties:
            user, password = properties["sasl.username"], properties.get("sasl.password", "")
            client_mechanism(mechanism, user, password)     # raises if the mechanism is unknown
            return cls(protocol, mechanism, user, password, {}, tls)
        try:
            options = parse_jaas(properties.get("sasl.jaas.config", "")).options
        except JaasError as error:
            raise ClientError(f"sasl.jaas.config: {error}") from error
        token = {"tokenauth": "true"} if options.get("tokenauth") == "true" else {}
        user, password = options.get("username", ""), options.get("password", "")
        client_mechanism(mechanism, user, password)     # raises if the mechanism is unknown
        return cls(protocol, mechanism, user, password, token, tls)

    @property
    def principal(self) -> str:
        """The user name that brokers have for this client. "" if only the brokers know it, as with
        a certificate or a delegation token."""
        if self.protocol == "PLAINTEXT":
            return "ANONYMOUS"
        return "" if self.extensions else self.user

    def login(self) -> ClientMechanism | None:
        """The login exchange; None without SASL."""
        if not self.mechanism:
            return None
        from ottla.client.sasl import client_mechanism

        return client_mechanism(self.mechanism, self.user, self.password, self.extensions)


UNPROTECTED = Security()


def check_readable(files: Mapping[str, str | None]) -> None:
    """Raises ClientError for a file that cannot be read, with the setting or flag that names the
    file. The errors of `ssl` lack the path."""
    for name, path in files.items():
        try:
            if path:
                open(path, "rb").close()
        except OSError as error:
            raise ClientError(f"{name}: {reason_of(error)}") from error


def _set_one(properties: Mapping[str, str], *names: str) -> str:
    """The first of these properties that is set; the last one if none is."""
    return next((name for name in names if name in properties), names[-1])


def _context(properties: Mapping[str, str]) -> ssl.SSLContext:
    import ssl  # the import takes 15 ms, which commands without TLS save

    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    named = properties.get("ssl.endpoint.identification.algorithm", "https") not in UNNAMED
    context.check_hostname = named
    trusted = _set_one(properties, "ssl.truststore.location", "ssl.ca.location")
    inline = properties.get("ssl.truststore.certificates", properties.get("ssl.ca.pem"))
    chained = _set_one(properties, "ssl.keystore.location", "ssl.certificate.location")
    trust, chain = properties.get(trusted), properties.get(chained)
    key = properties.get("ssl.key.location")
    check_readable({trusted: trust, chained: chain, "ssl.key.location": key})
    try:
        if trust or inline:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = named
            context.load_verify_locations(cafile=trust or None, cadata=inline or None)
        if chain:
            context.load_cert_chain(chain, key, properties.get("ssl.key.password"))
    except (OSError, ValueError) as error:
        raise ClientError(
            f"the certificates in the ssl.* settings cannot be loaded: {error} ({PEM_ONLY})"
        ) from error
    return context


def open_transport(
    address: Address, security: Security, seconds: float, *, retry_refused: bool = True
) -> socket.socket:
    """Returns a connected socket that has logged in. With `retry_refused`, retries a refused
    connection until `seconds` have passed.

    Raises Unreachable with the address and the reason, TimedOut if the login is not answered,
    ClientError if it is refused.
    """
    made = _connect(address, seconds, retry_refused)
    try:
        if security.tls is not None:
            made = security.tls.wrap_socket(made, server_hostname=address[0])
        if (login := security.login()) is not None:
            from ottla.client.login import log_in

            log_in(made, login, security, show_address(address))
    except Unreachable as failed:
        made.close()
        raise Unreachable(f"{failed}{perhaps_another(security.protocol)}") from failed
    except TimedOut:
        made.close()
        raise
    except OSError as failed:
        made.close()
        told = f"{show_address(address)}: {network_reason(failed)}"
        if getattr(failed, "verify_code", 0) in UNTRUSTED:
            told += "; set ssl.truststore.location to the file of certificates to trust"
        elif security.tls is not None and not hasattr(failed, "verify_message"):
            told += (
                "; perhaps this port has no TLS: this client has"
                f" security.protocol={security.protocol}")
        raise Unreachable(told) from failed
    except BaseException:
        made.close()
        raise
    return made


def perhaps_another(protocol: str) -> str:
    """Returns a hint for the message about a broker that closes a connection before its first
    answer."""
    wanted = {
        "PLAINTEXT": "TLS or a login", "SSL": "a login or a client certificate",
        "SASL_PLAINTEXT": "TLS", "SASL_SSL": "",
    }[protocol]
    told = f"; perhaps it expects {wanted}: this client has security.protocol={protocol}"
    return told if wanted else ""


def _connect(address: Address, seconds: float, retry_refused: bool) -> socket.socket:
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            made = socket.create_connection(address, max(left, 0.001))
        except ConnectionRefusedError as refused:
            if not retry_refused or left <= RETRY_SECONDS:
                raise Unreachable(f"{show_address(address)}: connection refused") from refused
            time.sleep(RETRY_SECONDS)
            continue
        except (TimeoutError, OSError) as failed:
            raise Unreachable(f"{show_address(address)}: {network_reason(failed)}") from failed
        with contextlib.suppress(OSError):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def speaks_http(address: Address, security: Security, seconds: float) -> bool:
    """Whether an HTTP server listens at an address that does not answer Kafka's requests. An HTTP
    server waits for the end of a line, so this sends a line, on a separate connection.

    A process asks each address only once: a slow broker would log every such connection.
    """
    if address not in _SPEAKS_HTTP:
        _SPEAKS_HTTP[address] = False
        unnamed = replace(security, mechanism="")       # TLS, but no login
        with (contextlib.suppress(ClientError, OSError),
              open_transport(address, unnamed, seconds, retry_refused=False) as made):
            made.settimeout(seconds)
            made.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            _SPEAKS_HTTP[address] = made.recv(5) == b"HTTP/"
    return _SPEAKS_HTTP[address]


_SPEAKS_HTTP: dict[Address, bool] = {}


def is_closed(made: socket.socket) -> bool:
    """Whether either side has closed a socket, even if received bytes have not been read yet."""
    if made.fileno() < 0:
        return True
    asked = select.poll()
    asked.register(made, CLOSED)
    return any(event & CLOSED for _, event in asked.poll(0))


def network_reason(error: OSError) -> str:
    """The reason of an operating system's error, or of a TLS error, in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved"
    if reason := getattr(error, "reason", None):        # only ssl.SSLError has this attribute
        text = getattr(error, "verify_message", None)
        return f"TLS: {reason.lower().replace('_', ' ')}{f': {text}' if text else ''}"
    return (error.strerror or str(error)).lower()
