"""The cluster as a whole: brokers, features, the metadata quorum, versions of APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.client.errors import Refused, check
from ottla.client.frames import Frames
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    DescribeClusterRequest,
    DescribeQuorumRequest,
    RemoveRaftVoterRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)

if TYPE_CHECKING:
    from ottla.client.cluster import ClusterClient
    from ottla.client.connection import Connection

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
METADATA_TOPIC = "__cluster_metadata"


class Feature(NamedTuple):
    """A feature: the levels that brokers support, and the finalized level (None: not finalized)."""

    name: str
    lowest: int
    highest: int
    finalized: int | None


def brokers(cluster: ClusterClient, *, fenced: bool = False) -> Any:
    """The response of DescribeCluster: the cluster's id, controller and brokers; with `fenced`,
    fenced brokers too."""
    response = cluster.any().call(DescribeClusterRequest(include_fenced_brokers=fenced))
    check(response.error_code, response.error_message)
    return response


def may(cluster: ClusterClient, operation: int) -> bool:
    """Whether the user may perform this operation on the cluster. Raises ClientError."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = cluster.any().call(request)
    check(response.error_code, response.error_message)
    return bool(response.cluster_authorized_operations & (1 << operation))


def unregister(cluster: ClusterClient, broker_id: int) -> None:
    """Unregisters a broker that no longer exists. The request goes to any broker, not to the
    controller: the metadata may still name the stopped broker as the controller."""
    response = cluster.any().call(UnregisterBrokerRequest(broker_id=broker_id))
    check(response.error_code, response.error_message)


def features(cluster: ClusterClient) -> tuple[int, list[Feature]]:
    """The epoch of the finalized features (-1 if there are none), and all features by name."""
    connection = cluster.any()
    version = connection.version_of(ApiKey.API_VERSIONS)
    response = connection.call(Frames.hello(), version)
    finalized = {item.name: item.max_version_level for item in response.finalized_features}
    found = [
        Feature(item.name, item.min_version, item.max_version, finalized.get(item.name))
        for item in response.supported_features
    ]
    return response.finalized_features_epoch, sorted(found)


def update_feature(
    cluster: ClusterClient, levels: dict[str, int], kind: int, *, dry_run: bool = False
) -> dict[str, tuple[int, str | None]]:
    """Changes the levels of features, either all or none. Returns each feature's error code and
    message."""
    update, controller = UpdateFeaturesRequest.FeatureUpdate, cluster.controller()
    request = UpdateFeaturesRequest(
        timeout_ms=cluster.timeout_ms(controller),
        validate_only=dry_run,
        feature_updates=[
            update(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level in levels.items()
        ],
    )
    response = controller.call(request)
    if response.error_code:
        return dict.fromkeys(levels, (response.error_code, response.error_message))
    results = getattr(response, "results", None) or []
    return dict.fromkeys(levels, (0, None)) | {
        item.feature: (item.error_code, item.error_message) for item in results
    }


def quorum(cluster: ClusterClient, asked: Connection | None = None) -> tuple[Any, list[Any]]:
    """The state of the metadata partition, and the addresses of its voters. The request goes to
    `asked` or, without it, to any broker. Waits while a controller is being elected."""
    topic = DescribeQuorumRequest.Topic
    request = DescribeQuorumRequest(
        topics=[topic(topic_name=METADATA_TOPIC, partitions=[topic.Partition(partition_index=0)])]
    )

    def ask() -> tuple[Any, list[Any]]:
        response = (asked or cluster.any()).call(request)
        check(response.error_code, getattr(response, "error_message", None))
        part = response.topics[0].partitions[0]
        check(part.error_code, getattr(part, "error_message", None))
        if part.leader_id < 0:
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, what="the metadata quorum")
        return part, list(getattr(response, "nodes", None) or [])

    found: tuple[Any, list[Any]] = cluster.with_retries(ask, again=asked is None)
    return found


def remove_voter(cluster: ClusterClient, voter_id: int, directory_id: bytes) -> None:
    """Remove a controller from the quorum."""
    request = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id
    )
    response = cluster.controller().call(request)
    check(response.error_code, response.error_message)
