"""Fuzzers for the code that reads passwords, tokens and configuration: SASL mechanisms, JWT,
JAAS."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.broker.security.sasl.exchange import AuthenticationFailed, Exchange, Identity
from ottla.broker.security.sasl.oauthbearer import OauthExchange
from ottla.broker.security.sasl.plain import PlainExchange, users_of
from ottla.broker.security.sasl.scram import HASHES, KnownUser, ScramExchange, derive
from ottla.broker.security.sasl.web_tokens import TokenRules
from ottla.broker.settings.listener_settings import ListenerSettings
from ottla.client.errors import ClientError
from ottla.client.jaas import JaasError, parse_jaas
from ottla.client.sasl import ScramClient

SEPARATOR = b"\xff\xfe"
"""Between two tokens of one exchange."""
ALICE = {
    mechanism: KnownUser(derive(b"secret", b"salt", 4096, mechanism), Identity("User:alice"))
    for mechanism in HASHES
}


def passwords(data: bytes) -> None:
    """PLAIN and SCRAM: only alice's own password authenticates anybody. The only error is
    AuthenticationFailed."""
    mechanism = ("PLAIN", *HASHES)[data[0] % 3] if data else "PLAIN"
    tokens = data[1:].split(SEPARATOR)[:4]
    if mechanism == "PLAIN":
        exchange: Exchange = PlainExchange({"alice": b"secret"})
    else:
        exchange = ScramExchange(mechanism, functools.partial(look_up, mechanism))
    converse(exchange, tokens)
    if exchange.identity is not None:
        assert tokens[0] in (b"\0alice\0secret", b"alice\0alice\0secret"), data


async def look_up(mechanism: str, name: str, by_token: bool) -> KnownUser | None:
    """The credential of alice, the only user; None for any other name, and for logins by token."""
    return ALICE[mechanism] if name == "alice" and not by_token else None


def converse(exchange: Exchange, tokens: list[bytes]) -> None:
    """Give an exchange these tokens, until it fails or has authenticated the client."""

    async def all_of_them() -> None:
        for token in tokens:
            if exchange.identity is not None:
                return
            await exchange.answer(token)

    try:
        LOOP.run_until_complete(all_of_them())
    except AuthenticationFailed:
        pass


LOOP = asyncio.new_event_loop()
KEY = ec.generate_private_key(ec.SECP256R1())


@functools.cache
def token_rules() -> TokenRules:
    """Rules that trust KEY."""
    key = jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    with tempfile.TemporaryDirectory() as directory:
        keys = Path(directory) / "keys.json"
        keys.write_text(json.dumps({"keys": [{**key, "kid": "k"}]}))
        rules = TokenRules(ListenerSettings({
            "sasl.oauthbearer.jwks.endpoint.url": f"file:{keys}",
            "sasl.oauthbearer.expected.audience": "kafka",
        }))  # fmt: skip
        rules.settings = ListenerSettings({
            "sasl.oauthbearer.jwks.endpoint.url": f"file:{keys}",
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": str(1 << 40),
        })  # fmt: skip
    rules.read_at = float("inf")
    return rules


def web_tokens(data: bytes) -> None:
    """OAUTHBEARER: the input is a whole message, a token with any header and claims, or signed
    claims."""
    if not data:
        return
    kind, body = data[0] % 4, data[1:]
    exchange = OauthExchange(token_rules())
    if kind == 0:
        first = body
    elif kind == 1:
        parts = [base64.urlsafe_b64encode(part).rstrip(b"=") for part in body.split(SEPARATOR)]
        first = b"n,,\1auth=Bearer " + b".".join(parts) + b"\1\1"
    else:
        first = b"n,,\1auth=Bearer " + signed(body, with_header=kind == 3) + b"\1\1"
    converse(exchange, [first, b"\1"])


def signed(body: bytes, with_header: bool) -> bytes:
    """A token with these claims, whatever they are, and a valid signature. If `with_header`, the
    input begins with the header."""
    header, claims = b'{"alg":"ES256","kid":"k"}', body
    if with_header:
        header, _, claims = body.partition(SEPARATOR)
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, claims))
    signature = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(text, KEY)
    return text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")


def hostile_servers(data: bytes) -> None:
    """The client's side of SCRAM: whatever a broker answers, the client continues or raises
    ClientError."""
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", {})
    client.nonce = "fuzz"
    for token in data.split(SEPARATOR)[:3]:
        try:
            if client.answer(token) is None:
                return
        except ClientError:
            return


def jaas_texts(data: bytes) -> None:
    """JAAS configurations are parsed, or refused with JaasError. The text form of the result does
    not show long option values, which may be secrets."""
    text = data.decode("utf-8", "replace")
    try:
        module = parse_jaas(text)
    except JaasError:
        return
    users_of(module.options)
    hidden = [value for value in module.options.values() if len(value) > 40]
    assert all(value not in repr(module) or value in module.name for value in hidden)


def password_seeds() -> list[bytes]:
    """Tokens of PLAIN and SCRAM."""
    first, last = b"n,,n=alice,r=abc", b"c=biws,r=abcdef,p=" + base64.b64encode(bytes(32))
    return [
        b"\0\0alice\0secret", b"\0bob\0alice\0secret", b"\1" + first + SEPARATOR + last,
        b"\2n,a=alice,n=alice,r=x,tokenauth=true" + SEPARATOR + last,
        b"\1n,,n=a=2Cb=3D,r=abc" + SEPARATOR + last,
    ]  # fmt: skip


def token_seeds() -> list[bytes]:
    """Messages and claims of OAUTHBEARER."""
    claims: dict[str, Any] = {
        "sub": "alice", "aud": "kafka", "iat": 1_700_000_000, "exp": 9_000_000_000, "nbf": 1,
        "iss": "me", "jti": "x",
    }  # fmt: skip
    text = json.dumps(claims).encode()
    header = b'{"alg":"ES256","kid":"k","typ":"JWT"}'
    return [
        b"\0n,a=alice,\1host=h\1auth=Bearer a.b.c\1\1",
        b"\1" + header + SEPARATOR + text + SEPARATOR + b"signature",
        b"\2" + text, b"\3" + header + SEPARATOR + text,
    ]  # fmt: skip


def server_seeds() -> list[bytes]:
    """Answers of a SCRAM server."""
    salt = base64.b64encode(b"salt")
    return [b"r=fuzzabc,s=" + salt + b",i=4096" + SEPARATOR + b"v=" + salt, b"e=other-error"]


def jaas_seeds() -> list[bytes]:
    """JAAS texts as people write them."""
    return [
        b'a.b.PlainLoginModule required username="x" password="p\\"q" user_x=\'y\';',
        b"a.B sufficient // remark\n a=b /* c */ ;", b"a.B required a=\"\\101\";",
    ]  # fmt: skip
