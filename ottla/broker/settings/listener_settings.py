"""Settings that may be set per listener, with `listener.name.<name>.` before Kafka's name.

A listener's own setting wins over the broker's, wherever the two were set: in the file or at run
time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ottla.broker.settings.declaration import (
    Long,
    Names,
    Password,
    Settings,
    SettingsError,
    setting,
)

UNLIMITED = 2**31 - 1
PREFIX = re.compile(r"listener\.name\.([^.]+)\.")
OF_MECHANISM = (
    "sasl.jaas.config", "connections.max.reauth.ms", "sasl.server.callback.handler.class",
)
"""Settings that may be set per mechanism, such as `plain.sasl.jaas.config`."""

MECHANISM_OF_PEERS = "sasl.mechanism.inter.broker.protocol"
"""The mechanism with which this broker logs in to others, on the inter-broker listener."""


class ListenerSettings(Settings):
    """How the clients of one listener authenticate."""

    sasl_enabled_mechanisms: Names = setting(
        "sasl.enabled.mechanisms", ("GSSAPI",), dynamic=True,
        help="Mechanisms that clients may log in with: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512,"
        " OAUTHBEARER."
        " Kafka's default, GSSAPI, is not served: a SASL listener has to name others.")
    sasl_jaas_config: Password | None = setting(
        "sasl.jaas.config", None, dynamic=True,
        help="A login module with its options, in Java's JAAS syntax. It has no effect without the"
        " prefix listener.name.<listener>.<mechanism>. The options of PLAIN's module are its users"
        " and their passwords.")
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size", 524_288,
        help="The largest frame, in bytes, from a client that has not authenticated.")
    connections_max_reauth_ms: Long = setting(
        "connections.max.reauth.ms", 0,
        help="How long a client may use a connection before it has to authenticate again (KIP-368);"
        " 0 means no limit. A token that expires earlier shortens this time.")
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        "sasl.oauthbearer.jwks.endpoint.url", None,
        help="Location of the keys that verify OAUTHBEARER tokens: file:/path, https://…")
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Long = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000,
        help="How long the keys of sasl.oauthbearer.jwks.endpoint.url are used before they are read"
        " again.")
    sasl_oauthbearer_expected_audience: Names = setting(
        "sasl.oauthbearer.expected.audience", (),
        help="Accepted audiences, one of which a token has to name; empty: any audience.")
    sasl_oauthbearer_expected_issuer: str | None = setting(
        "sasl.oauthbearer.expected.issuer", None, help="The required issuer of tokens.")
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        "sasl.oauthbearer.clock.skew.seconds", 30,
        help="How far the issuer's clock may be from the broker's.")
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sasl.oauthbearer.sub.claim.name", "sub",
        help="The claim of a token that names its principal.")
    ssl_keystore_location: str | None = setting(
        "ssl.keystore.location", None, dynamic=True,
        help="The file with the listener's key and certificate chain: PEM or PKCS12.")
    ssl_keystore_type: str = setting(
        "ssl.keystore.type", "JKS", dynamic=True,
        help="The key store's format: JKS (Kafka's default), PKCS12 or PEM. JKS files cannot be"
        " read: convert them to PKCS12 (keytool -importkeystore). As in Java, a PKCS12 file is also"
        " read if the type is still JKS.")
    ssl_keystore_password: Password | None = setting(
        "ssl.keystore.password", None, dynamic=True,
        help="The password of a PKCS12 file.")
    ssl_key_password: Password | None = setting(
        "ssl.key.password", None, dynamic=True,
        help="The password of an encrypted key in PEM.")
    ssl_keystore_key: Password | None = setting(
        "ssl.keystore.key", None, dynamic=True,
        help="The private key itself, in PEM, instead of in a file.")
    ssl_keystore_certificate_chain: Password | None = setting(
        "ssl.keystore.certificate.chain", None, dynamic=True,
        help="The certificate chain itself, in PEM, the listener's own certificate first.")
    ssl_truststore_location: str | None = setting(
        "ssl.truststore.location", None, dynamic=True,
        help="The file with the trusted certificates, one of which must have issued the peer's"
        " certificate.")
    ssl_truststore_type: str = setting(
        "ssl.truststore.type", "JKS", dynamic=True,
        help="The trust store's format; values as for ssl.keystore.type.")
    ssl_truststore_password: Password | None = setting(
        "ssl.truststore.password", None, dynamic=True,
        help="The password of a PKCS12 file.")
    ssl_truststore_certificates: Password | None = setting(
        "ssl.truststore.certificates", None, dynamic=True,
        help="The trusted certificates themselves, in PEM.")
    ssl_allow_dn_changes: bool = setting(
        "ssl.allow.dn.changes", False,
        help="Whether a certificate that is set on the running broker may have another"
        " distinguished name than the previous one.")
    ssl_allow_san_changes: bool = setting(
        "ssl.allow.san.changes", False,
        help="Whether a certificate that is set on the running broker may lack subject"
        " alternative names of the previous one.")
    ssl_client_auth: str = setting(
        "ssl.client.auth", "none", one_of=("required", "requested", "none"), dynamic=True,
        help="Whether clients have to present a certificate. With `requested`, clients without a"
        " certificate are User:ANONYMOUS. A SASL_SSL listener asks for a certificate only if this"
        " setting is given with the prefix of that listener, listener.name.<listener>.")
    ssl_enabled_protocols: Names = setting(
        "ssl.enabled.protocols", ("TLSv1.2", "TLSv1.3"), dynamic=True,
        help="Versions of TLS.")
    ssl_cipher_suites: Names = setting(
        "ssl.cipher.suites", (), dynamic=True,
        help="Cipher suites by Java's or OpenSSL's names; empty: OpenSSL's choice. The suites of"
        " TLS 1.3 cannot be selected.")
    ssl_principal_mapping_rules: str = setting(
        "ssl.principal.mapping.rules", "DEFAULT",
        help="How the subject of a client's certificate becomes its principal:"
        " RULE:pattern/replacement/[LU], the first matching rule applies; DEFAULT is the subject.")
    ssl_endpoint_identification_algorithm: str = setting(
        "ssl.endpoint.identification.algorithm", "https", dynamic=True,
        help="Whether a broker that connects to another one checks the host name in the other's"
        " certificate; empty disables the check.")


DYNAMIC_OF_LISTENERS = frozenset(
    name for name, declared in ListenerSettings.declared.items() if declared.dynamic
)
"""Settings of listeners that can be changed on a running broker. Later connections and logins use
the new values."""


class ListenerLimits(Settings):
    """How many clients one listener accepts, in addition to the broker's limits (KIP-402, KIP-612);
    these settings need the listener's prefix."""

    max_connections: int = setting(
        "max.connections", UNLIMITED, at_least=1, help="Maximum connections of this listener.")
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate", UNLIMITED, at_least=1,
        help="Maximum connections per second to this listener.")


