"""SCRAM credentials (KIP-554): DescribeUserScramCredentials (key 50), AlterUserScramCredentials
(51).

The credentials are used by SCRAM (`security/sasl/scram`). No answer contains a salt or a key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from ottla.broker.dispatch import handles
from ottla.broker.request_context import RequestContext
from ottla.broker.security.access import CLUSTER_REFUSED_MESSAGE, ClusterRefused
from ottla.broker.security.decisions import by_item, on_cluster
from ottla.replication.controller.access import Operation
from ottla.replication.controller.scram import NewCredential, alter_credentials
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError, as_message
from ottla.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

Described = DescribeUserScramCredentialsResponse.Result


@handles(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, access=on_cluster(Operation.DESCRIBE))
def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Report the mechanisms and iteration counts of the named users, or of all users."""
    known: dict[str, list[Described.CredentialInfo]] = defaultdict(list)
    for (user, mechanism), credential in sorted(
        context.broker.image.credentials.items(), key=lambda item: item[0]
    ):
        known[user].append(
            Described.CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        )
    times = Counter(user.name for user in request.users or ()) or Counter(list(known))
    return DescribeUserScramCredentialsResponse(
        error_code=0,
        error_message="",
        results=[_described(user, count, known) for user, count in times.items()],
    )


def _described(
    user: str, times: int, known: dict[str, list[Described.CredentialInfo]]
) -> Described:
    answer = Described(user=user, error_message="", credential_infos=[])
    if times > 1:
        answer.error_code = int(ErrorCode.DUPLICATE_RESOURCE)
        answer.error_message = as_message(
            "Cannot describe SCRAM credentials for the same user twice in a single request:"
            f" {user}"
        )
    elif user not in known:
        answer.error_code = int(ErrorCode.RESOURCE_NOT_FOUND)
        answer.error_message = as_message(
            f"Attempt to describe a user credential that does not exist: {user}"
        )
    else:
        answer.credential_infos = known[user]
    return answer


@handles(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, access=by_item)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials. For each user, either all changes take effect or none.

    Requires ALTER on the cluster.
    """
    users = [each.name for each in request.deletions]
    users += [each.name for each in request.upsertions]
    if not context.access.cluster(Operation.ALTER):
        return _altered(dict.fromkeys(users, ClusterRefused(CLUSTER_REFUSED_MESSAGE)))
    errors: dict[str, ProtocolError | None] = await context.broker.metadata_log.decide_each(
        lambda error: dict.fromkeys(users, error),
        alter_credentials,
        [(each.name, each.mechanism) for each in request.deletions],
        [
            NewCredential(
                each.name, each.mechanism, each.iterations, each.salt, each.salted_password
            )
            for each in request.upsertions
        ],
    )
    return _altered(errors)


def _altered(
    errors: Mapping[str, ProtocolError | None],
) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.Result(
                user=user,
                error_code=0 if error is None else int(error.code),
                error_message=None if error is None else error.message,
            )
            for user, error in errors.items()
        ]
    )
