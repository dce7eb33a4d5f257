"""Reading certificates and stores: names as Java writes them, mapping rules, clear errors."""

from __future__ import annotations

import base64
import re
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from ottla.broker.security.tls.certificate import Certificate, chain_of
from ottla.broker.security.tls.ciphers import openssl_name
from ottla.broker.security.tls.context import TlsSettings
from ottla.broker.security.tls.names import PrincipalRules, subject_of
from ottla.broker.security.tls.zookeeper import zookeeper_context
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.listener_settings import ListenerSettings
from tests.broker.security.authority import DAY, Authority

PEM = re.compile("-----BEGIN CERTIFICATE-----([^-]+)")

ORG, CN, EMAIL = NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME, NameOID.EMAIL_ADDRESS


@pytest.mark.parametrize(
    ("attributes", "subject"),
    [
        ([(ORG, "A"), (CN, "b")], "CN=b,O=A"),
        # As returned by javax.security.auth.x500.X500Principal.getName().
        ([(ORG, 'a,b=c+d<e>f#g;h"i\\j')], 'O=a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j'),
        ([(CN, " a b ")], "CN=\\ a b\\ "),
        ([(CN, "č")], "CN=č"),
        ([(EMAIL, "a@b.c"), (CN, "b")], "CN=b,1.2.840.113549.1.9.1=#16056140622e63"),
    ],
)
def test_a_subject_is_written_as_java_writes_it(
    tmp_path: Path, attributes: list[tuple[x509.ObjectIdentifier, str]], subject: str
) -> None:
    authority = Authority(tmp_path)
    name = x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])
    authority.issue("x", subject=name)
    assert subject_of(authority.newest[1].public_bytes(Encoding.DER)) == subject


def test_a_certificate_that_is_cut_off_is_an_error_and_nothing_else(tmp_path: Path) -> None:
    data = Authority(tmp_path).certificate.public_bytes(Encoding.DER)
    for size in range(len(data)):
        with pytest.raises((ValueError, StopIteration)):
            subject_of(data[:size])


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),.*$/$1/", "CN=a,O=b", "a"),
        ("RULE:^CN=(.*?),.*$/$1/U", "CN=a,O=b", "A"),
        ("RULE:^CN=(.*?),.*$/$1@X/L , DEFAULT", "CN=A,O=b", "a@x"),
        ("RULE:^OU=.*$/x/,DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "CN=Host.Example,O=b", "host.example"),
        (r"RULE:^CN=(\w+)\/(\w+),.*$/$2\/$1/", "CN=a/b,O=c", "b/a"),
        ("RULE:CN=a/x/", "CN=a,O=b", None),     # a rule must match the whole subject
    ],
)
def test_principals_follow_from_subjects_by_the_first_rule_that_matches(
    rules: str, subject: str, name: str | None
) -> None:
    if name is None:
        with pytest.raises(LookupError):
            PrincipalRules(rules).name(subject)
    else:
        assert PrincipalRules(rules).name(subject) == name


