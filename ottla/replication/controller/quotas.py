"""The controller's decisions about client quotas (KIP-546), and the filters that select quotas."""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ottla.replication.metadata import Decision, MetadataImage, MetadataRecord
from ottla.replication.principals import CLIENT_ID, CLIENT_KEYS, IP, IP_KEYS, USER, Entity, QuotaSet
from ottla.replication.steps import Steps, Stepwise
from ottla.wire.errors import InvalidRequest, ProtocolError, UnsupportedVersion

TOP = {"INT": 2**31 - 1, "LONG": 2**63 - 1}
WHOLE_NUMBER_TOLERANCE = 1e-6
"""How far an integer limit may be from a whole number, as in Kafka."""


@dataclass(frozen=True, slots=True)
class LimitChange:
    """One limit to set, or to remove if `value` is None."""

    key: str
    value: float | None


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """Changes of one entity's limits. `entity` is as the client sent it."""

    entity: Sequence[tuple[str, str | None]]
    changes: Sequence[LimitChange]


class Match(IntEnum):
    """How a component of a filter matches an entity's name."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2


@dataclass(frozen=True, slots=True)
class Component:
    """One component of a filter: an entity's type, and the rule for its name."""

    entity_type: str
    match: int
    name: str | None


@Stepwise
def alter_quotas(
    image: MetadataImage, alterations: Sequence[QuotaAlteration], validate_only: bool = False
) -> Steps[Decision[list[ProtocolError | None]]]:
    """Set and remove limits; the result has an error or None for each of `alterations`."""
    entities: list[Entity] = [tuple(sorted(dict(each.entity).items())) for each in alterations]
    times = Counter(entities)
    records: list[MetadataRecord] = []
    errors: list[ProtocolError | None] = []
    for entity, each in zip(entities, alterations, strict=True):
        yield
        try:
            keys = _keys_of(entity)
            if times[entity] > 1 or len({c.key for c in each.changes}) < len(each.changes):
                named = ", ".join(f"{kind}={name}" for kind, name in entity)
                raise InvalidRequest(f"Ignoring duplicate entity {{{named}}}")
            known = image.quotas.get(entity, {})
            changed = [QuotaSet(entity, c.key, _value(c, keys)) for c in each.changes]
            records += [record for record in changed if known.get(record.key) != record.value]
            errors.append(None)
        except ProtocolError as error:
            errors.append(error.kept())
    return Decision([] if validate_only else records, errors)


def _keys_of(entity: Entity) -> Mapping[str, str]:
    """The limits that an entity may have, with their types."""
    if not entity:
        raise InvalidRequest("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    kinds = dict(entity)
    if IP not in kinds:
        return CLIENT_KEYS
    if len(kinds) > 1:
        raise InvalidRequest(
            "Invalid quota entity combination, IP entity should not be combined with User or"
            " ClientId"
        )
    address = kinds[IP]
    if address is not None:
        # Kafka also accepts host names and resolves them; here only addresses are accepted.
        try:
            ipaddress.ip_address(address)
        except ValueError:
            raise InvalidRequest(f"{address} is not a valid IP address.") from None
    return IP_KEYS


def _value(change: LimitChange, keys: Mapping[str, str]) -> float | None:
    key, value = change.key, change.value
    if value is None:
        return None                         # removing a missing limit is no error, as in Kafka
    if key not in keys:
        raise InvalidRequest(f"Invalid configuration key {key}")
    kind = keys[key]
    if not math.isfinite(value):
        raise InvalidRequest(f"Quota {key} must be a finite number")
    if value <= 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    if value > TOP.get(kind, math.inf):
        raise InvalidRequest(f"Proposed value for {key} is too large for a {kind}.")
    if kind != "DOUBLE" and abs(value - round(value)) > WHOLE_NUMBER_TOLERANCE:
        raise InvalidRequest(f"{key} cannot be a fractional value.")
    return value


def matching_quotas(
    image: MetadataImage, components: Sequence[Component], strict: bool
) -> Iterator[tuple[Entity, Mapping[str, float]]]:
    """The entities that match all of `components`, with their limits. With `strict`, an entity may
    have only the types that `components` name: a filter for users then leaves out a user with a
    client id.

    Raises ProtocolError if the filter is not valid.
    """
    wanted: dict[str, Component] = {}
    for each in components:
        _check_component(each)
        if each.entity_type in wanted:
            raise InvalidRequest(
                f"Entity type {each.entity_type} cannot appear more than once in the filter."
            )
        wanted[each.entity_type] = each
    if IP in wanted and len(wanted) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )
    return (
        (entity, limits)
        for entity, limits in image.quotas.items()
        if _matches(dict(entity), wanted, strict)
    )


def _check_component(each: Component) -> None:
    if not each.entity_type:
        raise InvalidRequest("Invalid empty entity type.")
    if each.entity_type not in (USER, CLIENT_ID, IP):
        raise UnsupportedVersion(f"Unsupported entity type {each.entity_type}")
    if each.match not in tuple(Match):
        raise InvalidRequest(f"Unknown match type {each.match}")
    if each.match == Match.EXACT and each.name is None:
        raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if each.match != Match.EXACT and each.name is not None:
        raise InvalidRequest(
            f"Request specified MATCH_TYPE_{Match(each.match).name}, but also specified a match"
            " string."
        )


def _matches(
    kinds: Mapping[str, str | None], wanted: Mapping[str, Component], strict: bool
) -> bool:
    if strict and kinds.keys() != wanted.keys():
        return False
    for kind, component in wanted.items():
        if kind not in kinds:
            return False
        name = kinds[kind]
        if component.match == Match.EXACT and name != component.name:
            return False
        if component.match == Match.DEFAULT and name is not None:
            return False
    return True