def listener_limits(
    listeners: Iterable[str], texts: Mapping[str, str]
) -> dict[str, ListenerLimits]:
    """The limits of each listener by its name. Raises SettingsError."""
    limits = {}
    for listener in listeners:
        prefix = f"listener.name.{listener.lower()}."
        own = {
            name: texts[prefix + name] for name in ListenerLimits.declared if prefix + name in texts
        }
        try:
            limits[listener] = ListenerLimits(own)
        except SettingsError as error:
            problem = str(error).removeprefix(f"{error.name}: ")
            raise SettingsError(prefix + error.name, problem) from error
    return limits


def for_listener(listener: str, texts: Mapping[str, str]) -> dict[str, str]:
    """The properties for one listener: the listener's own properties override the broker's."""
    prefix = f"listener.name.{listener.lower()}."
    shared = {name: text for name, text in texts.items() if name in ListenerSettings.declared}
    own = {name[len(prefix) :]: text for name, text in texts.items() if name.startswith(prefix)}
    return {**shared, **own}


def for_mechanism(mechanism: str, texts: Mapping[str, str]) -> dict[str, str]:
    """A listener's properties for one of its mechanisms."""
    prefix = f"{mechanism.lower()}."
    own = {name: texts[prefix + name] for name in OF_MECHANISM if prefix + name in texts}
    # Kafka ignores a server's JAAS configuration without a mechanism prefix.
    return {**{k: v for k, v in texts.items() if k != "sasl.jaas.config"}, **own}


def bare_name(name: str) -> str:
    """A property's name without the prefixes of listener and mechanism."""
    bare = PREFIX.sub("", name)
    if bare != name:
        for each in OF_MECHANISM:
            if bare.endswith(f".{each}"):
                return each
    return bare


def is_dynamic(name: str) -> bool:
    """Whether a property, with its listener's prefix or without, can be changed at run time."""
    bare = bare_name(name)
    return bare in DYNAMIC_OF_LISTENERS or (bare != name and bare in ListenerLimits.declared)


def is_secret(name: str) -> bool:
    """Whether a property of listeners is a secret."""
    setting = ListenerSettings.declared.get(bare_name(name))
    return setting is not None and setting.sensitive


def idle(names: Iterable[str], protocols: Mapping[str, str]) -> list[str]:
    """The settings of listeners that have no effect, since no listener uses them.

    `protocols` has the security protocol of each listener.
    """
    of = {listener.lower(): protocol for listener, protocol in protocols.items()}
    wrong = []
    for name in names:
        match = PREFIX.match(name)
        bare = bare_name(name)
        if match is None and bare not in ListenerSettings.declared:
            continue
        if match is not None and bare in ListenerLimits.declared and match[1] in of:
            continue
        concerned = of.values() if match is None else [of.get(match[1], "")]
        if (
            bare not in {*ListenerSettings.declared, *OF_MECHANISM}
            or not any(_counts(bare, protocol) for protocol in concerned)
            or bare == "sasl.jaas.config" in (name, PREFIX.sub("", name))
        ):
            wrong.append(name)
    return wrong


def _counts(name: str, protocol: str) -> bool:
    """Whether a setting applies to listeners of this protocol."""
    if name.startswith("ssl."):
        return protocol in ("SSL", "SASL_SSL")
    return protocol in ("SASL_PLAINTEXT", "SASL_SSL")
