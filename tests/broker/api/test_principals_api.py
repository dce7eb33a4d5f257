"""SCRAM credentials and quotas are kept over a restart, and are described without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest,
)
from tests.broker.running import RunningBroker, WireClient

SHA_256, SHA_512 = 1, 2
EXACT, DEFAULT, ANY = range(3)
SALTED = b"a salted password"


def put_credential(client: WireClient, user: str, mechanism: int, iterations: int) -> int:
    made = AlterUserScramCredentialsRequest
    new = made.Upsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"salt",
        salted_password=SALTED,
    )
    [result] = client.call(made(deletions=[], upsertions=[new]), 0).results
    assert result.user == user
    assert (result.error_message is None) == (result.error_code == 0)
    code: int = result.error_code
    return code


def delete_credential(client: WireClient, user: str, mechanism: int) -> int:
    made = AlterUserScramCredentialsRequest
    gone = made.Deletion(name=user, mechanism=mechanism)
    [result] = client.call(made(deletions=[gone], upsertions=[]), 0).results
    code: int = result.error_code
    return code


def credentials(client: WireClient, *users: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
    made = DescribeUserScramCredentialsRequest
    asked = made(users=[made.User(name=user) for user in users] if users else None)
    answer = client.call(asked, 0)
    assert answer.error_code == 0
    return [
        (each.user, each.error_code, [(i.mechanism, i.iterations) for i in each.credential_infos])
        for each in answer.results
    ]


def test_credentials_are_described_by_mechanism_and_iterations(client: WireClient) -> None:
    assert put_credential(client, "b", SHA_512, 16384) == 0
    assert put_credential(client, "a", SHA_256, 4096) == 0
    assert put_credential(client, "b", SHA_256, 8192) == 0
    a, b = ("a", 0, [(SHA_256, 4096)]), ("b", 0, [(SHA_256, 8192), (SHA_512, 16384)])
    assert credentials(client) == [a, b]
    assert credentials(client, "b") == [b]
    assert credentials(client, "nobody") == [("nobody", ErrorCode.RESOURCE_NOT_FOUND, [])]
    assert credentials(client, "a", "a") == [("a", ErrorCode.DUPLICATE_RESOURCE, [])]
    assert delete_credential(client, "b", SHA_512) == 0
    assert credentials(client) == [a, ("b", 0, [(SHA_256, 8192)])]
    assert delete_credential(client, "b", SHA_512) == ErrorCode.RESOURCE_NOT_FOUND
    for user in ("a", "b"):
        assert delete_credential(client, user, SHA_256) == 0
    assert credentials(client) == []


def test_no_answer_has_a_salt_or_a_key_in_it(client: WireClient) -> None:
    assert put_credential(client, "u", SHA_256, 4096) == 0
    client.send(DescribeUserScramCredentialsRequest(users=None), 0)
    frame = client.receive_frame()
    assert b"u" in frame
    assert b"salt" not in frame
    assert SALTED not in frame
    assert len(frame) < 40, "two keys of 32 bytes would not fit"
    assert delete_credential(client, "u", SHA_256) == 0


def alter(
    client: WireClient, entity: dict[str, str | None], version: int = 1, **limits: float | None
) -> int:
    made = AlterClientQuotasRequest
    entry = made.Entry(
        entity=[made.Entry.Entity(entity_type=k, entity_name=n) for k, n in entity.items()],
        ops=[
            made.Entry.Op(key=key, value=value or 0.0, remove=value is None)
            for key, value in limits.items()
        ],
    )
    [answer] = client.call(made(entries=[entry]), version).entries
    assert {each.entity_type: each.entity_name for each in answer.entity} == entity
    code: int = answer.error_code
    return code


def quotas(
    client: WireClient, *components: tuple[str, int, str | None], strict: bool = False,
    version: int = 1,
) -> Any:
    made = DescribeClientQuotasRequest
    asked = [
        made.Component(entity_type=kind, match_type=match, match=name)
        for kind, match, name in components
    ]
    answer = client.call(made(components=asked, strict=strict), version)
    if answer.error_code:
        return answer.error_code
    return {
        tuple((e.entity_type, e.entity_name) for e in entry.entity):
        {v.key: v.value for v in entry.values}
        for entry in answer.entries
    }


@pytest.mark.parametrize("version", range(2))
def test_quotas_are_set_found_and_taken_away(client: WireClient, version: int) -> None:
    pair: dict[str, str | None] = {"user": "u", "client-id": None}
    assert alter(client, {"user": "u"}, version, producer_byte_rate=1000.0) == 0
    assert alter(client, pair, version, request_percentage=12.5) == 0
    assert alter(client, {"user": ""}, version, producer_byte_rate=1.0) == ErrorCode.INVALID_REQUEST
    mine, ours = (("user", "u"),), (("client-id", None), ("user", "u"))
    everything = {mine: {"producer_byte_rate": 1000.0}, ours: {"request_percentage": 12.5}}
    assert quotas(client, version=version) == everything
    assert quotas(client, ("user", EXACT, "u"), version=version) == everything
    only = quotas(client, ("user", EXACT, "u"), strict=True, version=version)
    assert only == {mine: everything[mine]}
    assert quotas(client, ("client-id", DEFAULT, None)) == {ours: everything[ours]}
    assert quotas(client, ("planet", ANY, None)) == ErrorCode.UNSUPPORTED_VERSION
    assert quotas(client, ("user", 9, None)) == ErrorCode.INVALID_REQUEST
    assert alter(client, {"user": "u"}, version, producer_byte_rate=None) == 0
    assert alter(client, pair, version, request_percentage=None) == 0
    assert quotas(client) == {}


def test_credentials_and_quotas_outlive_the_broker(data: Path) -> None:
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        assert put_credential(client, "u", SHA_512, 5000) == 0
        assert alter(client, {"ip": "::1"}, connection_creation_rate=3.0) == 0
    with RunningBroker(data) as broker, WireClient(broker.address) as client:
        assert credentials(client) == [("u", 0, [(SHA_512, 5000)])]
        assert quotas(client) == {(("ip", "::1"),): {"connection_creation_rate": 3.0}}
