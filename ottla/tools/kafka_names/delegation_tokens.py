"""kafka-delegation-tokens: the lines of Apache Kafka's DelegationTokenCommand."""

from __future__ import annotations

import base64
import binascii
import time
from typing import TYPE_CHECKING, Any

from ottla.client.errors import check
from ottla.tools.kafka_names.common import connect, padded
from ottla.tools.kafka_names.grammar import Options, UsageError
from ottla.tools.kafka_names.main import Failed
from ottla.wire.messages import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient

NEEDED = {
    "create": ("max-life-time-period",),
    "renew": ("hmac", "renew-time-period"),
    "expire": ("hmac", "expiry-time-period"),
    "describe": (),
}


def run(options: Options) -> int:
    """Performs the action that a flag names."""
    given = [name for name in options.command.actions if options.has(name)]
    if len(given) != 1:
        raise UsageError(
            "Command must include exactly one action: --create, --renew, --expire or --describe"
        )
    options.needs("bootstrap-server", "command-config", *NEEDED[given[0]])
    act = {"create": create, "renew": renew, "expire": expire, "describe": describe}[given[0]]
    with connect(options) as cluster:
        act(options, cluster)
    return 0


def principals(options: Options, flag: str) -> list[tuple[str, str]]:
    """Type and name of each principal."""
    parsed = []
    for text in options.all(flag):
        kind, colon, name = text.strip().partition(":")
        if not colon:
            raise Failed(f"expected a string in format principalType:principalName but got {text}")
        parsed.append((kind, name))
    return parsed


def shown(who: list[tuple[str, str]]) -> str:
    """Principals as Java prints a list of them."""
    return "[" + ", ".join(f"{kind}:{name}" for kind, name in who) + "]"


def hmac_of(options: Options) -> bytes:
    """The token's HMAC, which is given in base64."""
    try:
        return base64.b64decode(options.one("hmac"), validate=True)
    except binascii.Error as wrong:
        raise Failed(f"--hmac is not base64: {wrong}") from wrong


def create(options: Options, cluster: ClusterClient) -> None:
    renewers = principals(options, "renewer-principal")
    lifetime = options.number("max-life-time-period", -1)
    print(
        f"Calling create token operation with renewers :{shown(renewers)} , "
        f"max-life-time-period :{lifetime}"
    )
    kind = CreateDelegationTokenRequest.Renewer
    owners: list[tuple[str | None, str | None]] = [*principals(options, "owner-principal")]
    owner = owners[0] if owners else (None, None)
    response = cluster.controller().call(
        CreateDelegationTokenRequest(
            owner_principal_type=owner[0],
            owner_principal_name=owner[1],
            renewers=[kind(principal_type=one, principal_name=name) for one, name in renewers],
            max_lifetime_ms=lifetime,
        )
    )
    check(response.error_code)
    print(f"Created delegation token with tokenId : {response.token_id}\n")
    header()
    row(
        response.token_id,
        response.hmac,
        f"{response.principal_type}:{response.principal_name}",
        f"{response.token_requester_principal_type}:{response.token_requester_principal_name}",
        renewers,
        response.issue_timestamp_ms,
        response.expiry_timestamp_ms,
        response.max_timestamp_ms,
    )


def header() -> None:
    print(
        padded(
            ("TOKENID", 15),
            ("HMAC", 30),
            ("OWNER", 15),
            ("REQUESTER", 15),
            ("RENEWERS", 25),
            ("ISSUEDATE", 15),
            ("EXPIRYDATE", 15),
            ("MAXDATE", 15),
        )
    )


def row(
    token: str, hmac: bytes, owner: str, requester: str, renewers: list[tuple[str, str]],
    *times: int,
) -> None:  # fmt: skip
    dates = [time.strftime("%Y-%m-%dT%H:%M", time.localtime(one / 1000)) for one in times]
    print(
        "\n"
        + padded(
            (token, 15),
            (base64.b64encode(hmac).decode(), 30),
            (owner, 15),
            (requester, 15),
            (shown(renewers), 25),
            *((date, 15) for date in dates),
        )
    )


def renew(options: Options, cluster: ClusterClient) -> None:
    hmac, period = hmac_of(options), options.number("renew-time-period", -1)
    print(
        f"Calling renew token operation with hmac :{options.one('hmac')} , renew-time-period "
        f":{period}"
    )
    response = cluster.controller().call(
        RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period)
    )
    check(response.error_code)
    print(f"Completed renew operation. New expiry date : {date_of(response)}", end="")


def expire(options: Options, cluster: ClusterClient) -> None:
    hmac, period = hmac_of(options), options.number("expiry-time-period", -1)
    print(
        f"Calling expire token operation with hmac :{options.one('hmac')} , expire-time-period "
        f":{period}"
    )
    response = cluster.controller().call(
        ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period)
    )
    check(response.error_code)
    print(f"Completed expire operation. New expiry date : {date_of(response)}", end="")


def date_of(response: Any) -> str:
    """The new expiry date."""
    return time.strftime("%Y-%m-%dT%H:%M", time.localtime(response.expiry_timestamp_ms / 1000))


def describe(options: Options, cluster: ClusterClient) -> None:
    owners = principals(options, "owner-principal")
    print(
        "Calling describe token operation for current user."
        if not owners
        else f"Calling describe token operation for owners: {shown(owners)}"
    )
    kind = DescribeDelegationTokenRequest.Owner
    request_owners = [kind(principal_type=one, principal_name=name) for one, name in owners] or None
    response = cluster.any().call(DescribeDelegationTokenRequest(owners=request_owners))
    check(response.error_code)
    print(f"Total number of tokens : {len(response.tokens)}")
    header()
    for token in response.tokens:
        renewers = [(one.principal_type, one.principal_name) for one in token.renewers]
        row(
            token.token_id,
            token.hmac,
            f"{token.principal_type}:{token.principal_name}",
            f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
            renewers,
            token.issue_timestamp,
            token.expiry_timestamp,
            token.max_timestamp,
        )