@pytest.mark.parametrize("rules", ["default", "RULE:a/b", "RULE:(/b/", "RULE:a/b/X", "x,DEFAULT"])
def test_a_rule_that_is_none_is_an_error(rules: str) -> None:
    with pytest.raises(SettingsError):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_javas_names_of_cipher_suites_are_understood(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def settings(authority: Authority, **more: object) -> ListenerSettings:
    given = {"ssl.keystore.location": authority.issue("server"), "ssl.keystore.type": "PEM"}
    given |= {name.replace("_", "."): value for name, value in more.items()}
    return ListenerSettings({name: str(value) for name, value in given.items()})


def problem(found: ListenerSettings) -> str:
    with pytest.raises(SettingsError) as raised:
        TlsSettings(found)
    return str(raised.value)


def test_what_cannot_be_used_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    jks = tmp_path / "old.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    assert f"keytool -importkeystore -srckeystore {jks}" in problem(
        settings(authority, ssl_keystore_location=jks, ssl_keystore_type="JKS"))
    assert problem(ListenerSettings({})).startswith("ssl.keystore.location: has to be set")
    assert "ssl.truststore" in problem(settings(authority, ssl_client_auth="required"))
    assert "SSLv3" in problem(settings(authority, ssl_enabled_protocols="SSLv3"))
    assert "BCFKS" in problem(settings(authority, ssl_keystore_type="BCFKS"))
    assert "no suite belongs to a protocol in" in problem(settings(
        authority, ssl_enabled_protocols="TLSv1.3",
        ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"))
    assert "knows none" in problem(settings(authority, ssl_cipher_suites="TLS_A_WITH_B"))
    store = authority.issue_pkcs12("p", "right")
    assert "the password is wrong" in problem(
        settings(authority, ssl_keystore_location=store, ssl_keystore_type="JKS",
                 ssl_keystore_password="wrong"))
    key = authority.issue("one").read_text().partition("-----BEGIN CERT")[0]
    other = authority.issue("two").read_text()
    assert "the key does not belong to the" in problem(settings(
        authority, ssl_keystore_key=key,
        ssl_keystore_certificate_chain=other[other.index("-----BEGIN CERT"):]))


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    key = authority.issue("locked", password="k-secret")
    TlsSettings(settings(authority, ssl_keystore_location=key, ssl_key_password="k-secret"))
    assert "set ssl.key.password" in problem(settings(authority, ssl_keystore_location=key))
    wrong = problem(settings(authority, ssl_keystore_location=key, ssl_key_password="w-secret"))
    assert "password is wrong" in wrong and "secret" not in wrong


def test_cipher_suites_bound_the_versions_of_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    older = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    found = TlsSettings(settings(authority, ssl_cipher_suites=older))
    assert found.server.maximum_version == ssl.TLSVersion.TLSv1_2
    found = TlsSettings(settings(authority, ssl_cipher_suites="TLS_AES_256_GCM_SHA384"))
    assert found.server.minimum_version == ssl.TLSVersion.TLSv1_3


def test_zookeepers_settings_are_those_of_a_client(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    texts = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(authority.issue("broker", password="k")),
        "zookeeper.ssl.keystore.password": "k",
        "zookeeper.ssl.truststore.location": str(authority.file),
        "ssl.keystore.location": "/nowhere",
    }
    context = zookeeper_context(texts)
    assert context is not None and context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert [each["subject"] for each in context.get_ca_certs()] == [
        ((("commonName", "authority"),),)
    ], "nobody else is trusted"
    unnamed = zookeeper_context(texts | {"zookeeper.ssl.endpoint.identification.algorithm": ""})
    assert unnamed is not None and not unnamed.check_hostname
    assert unnamed.verify_mode == ssl.CERT_REQUIRED
    assert zookeeper_context(texts | {"zookeeper.ssl.client.enable": "false"}) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zookeeper.ssl.keystore.location", "/nowhere"),
        ("zookeeper.ssl.truststore.location", "/nowhere"),
        ("zookeeper.ssl.truststore.type", "BKS"),
        ("zookeeper.ssl.enabled.protocols", "SSLv3"),
        ("zookeeper.ssl.crl.enable", "true"),
        ("zookeeper.ssl.ocsp.enable", "true"),
    ],
)
def test_what_is_wrong_with_zookeepers_settings_is_said_by_their_names(
    tmp_path: Path, name: str, text: str
) -> None:
    authority = Authority(tmp_path)
    texts = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(authority.file),
    }
    with pytest.raises(SettingsError, match=rf"^{name}: "):
        zookeeper_context(texts | {name: text})


@pytest.mark.parametrize("years", [1, 40])
def test_a_certificates_names_and_end_are_read(tmp_path: Path, years: int) -> None:
    """From 2050 on, DER encodes the end of the validity in another form."""
    authority = Authority(tmp_path)
    path = authority.issue("a", ends=years * 365 * DAY, hosts=["localhost", "*.example.org"])
    [found] = chain_of(path.read_text())
    _, made = authority.newest
    assert found.ends == made.not_valid_after_utc
    assert found.subject == "CN=a,O=Tests\\, Inc,C=SI"
    assert found.names == {"DNS:localhost", "DNS:*.example.org", "IP:127.0.0.1"}
    for left, said in ((31 * DAY, None), (29.5 * DAY, "expires in 29 days"), (-DAY, "has expired")):
        warning = found.warning(found.ends - left)
        assert warning is None if said is None else said in (warning or "")


@pytest.mark.parametrize("size", range(0, 120, 7))
def test_a_cut_certificate_is_refused(tmp_path: Path, size: int) -> None:
    [match] = PEM.findall(Authority(tmp_path).file.read_text())
    with pytest.raises(ValueError):
        Certificate.parse(base64.b64decode(match)[:size])


def test_the_end_of_the_certificate_for_zookeeper_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    texts = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": str(authority.issue("broker", ends=40 * DAY)),
        "zookeeper.ssl.truststore.location": str(authority.file),
    }
    zookeeper_context(texts)
    assert "expire" not in caplog.text
    authority.issue("broker", ends=3.5 * DAY)
    zookeeper_context(texts)
    assert "TLS to ZooKeeper: the certificate CN=broker" in caplog.text
    assert "expires in 3 days" in caplog.text
